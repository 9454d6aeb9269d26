"""A web application and two requests to it, over the loopback interface."""

import asyncio

import aiohttp
from aiohttp import web


async def greet(request):
    await asyncio.sleep(0)
    return web.Response(text=f"hello {request.match_info['name']}")


async def scenario():
    application = web.Application()
    application.router.add_get("/{name}", greet)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        async with aiohttp.ClientSession() as session:

            async def get(name):
                async with session.get(f"http://127.0.0.1:{port}/{name}") as response:
                    return await response.text()

            assert await asyncio.gather(get("ann"), get("bob")) == ["hello ann", "hello bob"]
    finally:
        await runner.cleanup()
