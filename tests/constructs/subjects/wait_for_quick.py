"""A quick call under a generous time limit, beside a slow one that is given up."""

import asyncio


async def price(item, seconds):
    await asyncio.sleep(seconds)
    return len(item)


async def quote(item, seconds, limit):
    try:
        return await asyncio.wait_for(price(item, seconds), limit)
    except TimeoutError:
        return None


async def scenario():
    quick, slow = await asyncio.gather(quote("tea", 0.001, 30), quote("coffee", 3600, 0.2))
    assert quick == 3
    assert slow is None
