"""The newsletter goes through a copy of its readers."""

import asyncio
import random


class Newsletter:
    def __init__(self, readers):
        self.readers = {reader: [] for reader in readers}

    async def publish(self, issue):
        for letters in list(self.readers.values()):
            await asyncio.sleep(random.uniform(0, 0.002))  # the post is slow
            letters.append(issue)

    def cancel(self, reader):
        self.readers.pop(reader, None)


async def scenario():
    newsletter = Newsletter(["ida", "jon", "kim"])

    async def have_enough():
        await asyncio.sleep(random.uniform(0, 0.012))
        newsletter.cancel("ida")

    await asyncio.gather(newsletter.publish("May"), have_enough())
    assert newsletter.readers["kim"] == ["May"]
