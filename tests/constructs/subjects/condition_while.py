"""A bounded buffer on one condition; both sides test again after every wake-up."""

import asyncio


class Buffer:
    def __init__(self, size):
        self._size = size
        self._items = []
        self._changed = asyncio.Condition()

    async def put(self, item):
        async with self._changed:
            while len(self._items) >= self._size:
                await self._changed.wait()
            self._items.append(item)
            assert len(self._items) <= self._size
            self._changed.notify_all()

    async def take(self):
        async with self._changed:
            while not self._items:
                await self._changed.wait()
            item = self._items.pop(0)
            self._changed.notify_all()
            return item


async def scenario():
    buffer = Buffer(1)
    taken = await asyncio.gather(buffer.take(), buffer.put("a"), buffer.put("b"), buffer.take())
    assert sorted([taken[0], taken[3]]) == ["a", "b"]
