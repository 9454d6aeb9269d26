"""A download manager that loses a slot with each time-out, until nothing is downloaded any more.

Wrong:  `download` acquires a permit of the semaphore and releases it only when the transfer succeeds. A transfer that
        times out keeps its permit for ever (leaked permit), and the next download waits for a slot that never becomes
        free. `async with` or `try`/`finally` gives it back.
Run:    chaossloth sandbox/download_slots.py::scenario
Rate:   167 of 300 runs fail (56 %) on the stock loop: python tests/sandbox/natural.py download_slots 300
Prints: no repair: all-waiting: scenario waits for task Downloads.download #2 at download_slots.py:38;
        Downloads.download #2 waits for Downloads._slots at download_slots.py:25, held by Downloads.download #1 (since
        download_slots.py:25), which has ended · label stock
"""

import asyncio
import random

TIMEOUT_S = 0.004


class Downloads:
    def __init__(self, slots: int = 1) -> None:
        self._slots = asyncio.Semaphore(slots)

    async def download(self, name: str) -> str:
        """The content. Raises TimeoutError when the transfer takes too long."""
        await self._slots.acquire()
        async with asyncio.timeout(TIMEOUT_S):
            content = await self._transfer(name)
        self._slots.release()
        return content

    async def _transfer(self, name: str) -> str:
        await asyncio.sleep(random.uniform(0.001, 0.006))
        return f"content of {name}"


async def scenario() -> None:
    downloads = Downloads(slots=1)
    answers = await asyncio.gather(downloads.download("a.zip"), downloads.download("b.zip"), return_exceptions=True)
    # A slow server is no fault of this program: a download may time out, but it has to come to an end.
    assert all(isinstance(answer, str | TimeoutError) for answer in answers), answers
