"""An audit log that loses its last entries at shutdown.

Wrong:  `record` starts a task that writes the entry and `close` does not wait for the tasks that are still writing
        (fire and forget). What is not written when the program ends is lost without a trace.
Run:    chaossloth sandbox/audit_log.py::scenario
Rate:   215 of 300 runs fail (72 %) on the stock loop: python tests/sandbox/natural.py audit_log 300
Prints: no repair: order violation of AuditLog.written · label stock
"""

import asyncio
import random


class AuditLog:
    def __init__(self) -> None:
        self.written: list[str] = []
        self._writers: set[asyncio.Task[None]] = set()

    def record(self, entry: str) -> None:
        """Write the entry in the background, so that the caller does not wait for the disk."""
        writer = asyncio.create_task(self._write(entry))
        self._writers.add(writer)
        writer.add_done_callback(self._writers.discard)

    async def close(self) -> None:
        await self._write("log closed")

    async def _write(self, entry: str) -> None:
        await asyncio.sleep(random.uniform(0.001, 0.004))
        self.written.append(entry)


async def scenario() -> None:
    log = AuditLog()
    for entry in ("ann logged in", "ann deleted order 7"):
        log.record(entry)
    await log.close()
    missing = {"ann logged in", "ann deleted order 7"} - set(log.written)
    assert not missing, f"lost at shutdown: {sorted(missing)}"
