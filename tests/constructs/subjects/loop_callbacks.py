"""call_soon, call_later and call_at beside a task; a timer that is cancelled never fires."""

import asyncio


async def scenario():
    loop = asyncio.get_running_loop()
    fired, done = set(), loop.create_future()

    def note(name):
        fired.add(name)
        if fired >= {"soon", "later", "at"} and not done.done():
            done.set_result(None)

    loop.call_soon(note, "soon")
    loop.call_later(0.01, note, "later")
    loop.call_at(loop.time() + 0.02, note, "at")
    never = loop.call_later(0.1, note, "never")
    never.cancel()
    await done
    await asyncio.sleep(0.2)
    assert fired == {"soon", "later", "at"}
