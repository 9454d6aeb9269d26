"""Updates of one key are serialised by a lock of its own, which is made when it is first asked for."""

import asyncio
from collections import defaultdict


class Store:
    def __init__(self):
        self._locks = defaultdict(asyncio.Lock)
        self.values = {}

    async def add(self, key, amount):
        async with self._locks[key]:
            seen = self.values.get(key, 0)
            await asyncio.sleep(0.001)
            self.values[key] = seen + amount


async def scenario():
    store = Store()
    await asyncio.gather(store.add("a", 1), store.add("b", 5), store.add("a", 2))
    assert store.values == {"a": 3, "b": 5}
