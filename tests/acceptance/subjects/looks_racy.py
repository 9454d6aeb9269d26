"""No race: read, subtract and write without an await between them, and a lock that is made lazily just so."""

import asyncio
import random


class Launch:
    def __init__(self, count):
        self.count = count
        self._lock = None

    def _the_lock(self):
        if self._lock is None:
            self._lock = asyncio.Lock()
        return self._lock

    async def tick(self):
        await asyncio.sleep(random.uniform(0, 0.002))
        seen = self.count
        seen -= 1
        self.count = seen
        async with self._the_lock():
            await asyncio.sleep(0)


def full():
    return Launch(4)


async def scenario():
    launch = full()
    await asyncio.gather(*(launch.tick() for _ in range(4)))
    assert launch.count == 0, launch.count
