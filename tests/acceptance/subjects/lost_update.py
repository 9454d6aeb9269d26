"""Lost update through helper methods: a count is fetched, an await happens, the sum is stored over a newer count."""

import asyncio
import random


async def line_noise(most):
    await asyncio.sleep(random.uniform(0, most))


class StockRoom:
    def __init__(self):
        self.shelf = {"bolts": 0}

    async def _fetch(self):
        await line_noise(0.001)
        return self.shelf["bolts"]  # critical: read

    async def _store(self, count):
        await line_noise(0.001)
        self.shelf["bolts"] = count  # critical: write

    async def receive(self, count):
        # the delivery note is checked elsewhere
        on_hand = await self._fetch()
        await self._store(on_hand + count)


async def scenario():
    room = StockRoom()

    async def lorry(count):
        await line_noise(0.008)
        await room.receive(count)

    await asyncio.gather(lorry(30), lorry(4))
    assert room.shelf["bolts"] == 34, room.shelf
