"""Each request sees its own identifier, in every task that it starts."""

import asyncio
from contextvars import ContextVar

request = ContextVar("request")


async def log(lines):
    await asyncio.sleep(0)
    lines.append(request.get())


async def handle(identifier, lines):
    token = request.set(identifier)
    try:
        await asyncio.gather(log(lines), log(lines))
        assert request.get() == identifier
    finally:
        request.reset(token)


async def scenario():
    lines = []
    await asyncio.gather(*[handle(identifier, lines) for identifier in ("a", "b")])
    assert sorted(lines) == ["a", "a", "b", "b"]
    assert request.get(None) is None
