"""gather keeps the failures among the results, in the order of its arguments."""

import asyncio


async def fetch(number):
    await asyncio.sleep(0.001 * (3 - number))
    if number == 1:
        raise LookupError(number)
    return number * 10


async def scenario():
    results = await asyncio.gather(*[fetch(number) for number in range(3)], return_exceptions=True)
    assert [results[0], results[2]] == [0, 20]
    assert isinstance(results[1], LookupError)
