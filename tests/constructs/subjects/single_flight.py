"""Concurrent callers share one load: the task is stored before anything is awaited."""

import asyncio


class Cache:
    def __init__(self):
        self._loads = {}
        self.calls = 0

    async def _load(self, key):
        self.calls += 1
        await asyncio.sleep(0.001)
        return key.upper()

    async def get(self, key):
        load = self._loads.get(key)
        if load is None:
            load = self._loads[key] = asyncio.create_task(self._load(key))
        return await asyncio.shield(load)


async def scenario():
    cache = Cache()
    assert await asyncio.gather(cache.get("a"), cache.get("a"), cache.get("a")) == ["A"] * 3
    assert cache.calls == 1
