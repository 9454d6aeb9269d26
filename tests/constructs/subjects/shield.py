"""The caller is cancelled, the write that it began is not; it is awaited before the end."""

import asyncio


class Ledger:
    def __init__(self):
        self.entries = []
        self._writes = set()

    async def _write(self, entry):
        await asyncio.sleep(0.001)
        self.entries.append(entry)

    async def record(self, entry):
        write = asyncio.create_task(self._write(entry))
        self._writes.add(write)
        write.add_done_callback(self._writes.discard)
        await asyncio.shield(write)

    async def close(self):
        while self._writes:
            await asyncio.wait(self._writes)


async def scenario():
    ledger, begun = Ledger(), asyncio.Event()

    async def caller():
        begun.set()
        await ledger.record("a")

    task = asyncio.create_task(caller())
    await begun.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await ledger.close()
    assert ledger.entries in (["a"], [])
