"""A reader stops early; closing the generator gives its resource back."""

import asyncio
from contextlib import aclosing


class Feed:
    def __init__(self):
        self.open = 0

    async def lines(self):
        self.open += 1
        try:
            for number in range(100):
                await asyncio.sleep(0)
                yield number
        finally:
            await asyncio.sleep(0)
            self.open -= 1


async def scenario():
    feed = Feed()

    async def head(count):
        taken = []
        async with aclosing(feed.lines()) as lines:
            async for line in lines:
                taken.append(line)
                if len(taken) == count:
                    break
        return taken

    assert await asyncio.gather(head(1), head(3)) == [[0], [0, 1, 2]]
    assert feed.open == 0
