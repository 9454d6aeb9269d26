"""Publishing goes over a snapshot, so that subscribers may leave while a message is delivered."""

import asyncio


class Topic:
    def __init__(self):
        self._subscribers = {}

    def join(self, name, inbox):
        self._subscribers[name] = inbox

    def leave(self, name):
        self._subscribers.pop(name, None)

    async def publish(self, message):
        for inbox in list(self._subscribers.values()):
            await asyncio.sleep(0)
            inbox.append(message)


async def scenario():
    topic, inboxes = Topic(), {"a": [], "b": []}
    for name, inbox in inboxes.items():
        topic.join(name, inbox)

    async def leave():
        await asyncio.sleep(0)
        topic.leave("b")

    await asyncio.gather(topic.publish(1), leave())
    await topic.publish(2)
    assert inboxes["a"] == [1, 2]
    assert inboxes["b"] in ([1], [])
