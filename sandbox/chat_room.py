"""A chat room that breaks off a broadcast when somebody leaves in the middle of it.

Wrong:  `broadcast` iterates over the dictionary of members and awaits inside the loop; `leave` removes a member during
        that await, and the next iteration raises RuntimeError: dictionary changed size during iteration.
Run:    chaossloth sandbox/chat_room.py::scenario
Rate:   210 of 300 runs fail (70 %) on the stock loop: python tests/sandbox/natural.py chat_room 300
Prints: repaired: iteration invalidated of ChatRoom.members · label stock · SNAPSHOT_ITERATION in ChatRoom.broadcast
"""

import asyncio
import random


class Member:
    def __init__(self) -> None:
        self.inbox: list[str] = []

    async def send(self, text: str) -> None:
        await asyncio.sleep(random.uniform(0.0005, 0.0015))
        self.inbox.append(text)


class ChatRoom:
    def __init__(self) -> None:
        self.members: dict[str, Member] = {}

    def join(self, name: str) -> None:
        self.members[name] = Member()

    async def leave(self, name: str) -> None:
        self.members.pop(name, None)

    async def broadcast(self, text: str) -> None:
        for member in self.members.values():
            await member.send(text)


async def scenario() -> None:
    room = ChatRoom()
    for name in ("ann", "bob", "cleo"):
        room.join(name)

    async def impatient(name: str) -> None:
        await asyncio.sleep(random.uniform(0.0, 0.006))
        await room.leave(name)

    await asyncio.gather(room.broadcast("hello"), impatient("bob"))
    assert room.members["ann"].inbox == ["hello"]
    assert room.members["cleo"].inbox == ["hello"]
