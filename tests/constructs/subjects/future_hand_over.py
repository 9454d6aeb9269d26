"""Requests and replies are matched by a future per request, which is stored before the request is sent."""

import asyncio


class Link:
    def __init__(self):
        self._waiting = {}
        self._sent = asyncio.Queue()
        self._number = 0

    async def ask(self, question):
        self._number += 1
        number, reply = self._number, asyncio.get_running_loop().create_future()
        self._waiting[number] = reply
        await self._sent.put((number, question))
        return await reply

    async def serve(self, count):
        for _ in range(count):
            number, question = await self._sent.get()
            await asyncio.sleep(0)
            self._waiting.pop(number).set_result(question[::-1])


async def scenario():
    link = Link()
    first, second, _ = await asyncio.gather(link.ask("ab"), link.ask("cd"), link.serve(2))
    assert (first, second) == ("ba", "dc")
