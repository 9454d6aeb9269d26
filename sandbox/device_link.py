"""A link to a device that hangs when it is told to stop while it is opening.

Wrong:  `open` holds the lock while it calls `close`, and `close` acquires the same lock. An asyncio.Lock cannot be
        acquired twice by one task: the task waits for itself (self-deadlock). It only happens when the stop request
        arrives during the handshake.
Run:    chaossloth sandbox/device_link.py::scenario
Rate:   152 of 300 runs fail (51 %) on the stock loop: python tests/sandbox/natural.py device_link 300
Prints: no repair: self-deadlock: DeviceLink.open holds DeviceLink._lock (since device_link.py:28) and waits for it
        again at device_link.py:35; asyncio.Lock is not reentrant · label stock
"""

import asyncio
import random


class DeviceLink:
    """One connection; the lock keeps opening and closing apart."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._stop_requested = False
        self.state = "closed"

    def request_stop(self) -> None:
        self._stop_requested = True

    async def open(self) -> None:
        async with self._lock:
            await self._handshake()
            self.state = "open"
            if self._stop_requested:
                await self.close()

    async def close(self) -> None:
        async with self._lock:
            self.state = "closed"

    async def _handshake(self) -> None:
        await asyncio.sleep(random.uniform(0.001, 0.005))


async def scenario() -> None:
    link = DeviceLink()

    async def operator() -> None:
        await asyncio.sleep(random.uniform(0.0, 0.006))
        link.request_stop()

    await asyncio.gather(link.open(), operator())
    assert link.state in ("open", "closed"), link.state
