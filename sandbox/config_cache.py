"""A configuration cache that looks racy and is not.

Wrong:  nothing. `get` tests for the configuration outside the lock, which looks like check-then-act, but tests again
        behind it (double-checked locking); `hits += 1` reads and writes a shared counter, but without an await in
        between, and a coroutine is suspended nowhere else.
Run:    chaossloth sandbox/config_cache.py::scenario
Rate:   0 of 300 runs fail (0 %) on the stock loop: python tests/sandbox/natural.py config_cache 300
Prints: clean: nothing failed within the bounds
"""

import asyncio
import random


class ConfigCache:
    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._config: dict[str, int] | None = None
        self.loads = 0
        self.hits = 0

    async def get(self, key: str) -> int:
        if self._config is None:
            async with self._lock:
                if self._config is None:
                    self._config = await self._load()
        self.hits += 1
        return self._config[key]

    async def _load(self) -> dict[str, int]:
        await asyncio.sleep(random.uniform(0.001, 0.003))
        self.loads += 1
        return {"port": 8080, "workers": 4}


async def scenario() -> None:
    cache = ConfigCache()

    async def reader(key: str) -> int:
        await asyncio.sleep(random.uniform(0.0, 0.004))
        return await cache.get(key)

    values = await asyncio.gather(reader("port"), reader("workers"), reader("port"))
    assert values == [8080, 4, 8080]
    assert (cache.loads, cache.hits) == (1, 3)
