"""A semaphore limits how many downloads run at once."""

import asyncio


class Downloads:
    def __init__(self, limit):
        self._slots = asyncio.Semaphore(limit)
        self.running = 0
        self.most = 0
        self.done = []

    async def get(self, name):
        async with self._slots:
            self.running += 1
            self.most = max(self.most, self.running)
            await asyncio.sleep(0.001)
            self.running -= 1
            self.done.append(name)


async def scenario():
    downloads = Downloads(limit=2)
    await asyncio.gather(*[downloads.get(name) for name in "abcd"])
    assert downloads.most <= 2
    assert downloads.running == 0
    assert sorted(downloads.done) == list("abcd")
