"""A pending task that nobody holds may be collected: that outcome is explored, named, and replayed; a task that its
owner, a timer or a queue holds is never accused.
"""

from __future__ import annotations

import gc
from dataclasses import replace
from time import perf_counter

import pytest

from chaossloth.diagnose.pair import diagnose
from chaossloth.explore.execute import Executor
from chaossloth.explore.minimise import minimise
from chaossloth.explore.schedule import parse_token
from chaossloth.explore.search import Limits, Search, SearchResult
from chaossloth.force import StockPlan, force_outcomes
from chaossloth.loop.run import Handle, Run
from chaossloth.session import stock_plan
from tests.engine.support import executor_of_source

LOST = """
import asyncio

async def work(done):
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        done.append("closed")

async def main():
    done = []
    {keep}asyncio.create_task(work(done))
    await asyncio.sleep(0)
    await asyncio.sleep(0.01)
    {after}
"""
UNHELD = LOST.format(keep="", after="pass")
HELD = LOST.format(keep="task = ", after="pass")
EFFECT = LOST.format(keep="", after="assert not done, done")  # fails with an assertion if one looks at that only
HEARTBEAT = """
import asyncio

async def beat():
    for _ in range(100):
        await asyncio.sleep(0.01)

async def main():
    asyncio.create_task(beat())
    await asyncio.sleep(0.02)
"""
QUEUE = """
import asyncio

async def consume(queue):
    while True:
        await queue.get()

async def main():
    queue = asyncio.Queue()
    asyncio.create_task(consume(queue))
    await queue.put(1)
    await asyncio.sleep(0)
    await asyncio.sleep(0.01)
    await queue.put(2)
    await asyncio.sleep(0.01)
"""


class Youngest:
    """Runs what was scheduled last, once the first task of all has had its turn."""

    def choose(self, options: list[Handle | None], run: Run) -> int:
        return len(options) - 1 if run.count > 2 else 0


def searched(executor: Executor, label: str) -> SearchResult:
    return Search(executor, label, 0).run(Limits(200, perf_counter() + 30))  # type: ignore[arg-type]


@pytest.mark.parametrize("label", ["stock", "latency", "reorder"])
@pytest.mark.parametrize("source", [UNHELD, EFFECT])
def test_a_task_that_nobody_holds_is_found_and_replays(label: str, source: str) -> None:
    executor, _ = executor_of_source(source)
    result = searched(executor, label)
    assert result.failure is not None
    assert result.executions_to_find == 2
    outcome = result.failure.outcome
    assert (outcome.failure, outcome.message) == (
        "leak",
        "task work was garbage-collected while it was pending: nobody holds it",
    )
    assert outcome.where is not None
    assert outcome.where.line == source.splitlines().index("    asyncio.create_task(work(done))") + 1
    schedule = result.failure.schedule
    assert "_" in schedule.token
    assert parse_token(schedule.token) == schedule
    again = [executor.replay(parse_token(schedule.token)) for _ in range(20)]
    assert all(each.failed and each.schedule.token == schedule.token for each in again)


@pytest.mark.parametrize("label", ["stock", "latency", "reorder"])
@pytest.mark.parametrize("source", [HELD, HEARTBEAT, QUEUE], ids=["held", "heartbeat", "queue"])
def test_a_task_that_something_holds_is_not_collected(label: str, source: str) -> None:
    executor, _ = executor_of_source(source)
    result = searched(executor, label)
    assert result.failure is None
    assert result.strategies["collection before every step"] > 0


def test_the_cause_is_the_collection_and_not_a_pair() -> None:
    executor, _ = executor_of_source(UNHELD)
    failure = searched(executor, "stock").failure
    assert failure is not None
    with executor.like(failure.schedule.cancels, failure.schedule.collect):
        least, _ = minimise(executor, failure, perf_counter() + 5)
    assert least.schedule.collect
    found = diagnose(executor, least, perf_counter() + 5)
    assert (found.kind, found.race) == ("collected", None)
    assert found.verified == "with a collection before each step it fails 20/20; without, 20/20 pass"


def test_the_stock_loop_shows_it_too() -> None:
    executor, _ = executor_of_source(UNHELD)
    failure = searched(executor, "stock").failure
    assert failure is not None
    plan = stock_plan(failure)
    assert plan is not None and plan.collect
    assert StockPlan.from_json(plan.to_json()) == plan
    outcomes, how = force_outcomes(executor.program, plan, 20, is_subject=executor.is_subject)  # type: ignore[arg-type]
    assert [outcome.failure for outcome in outcomes] == ["leak"] * 20
    assert "garbage collected before each poll" in how
    kept = replace(plan, collect=False)
    outcomes, _ = force_outcomes(executor.program, kept, 20, is_subject=executor.is_subject)  # type: ignore[arg-type]
    assert all(outcome.ok for outcome in outcomes)


def test_a_limit_that_leaves_the_second_outcome_out_is_no_proof() -> None:
    executor, _ = executor_of_source(UNHELD)
    result = Search(executor, "stock", 0).run(Limits(1, perf_counter() + 30))
    assert (result.executions, result.failure, result.exhausted) == (1, None, False)


MANY = """
import asyncio

async def lost():
    await asyncio.get_running_loop().create_future()

async def other():
    await asyncio.sleep(0)

async def main():
    asyncio.create_task(lost())
    await asyncio.sleep(0)
    others = [asyncio.create_task(other()) for _ in range(12)]
    await asyncio.gather(*others)
    await asyncio.sleep(0.01)
"""


def test_an_order_beyond_the_fairness_bound_is_no_finding_with_collections_either() -> None:
    executor, _ = executor_of_source(MANY)
    search, model = Search(executor, "reorder", 0), executor.model("reorder")
    unfair = executor.execute(Youngest(), model, 0)
    assert not unfair.failed and unfair.run.bypass > model.bypass_bound
    search._most = 10
    search._take(unfair)
    found = search.result.failure
    assert found is not None and found.schedule.collect
    assert found.run.bypass <= model.bypass_bound  # an equivalent order that is fair fails too


def test_the_collector_is_left_as_it_was() -> None:
    executor, _ = executor_of_source(UNHELD)
    before = gc.get_freeze_count(), gc.isenabled()
    searched(executor, "stock")
    assert (gc.get_freeze_count(), gc.isenabled()) == before
