"""Many readers or one writer, on one condition."""

import asyncio
from contextlib import asynccontextmanager


class ReadersWriter:
    def __init__(self):
        self._changed = asyncio.Condition()
        self._readers = 0
        self._writing = False

    @asynccontextmanager
    async def read(self):
        async with self._changed:
            await self._changed.wait_for(lambda: not self._writing)
            self._readers += 1
        try:
            yield
        finally:
            async with self._changed:
                self._readers -= 1
                self._changed.notify_all()

    @asynccontextmanager
    async def write(self):
        async with self._changed:
            await self._changed.wait_for(lambda: not self._writing and not self._readers)
            self._writing = True
        try:
            yield
        finally:
            async with self._changed:
                self._writing = False
                self._changed.notify_all()


async def scenario():
    lock, pair = ReadersWriter(), [0, 0]

    async def reader():
        async with lock.read():
            first = pair[0]
            await asyncio.sleep(0)
            assert pair[1] == first

    async def writer():
        async with lock.write():
            pair[0] += 1
            await asyncio.sleep(0)
            pair[1] += 1

    await asyncio.gather(reader(), writer(), reader())
    assert pair == [1, 1]
