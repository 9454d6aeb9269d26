"""Self-deadlock: boot() holds the gate and calls power_off(), which takes it again."""

import asyncio
import random


class Router:
    def __init__(self):
        self._gate = asyncio.Lock()
        self.unwanted = False
        self.state = "boxed"

    async def boot(self):
        async with self._gate:  # cycle: held
            await asyncio.sleep(random.uniform(0, 0.004))
            if self.unwanted:
                await self.power_off()
            else:
                self.state = "up"

    async def power_off(self):
        async with self._gate:  # cycle: waits
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
