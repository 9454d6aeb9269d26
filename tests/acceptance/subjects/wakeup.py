"""One `if` where `while` belongs: two cooks wake for one free stove and both light it."""

import asyncio
import random


class Kitchen:
    def __init__(self, stoves):
        self.stoves = stoves
        self.most = 0
        self._lit = set()
        self._free = asyncio.Event()

    async def cook(self, recipe):
        if len(self._lit) >= self.stoves:  # critical: read
            self._free.clear()
            await self._free.wait()
        dish = asyncio.create_task(recipe())
        self._lit.add(dish)  # critical: write
        self.most = max(self.most, len(self._lit))
        dish.add_done_callback(self._served)
        return dish

    def _served(self, dish):
        self._lit.discard(dish)  # critical: free
        self._free.set()


async def scenario():
    kitchen = Kitchen(stoves=1)

    async def soup():
        await asyncio.sleep(random.uniform(0, 0.003))

    async def order():
        await asyncio.sleep(random.uniform(0, 0.011))
        await (await kitchen.cook(soup))

    await asyncio.gather(order(), order(), order())
    assert kitchen.most <= kitchen.stoves, f"{kitchen.most} stoves lit, there is {kitchen.stoves}"
