"""Two sides wait for each other's event before they go on."""

import asyncio


async def scenario():
    ready, go = asyncio.Event(), asyncio.Event()
    log = []

    async def server():
        log.append("listening")
        ready.set()
        await go.wait()
        log.append("served")

    async def client():
        await ready.wait()
        log.append("connected")
        go.set()

    await asyncio.gather(client(), server())
    assert log == ["listening", "connected", "served"]
