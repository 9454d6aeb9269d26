"""Calls keep their distance: each takes the next free moment, at once, and sleeps until then."""

import asyncio


class Limiter:
    def __init__(self, interval):
        self._interval = interval
        self._next = 0.0

    async def wait(self):
        loop = asyncio.get_running_loop()
        now = loop.time()
        at = max(self._next, now)
        self._next = at + self._interval
        await asyncio.sleep(at - now)
        return at


async def scenario():
    limiter = Limiter(0.05)
    moments = sorted(await asyncio.gather(*[limiter.wait() for _ in range(3)]))
    assert all(later - earlier >= 0.0499 for earlier, later in zip(moments, moments[1:], strict=False))
