"""A background task runs as long as its owner is open, and is cancelled and awaited when it closes."""

import asyncio
from contextlib import suppress


class Refresher:
    def __init__(self):
        self.version = 0
        self._task = None

    async def __aenter__(self):
        self._task = asyncio.create_task(self._run())
        return self

    async def _run(self):
        while True:
            self.version += 1
            await asyncio.sleep(0.1)

    async def __aexit__(self, *exc_info):
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


async def scenario():
    async with Refresher() as refresher:
        await asyncio.sleep(0.25)
    seen = refresher.version
    await asyncio.sleep(0.3)
    assert refresher.version == seen
