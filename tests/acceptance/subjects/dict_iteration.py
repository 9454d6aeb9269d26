"""A live dict is iterated with an await in the loop's body while a reader cancels the subscription."""

import asyncio
import random


class Newsletter:
    def __init__(self, readers):
        self.readers = {reader: [] for reader in readers}

    async def publish(self, issue):
        for letters in self.readers.values():  # critical: read
            await asyncio.sleep(random.uniform(0, 0.002))  # the post is slow
            letters.append(issue)

    def cancel(self, reader):
        self.readers.pop(reader, None)  # critical: write


async def scenario():
    newsletter = Newsletter(["ida", "jon", "kim"])

    async def have_enough():
        await asyncio.sleep(random.uniform(0, 0.012))
        newsletter.cancel("ida")

    await asyncio.gather(newsletter.publish("May"), have_enough())
    assert newsletter.readers["kim"] == ["May"]
