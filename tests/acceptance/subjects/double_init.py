"""Check-then-act: a lazy garage is made twice. No FIFO order shows it: the second driver looks one turn later."""

import asyncio


class Garage:
    def __init__(self):
        self.out = set()

    async def unlock(self):
        await asyncio.sleep(0)

    def take(self):
        car = object()
        self.out.add(car)
        return car

    def park(self, car):
        self.out.remove(car)


class LazyGarage:
    def __init__(self):
        self._garage = None

    async def garage(self):
        if self._garage is None:  # critical: read
            fresh = Garage()
            await fresh.unlock()
            self._garage = fresh  # critical: write
        return self._garage


async def scenario():
    lazy = LazyGarage()

    async def driver(turns):
        for _ in range(turns):
            await asyncio.sleep(0)
        car = (await lazy.garage()).take()
        for _ in range(4):
            await asyncio.sleep(0)
        (await lazy.garage()).park(car)

    await asyncio.gather(driver(0), driver(1))
