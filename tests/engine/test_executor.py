"""Executions are independent of one another: fresh modules once state leaks, and no influence of the collector."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest

from chaossloth.evidence import Outcome
from chaossloth.explore.execute import Executor
from chaossloth.explore.strategy import Deviate, RandomWalk, StockOrder
from tests.engine.support import FromFunction, executor_of, executor_of_source

COUNTS = """
import asyncio

SEEN = {"runs": 0}

async def main():
    await asyncio.sleep(0)
    SEEN["runs"] += 1
    return SEEN["runs"]
"""

READS = """
import asyncio

LIMITS = {"calls": 2}

async def main():
    own = {"runs": 0}
    await asyncio.sleep(0)
    own["runs"] += LIMITS["calls"]
    return own["runs"]
"""


def test_modules_are_fresh_for_each_execution_once_one_wrote_to_them() -> None:
    executor, made = executor_of_source(COUNTS)
    results = []
    for _ in range(4):
        assert executor.execute(StockOrder(), executor.model("stock"), 0).outcome.ok
        results.append(executor.last_result)
    assert results == [1, 1, 1, 1]
    assert len(made) == 4  # loaded once, refreshed before each later execution
    assert [name.rpartition(".")[2] for name in executor.leaks] == ["SEEN['runs']"]


def test_modules_that_are_only_read_are_kept() -> None:
    executor, made = executor_of_source(READS)
    for _ in range(4):
        assert executor.execute(StockOrder(), executor.model("stock"), 0).outcome.ok
        assert executor.last_result == 2
    assert len(made) == 1
    assert executor.leaks == set()


def test_a_leak_is_remembered_by_executions_that_record_nothing() -> None:
    executor, made = executor_of_source(COUNTS)
    executor.execute(StockOrder(), executor.model("stock"), 0)
    for _ in range(2):
        executor.execute(StockOrder(), executor.model("stock"), 0, record=False)
        assert executor.last_result == 1
    assert len(made) == 3


@pytest.fixture
def eager_collector() -> Iterator[None]:
    """A full collection every few allocations; what is old already is put aside, else it would put them off."""
    threshold, enabled = gc.get_threshold(), gc.isenabled()
    gc.enable()
    gc.freeze()
    gc.collect()
    gc.set_threshold(1, 1, 1)
    yield
    gc.set_threshold(*threshold)
    gc.unfreeze()
    (gc.enable if enabled else gc.disable)()


async def drops_a_task() -> list[str]:
    """A pending task that only a cycle refers to: when it dies depends on the collector alone."""
    log: list[str] = []

    async def waits() -> None:
        own: list[Any] = []
        own.append(own)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            log.append("ended")

    async def works(name: str) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
            log.append(name)

    asyncio.create_task(waits())
    await asyncio.gather(works("a"), works("b"))
    return list(log)


def paths() -> list[Any]:
    executor = executor_of(drops_a_task)
    made: list[Any] = []
    for seed in range(6):
        execution = executor.execute(RandomWalk(seed, 0.5), executor.model("reorder"), 0)
        made.append((execution.outcome, execution.run.order, execution.run.options, executor.last_result))
    return made


def test_the_collector_changes_nothing(eager_collector: None) -> None:
    eager = paths()
    assert gc.isenabled()
    gc.disable()
    assert paths() == eager
    assert not gc.isenabled()
    assert all("ended" not in result for *_, result in eager)


def test_the_collector_is_as_it_was_after_a_run_that_raises() -> None:
    class Faulty(FromFunction):
        def judge(self, result: Any, error: BaseException | None) -> Outcome:
            raise LookupError("in the oracle")

    async def main() -> None:
        pass

    program = Faulty(main)
    executor = Executor(program, lambda: program, lambda file: False)
    assert gc.isenabled()
    with pytest.raises(LookupError, match="in the oracle"):
        executor.execute(StockOrder(), executor.model("stock"), 0)
    assert gc.isenabled()


def test_garbage_of_one_execution_is_not_blamed_on_the_next(eager_collector: None) -> None:
    failing = [True]

    async def dies() -> None:
        own: list[Any] = [asyncio.current_task()]
        own.append(own)
        raise LookupError("lost")

    async def main() -> None:
        if failing[0]:
            for _ in range(3):
                asyncio.create_task(dies())
        await asyncio.sleep(0.001)

    executor = executor_of(main)
    for _ in range(20):
        failing[0] = not failing[0]
        execution = executor.execute(Deviate({}), executor.model("stock"), 0)
        assert execution.failed == failing[0], execution.outcome
