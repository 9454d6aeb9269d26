"""Jobs that were all queued before the worker starts are taken in the order of their priority."""

import asyncio


async def scenario():
    queue, order = asyncio.PriorityQueue(), []

    async def work():
        while not queue.empty():
            priority, name = await queue.get()
            order.append(name)
            await asyncio.sleep(0)
            queue.task_done()

    for job in ((2, "b"), (1, "a"), (3, "c")):
        await queue.put(job)
    await asyncio.gather(work(), queue.join())
    assert order == ["a", "b", "c"]
