"""The critical pair, and three ways of having none: no order passes, the draws decide, one reversal is not enough."""

from __future__ import annotations

from time import perf_counter

from chaossloth.causality import critical_accesses
from chaossloth.diagnose.pair import RaceDiagnosis, diagnose
from tests.engine.support import executor_of_source, failing

LOST_UPDATE = """
import asyncio

class Counter:
    def __init__(self):
        self.value = 0

    async def add(self):
        seen = self.value
        await asyncio.sleep(0)
        self.value = seen + 1

async def main():
    counter = Counter()
    await asyncio.gather(counter.add(), counter.add())
    assert counter.value == 2, counter.value
"""

ALWAYS = """
import asyncio

async def main():
    shared = {"total": 0}

    async def add():
        seen = shared["total"]
        await asyncio.sleep(0)
        shared["total"] = seen + 1

    await asyncio.gather(add(), add())
    assert shared["total"] == 3
"""

DRAWN = """
import asyncio
import random

async def main():
    shared = []

    async def add():
        await asyncio.sleep(0)
        shared.append(random.random())

    await asyncio.gather(add(), add())
    assert sum(shared) < LIMIT, shared
"""

ONLY_BACKWARDS = """
import asyncio

async def main():
    shared = []

    async def add(name):
        shared.append(name)

    await asyncio.gather(add("a"), add("b"), add("c"))
    assert shared == ["c", "b", "a"], shared
"""


def diagnosed(source: str, label: str = "reorder") -> RaceDiagnosis:
    executor, _ = executor_of_source(source)
    found = failing(executor, label)  # type: ignore[arg-type]
    return diagnose(executor, found, perf_counter() + 60, times=5)


def test_a_lost_update_has_a_pair_whose_order_alone_decides() -> None:
    found = diagnosed(LOST_UPDATE)
    assert found.kind == "race"
    assert found.race is not None
    assert found.verified == "in this order it fails 5/5; with these two steps the other way round, 5/5 pass"
    first, second = critical_accesses(found.race, found.failing.steps)
    assert (first.line, first.access) == (9, "read")
    assert (second.line, second.access) == (11, "write")
    assert first.object.endswith(".value") and second.object.endswith(".value")
    assert first.task != second.task
    assert not found.failing.outcome.ok
    assert found.passing is not None
    assert found.passing.outcome.ok


def test_in_the_passing_run_the_pair_stands_the_other_way_round() -> None:
    found = diagnosed(LOST_UPDATE)
    assert found.race is not None and found.passing is not None

    def place(index: int, steps_of_passing: bool) -> int:
        wanted = found.failing.steps[index]
        if not steps_of_passing:
            return wanted.index
        assert found.passing is not None
        return next(s.index for s in found.passing.steps if (s.proc, s.ordinal) == (wanted.proc, wanted.ordinal))

    first, second = found.race.first_step, found.race.second_step
    assert place(first, False) < place(second, False)
    assert place(first, True) > place(second, True)


def test_what_every_order_has_is_no_race() -> None:
    found = diagnosed(ALWAYS, "stock")
    assert (found.kind, found.race, found.passing, found.verified) == ("always-fails", None, None, None)
    assert found.executions > 5  # other orders were tried


def test_what_the_draws_decide_is_random() -> None:
    executor, _ = executor_of_source(DRAWN.replace("LIMIT", "0.9"))
    found = diagnose(executor, failing(executor, "stock"), perf_counter() + 60, times=5)
    assert (found.kind, found.race, found.verified) == ("random", None, None)
    assert found.passing is not None
    assert found.passing.outcome.ok


def test_draws_that_never_pass_are_not_called_random() -> None:
    assert diagnosed(DRAWN.replace("LIMIT", "0.0"), "stock").kind == "always-fails"


def test_a_race_that_no_single_reversal_repairs_has_a_passing_run_and_no_pair() -> None:
    found = diagnosed(ONLY_BACKWARDS, "stock")
    assert (found.kind, found.race, found.verified) == ("race", None, None)
    assert found.passing is not None
    assert found.passing.outcome.ok


def test_without_time_nothing_is_claimed_to_be_a_pair() -> None:
    executor, _ = executor_of_source(LOST_UPDATE)
    found = diagnose(executor, failing(executor, "reorder"), perf_counter() - 1, times=5)
    assert found.race is None
    assert found.verified is None
