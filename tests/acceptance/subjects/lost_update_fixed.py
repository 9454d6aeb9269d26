"""The stock room with a lock around fetch and store."""

import asyncio
import random


async def line_noise(most):
    await asyncio.sleep(random.uniform(0, most))


class StockRoom:
    def __init__(self):
        self.shelf = {"bolts": 0}
        self._one_at_a_time = asyncio.Lock()

    async def _fetch(self):
        await line_noise(0.001)
        return self.shelf["bolts"]

    async def _store(self, count):
        await line_noise(0.001)
        self.shelf["bolts"] = count

    async def receive(self, count):
        async with self._one_at_a_time:
            on_hand = await self._fetch()
            await self._store(on_hand + count)


async def scenario():
    room = StockRoom()

    async def lorry(count):
        await line_noise(0.008)
        await room.receive(count)

    await asyncio.gather(lorry(30), lorry(4))
    assert room.shelf["bolts"] == 34, room.shelf
