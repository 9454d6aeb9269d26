"""A call is repeated with growing, jittered pauses until it succeeds."""

import asyncio
import random


class Service:
    def __init__(self, failures):
        self.left = failures

    async def call(self):
        await asyncio.sleep(0.001)
        if self.left > 0:
            self.left -= 1
            raise ConnectionError
        return "ok"


async def with_retries(call, attempts=5):
    for attempt in range(attempts):
        try:
            return await call()
        except ConnectionError:
            if attempt == attempts - 1:
                raise
            await asyncio.sleep(0.01 * 2**attempt * random.uniform(0.5, 1.5))


async def scenario():
    service = Service(failures=2)
    assert await asyncio.gather(with_retries(service.call), with_retries(service.call)) == ["ok", "ok"]
