"""Nobody begins the second round before everybody has finished the first."""

import asyncio


async def scenario():
    barrier = asyncio.Barrier(3)
    first, second = [], []

    async def player(name):
        await asyncio.sleep(0.001 * len(name))
        first.append(name)
        await barrier.wait()
        assert len(first) == 3
        second.append(name)

    await asyncio.gather(player("a"), player("bb"), player("ccc"))
    assert sorted(second) == ["a", "bb", "ccc"]
