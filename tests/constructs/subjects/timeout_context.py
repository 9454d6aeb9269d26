"""asyncio.timeout ends a step that takes too long and leaves a quick one alone."""

import asyncio


async def steps(log):
    async with asyncio.timeout(60):
        await asyncio.sleep(0.001)
        log.append("quick")
    try:
        async with asyncio.timeout(0.1):
            await asyncio.Event().wait()
    except TimeoutError:
        log.append("given up")


async def scenario():
    logs = [], []
    await asyncio.gather(*[steps(log) for log in logs])
    assert logs == (["quick", "given up"], ["quick", "given up"])
