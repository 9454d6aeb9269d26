"""Two mirrors are asked, the first answer is taken and the other request is cancelled and awaited."""

import asyncio


async def ask(mirror, seconds):
    await asyncio.sleep(seconds)
    return mirror


async def scenario():
    requests = {asyncio.create_task(ask("near", 0.001)), asyncio.create_task(ask("far", 0.002))}
    done, pending = await asyncio.wait(requests, return_when=asyncio.FIRST_COMPLETED)
    for request in pending:
        request.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    assert done
    assert {request.result() for request in done} <= {"near", "far"}
