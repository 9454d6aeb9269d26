"""The router has a method for callers that hold the gate."""

import asyncio
import random


class Router:
    def __init__(self):
        self._gate = asyncio.Lock()
        self.unwanted = False
        self.state = "boxed"

    async def boot(self):
        async with self._gate:
            await asyncio.sleep(random.uniform(0, 0.004))
            if self.unwanted:
                self._go_dark()
            else:
                self.state = "up"

    async def power_off(self):
        async with self._gate:
            self._go_dark()

    def _go_dark(self):
        self.state = "off"

    def reject(self):
        self.unwanted = True


async def scenario():
    router = Router()

    async def owner():
        await asyncio.sleep(random.uniform(0, 0.004))
        router.reject()

    await asyncio.gather(router.boot(), owner())
    assert router.state in ("up", "off"), router.state
