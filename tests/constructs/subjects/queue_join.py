"""Two consumers work off a bounded queue; the producer waits until every item was marked done."""

import asyncio


async def consume(queue, seen):
    while True:
        item = await queue.get()
        try:
            await asyncio.sleep(0)
            seen.append(item)
        finally:
            queue.task_done()


async def scenario():
    queue, seen = asyncio.Queue(maxsize=2), []
    consumers = [asyncio.create_task(consume(queue, seen)) for _ in range(2)]
    for item in range(4):
        await queue.put(item)
    await queue.join()
    for consumer in consumers:
        consumer.cancel()
    await asyncio.gather(*consumers, return_exceptions=True)
    assert sorted(seen) == [0, 1, 2, 3]
