"""A synchronous test that keeps one loop over several calls with asyncio.Runner."""

import asyncio


class Counter:
    def __init__(self):
        self.value = 0
        self.lock = asyncio.Lock()

    async def add(self, amount):
        async with self.lock:
            seen = self.value
            await asyncio.sleep(0.001)
            self.value = seen + amount


async def add_all(counter, amounts):
    await asyncio.gather(*[counter.add(amount) for amount in amounts])


def test_runner():
    with asyncio.Runner() as runner:
        counter = Counter()
        runner.run(add_all(counter, (1, 2)))
        runner.run(add_all(counter, (3,)))
    assert counter.value == 6
