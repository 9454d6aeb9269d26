"""A heartbeat beats beside the work and stops with it; how often it beat is not relied on."""

import asyncio


async def beat(beats, stop):
    while not stop.is_set():
        beats.append(asyncio.get_running_loop().time())
        try:
            await asyncio.wait_for(stop.wait(), 0.1)
        except TimeoutError:
            continue


async def scenario():
    beats, stop = [], asyncio.Event()
    heart = asyncio.create_task(beat(beats, stop))
    await asyncio.sleep(0.25)
    stop.set()
    await heart
    assert beats == sorted(beats)
    assert len(beats) >= 1
