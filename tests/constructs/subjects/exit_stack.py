"""Resources that are opened one after another are closed in the opposite order, also after a failure."""

import asyncio
from contextlib import AsyncExitStack


class Resource:
    def __init__(self, name, log):
        self.name = name
        self.log = log

    async def __aenter__(self):
        await asyncio.sleep(0)
        self.log.append(f"open {self.name}")
        return self

    async def __aexit__(self, *exc_info):
        await asyncio.sleep(0)
        self.log.append(f"close {self.name}")


async def use(log):
    async with AsyncExitStack() as stack:
        for name in ("a", "b"):
            await stack.enter_async_context(Resource(name, log))
        raise RuntimeError("no space left")


async def scenario():
    logs = [], []
    failures = await asyncio.gather(*[use(log) for log in logs], return_exceptions=True)
    assert all(isinstance(failure, RuntimeError) for failure in failures)
    assert logs == (["open a", "open b", "close b", "close a"],) * 2
