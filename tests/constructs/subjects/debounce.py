"""Of calls in quick succession only the last one is carried out; each call replaces the timer before it."""

import asyncio


class Debounced:
    def __init__(self, delay, action):
        self._delay = delay
        self._action = action
        self._timer = None

    def call(self, value):
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self._delay, self._action, value)


async def scenario():
    saved = []
    debounced = Debounced(0.3, saved.append)
    for text in ("h", "he", "hel"):
        debounced.call(text)
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.5)
    assert saved == ["hel"]
