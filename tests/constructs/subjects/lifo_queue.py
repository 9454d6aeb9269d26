"""A stack of work that grows while it is worked off: a tree is walked, every node once."""

import asyncio

TREE = {"root": ["a", "b"], "a": ["c"], "b": [], "c": []}


async def scenario():
    stack, seen = asyncio.LifoQueue(), []

    async def walk():
        while True:
            node = await stack.get()
            try:
                await asyncio.sleep(0)
                seen.append(node)
                for child in TREE[node]:
                    stack.put_nowait(child)
            finally:
                stack.task_done()

    stack.put_nowait("root")
    walkers = [asyncio.create_task(walk()) for _ in range(2)]
    await stack.join()
    for walker in walkers:
        walker.cancel()
    await asyncio.gather(*walkers, return_exceptions=True)
    assert sorted(seen) == ["a", "b", "c", "root"]
