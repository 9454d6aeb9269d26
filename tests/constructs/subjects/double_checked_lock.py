"""The client is made once: it is looked for before the lock and again under it."""

import asyncio


class Lazy:
    def __init__(self):
        self._lock = asyncio.Lock()
        self._client = None
        self.made = 0

    async def client(self):
        if self._client is None:
            async with self._lock:
                if self._client is None:
                    await asyncio.sleep(0.001)
                    self.made += 1
                    self._client = object()
        return self._client


async def scenario():
    lazy = Lazy()
    clients = await asyncio.gather(*[lazy.client() for _ in range(3)])
    assert lazy.made == 1
    assert len(set(map(id, clients))) == 1
