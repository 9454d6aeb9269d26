"""A job queue whose workers wake up for a job that another worker has already taken.

Wrong:  `get` tests for a job with `if`, waits for a notification and pops without testing again. `put` notifies all
        waiting workers, the first one takes the job, the second pops from an empty list: IndexError. A condition has
        to be tested in a loop (`while` instead of `if`).
Run:    chaossloth sandbox/job_queue.py::scenario
Rate:   234 of 300 runs fail (78 %) on the stock loop: python tests/sandbox/natural.py job_queue 300
Prints: repaired: atomicity violation of JobQueue._jobs · label stock · WHILE_INSTEAD_OF_IF in JobQueue.get
"""

import asyncio
import random


class JobQueue:
    def __init__(self) -> None:
        self._jobs: list[str] = []
        self._changed = asyncio.Condition()

    async def put(self, job: str) -> None:
        async with self._changed:
            self._jobs.append(job)
            self._changed.notify_all()

    async def get(self) -> str:
        async with self._changed:
            if not self._jobs:
                await self._changed.wait()
            return self._jobs.pop(0)


async def scenario() -> None:
    queue = JobQueue()
    done: list[str] = []

    async def worker() -> None:
        await asyncio.sleep(random.uniform(0.0, 0.004))
        done.append(await queue.get())

    async def producer() -> None:
        for job in ("resize", "upload"):
            await asyncio.sleep(random.uniform(0.001, 0.006))
            await queue.put(job)

    await asyncio.gather(worker(), worker(), producer())
    assert sorted(done) == ["resize", "upload"], done
