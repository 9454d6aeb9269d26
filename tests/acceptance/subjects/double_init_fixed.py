"""The lazily made garage, made under a lock that tests again."""

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
        self._making = asyncio.Lock()

    async def garage(self):
        if self._garage is None:
            async with self._making:
                if self._garage is None:
                    fresh = Garage()
                    await fresh.unlock()
                    self._garage = fresh
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
