"""Connections are borrowed and given back by an async context manager, also when the work fails."""

import asyncio
from contextlib import asynccontextmanager


class Pool:
    def __init__(self, size):
        self._free = asyncio.Queue()
        for number in range(size):
            self._free.put_nowait(number)
        self.in_use = set()

    @asynccontextmanager
    async def connection(self):
        number = await self._free.get()
        assert number not in self.in_use
        self.in_use.add(number)
        try:
            yield number
        finally:
            self.in_use.discard(number)
            self._free.put_nowait(number)


async def scenario():
    pool = Pool(2)

    async def query(fail):
        async with pool.connection():
            await asyncio.sleep(0.001)
            if fail:
                raise ValueError("bad query")

    results = await asyncio.gather(query(False), query(True), query(False), return_exceptions=True)
    assert [type(result) for result in results] == [type(None), ValueError, type(None)]
    assert not pool.in_use
