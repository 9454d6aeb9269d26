"""Blocking work goes to threads; each returns its result, and nothing is shared."""

import asyncio


def digest(data):
    return sum(data) % 251


async def scenario():
    results = await asyncio.gather(*[asyncio.to_thread(digest, bytes([number] * 100)) for number in range(3)])
    assert results == [0, 100, 200]
