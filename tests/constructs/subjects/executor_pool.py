"""Work is handed to a thread pool of the program's own, which is shut down at the end."""

import asyncio
from concurrent.futures import ThreadPoolExecutor


def square(number):
    return number * number


async def scenario():
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(max_workers=2) as pool:
        squares = await asyncio.gather(*[loop.run_in_executor(pool, square, number) for number in range(4)])
    assert squares == [0, 1, 4, 9]
