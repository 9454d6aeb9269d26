"""Once stopping is asked for, no new job begins and the running ones are finished."""

import asyncio


class Server:
    def __init__(self):
        self._jobs = set()
        self._stopping = False
        self.accepted = 0
        self.finished = 0

    def submit(self, seconds):
        if self._stopping:
            return False
        self.accepted += 1
        job = asyncio.create_task(self._work(seconds))
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        return True

    async def _work(self, seconds):
        await asyncio.sleep(seconds)
        self.finished += 1

    async def stop(self):
        self._stopping = True
        await asyncio.gather(*self._jobs)


async def scenario():
    server = Server()

    async def clients():
        for _ in range(3):
            server.submit(0.01)
            await asyncio.sleep(0.001)

    async def operator():
        await asyncio.sleep(0.002)
        await server.stop()

    await asyncio.gather(clients(), operator())
    assert server.finished == server.accepted
    assert not server.submit(0.01)
