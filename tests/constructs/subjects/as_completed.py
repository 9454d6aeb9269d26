"""Results are taken as they come; only their sum and number are relied on."""

import asyncio


async def measure(sensor):
    await asyncio.sleep(0.001 * sensor)
    return sensor


async def scenario():
    seen = []
    for next_one in asyncio.as_completed([measure(sensor) for sensor in (3, 1, 2)]):
        seen.append(await next_one)
    assert sorted(seen) == [1, 2, 3]
