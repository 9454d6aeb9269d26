"""One child of a task group fails; its siblings are cancelled, and the caller handles the group."""

import asyncio


async def load(shard, loaded, cancelled):
    try:
        await asyncio.sleep(60 if shard else 0.001)
        if shard == 0:
            raise ConnectionError("shard 0 is down")
        loaded.append(shard)
    except asyncio.CancelledError:
        cancelled.append(shard)
        raise


async def scenario():
    loaded, cancelled = [], []
    try:
        async with asyncio.TaskGroup() as group:
            for shard in range(3):
                group.create_task(load(shard, loaded, cancelled))
    except* ConnectionError as failed:
        assert len(failed.exceptions) == 1
    else:
        raise AssertionError("the failure was lost")
    assert loaded == []
    assert set(cancelled) <= {1, 2}  # a child that has not begun is cancelled without running
