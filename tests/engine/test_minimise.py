"""Minimising: a smaller schedule, the same failure, never another one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from time import perf_counter
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chaossloth.evidence import Outcome
from chaossloth.explore.execute import Execution, Executor
from chaossloth.explore.lateness import least_lateness
from chaossloth.explore.minimise import minimise
from chaossloth.explore.schedule import Schedule
from chaossloth.explore.strategy import Deviate, RandomWalk
from chaossloth.loop.run import Model, Run
from tests.engine.support import executor_of, late_lost_update


def found_by_walk(executor: Executor, fails: Callable[[Execution], bool], seed: int = 0) -> Execution:
    """The first execution of a random walk that `fails` accepts."""
    for number in range(seed, seed + 500):
        execution = executor.execute(RandomWalk(number, 0.3), executor.model("reorder"), 0)
        if fails(execution):
            return execution
    raise AssertionError("no random walk fails")


@pytest.mark.parametrize("seed", range(0, 12_000, 1000))
def test_a_random_failing_schedule_shrinks_until_no_deviation_can_go(seed: int) -> None:
    executor = executor_of(late_lost_update)
    found = found_by_walk(executor, lambda e: e.failed and len(e.schedule.deviations) > 2, seed)
    best, spent = minimise(executor, found, perf_counter() + 60)
    assert 1 <= len(best.schedule.deviations) <= len(found.schedule.deviations)
    assert best.outcome.key() == found.outcome.key()
    assert spent > 0
    again = executor.replay(best.schedule, strict=True)
    assert (again.outcome, again.run.order) == (best.outcome, best.run.order)
    for gone in best.schedule.deviations:
        rest = {at: option for at, option in best.schedule.deviations if at != gone[0]}
        trial = executor.execute(Deviate(rest), executor.model("reorder"), 0)
        assert not trial.failed or len(trial.schedule.deviations) >= len(best.schedule.deviations)


async def two_failures() -> None:
    """Stock order is a KeyError; only b before a is an AssertionError."""
    order: list[str] = []

    async def note(name: str) -> None:
        for _ in range(2):
            await asyncio.sleep(0)
        order.append(name)

    await asyncio.gather(note("a"), note("b"))
    if order == ["a", "b"]:
        raise KeyError("stock order")
    raise AssertionError("b first")


def test_another_failure_is_not_accepted_however_small_its_schedule() -> None:
    executor = executor_of(two_failures)
    assert executor.execute(Deviate({}), executor.model("reorder"), 0).outcome.exception == "KeyError"
    found = found_by_walk(executor, lambda e: e.outcome.failure == "assertion")
    best, _ = minimise(executor, found, perf_counter() + 60)
    assert best.outcome.failure == "assertion"
    assert best.schedule.deviations


def test_draws_that_fail_in_stock_order_need_no_deviation() -> None:
    async def main() -> None:
        finished: list[str] = []

        async def work(name: str) -> None:
            await asyncio.sleep(random.random() / 1000)
            finished.append(name)

        await asyncio.gather(work("a"), work("b"))
        assert finished == ["a", "b"]

    executor = executor_of(main)
    found = found_by_walk(executor, lambda e: e.failed and bool(e.schedule.deviations))
    best, _ = minimise(executor, found, perf_counter() + 60)
    assert best.failed
    assert best.schedule.deviations == ()
    assert best.run.lateness == 0


def test_limits_are_kept_and_what_was_found_is_returned() -> None:
    executor = executor_of(late_lost_update)
    found = found_by_walk(executor, lambda e: e.failed and len(e.schedule.deviations) > 2)
    assert minimise(executor, found, perf_counter() - 1) == (found, 0)
    best, spent = minimise(executor, found, perf_counter() + 60, max_executions=3)
    assert spent == 3
    assert best.failed


def test_a_failure_of_stock_order_is_minimal_already() -> None:
    async def main() -> None:
        raise AssertionError("always")

    executor = executor_of(main)
    found: Any = executor.execute(Deviate({}), executor.model("reorder"), 0)
    assert minimise(executor, found, perf_counter() + 60) == (found, 0)


class Judged:
    """Stands for an executor: an execution fails exactly when its set of deviations is one of `fails`.

    Five choice points of two options; the later the deviations, the more is passed over.
    """

    def __init__(self, fails: frozenset[frozenset[int]]) -> None:
        self._fails = fails

    def model(self, label: str) -> Model:
        return Model(label)

    def execute(self, chooser: Deviate, model: Model, seed: int, detail: bool = False) -> Execution:
        points = tuple(sorted(chooser._deviations.items()))
        ok = frozenset(at for at, _ in points) not in self._fails
        outcome = Outcome(True) if ok else Outcome(False, "assertion")
        run = Run(model, chooser)
        run.options, run.bypass = [2] * 5, sum(at for at, _ in points)
        return Execution(Schedule("reorder", seed, points), outcome, run, 0, frozenset(), ())

    def replay(self, schedule: Schedule, detail: bool = False) -> Execution:
        return self.execute(Deviate(dict(schedule.deviations)), self.model(schedule.label), schedule.seed, detail)


@given(st.frozensets(st.frozensets(st.integers(0, 4)), max_size=24))
@example(frozenset(map(frozenset, ({0, 1, 2, 3, 4}, {0, 1, 2}, {0, 2}, {2}))))
@example(frozenset(map(frozenset, ({0, 1, 2, 3, 4}, {4}, {2}, {0}))))
def test_no_single_deviation_of_the_result_can_go_or_move_for_less(fails: frozenset[frozenset[int]]) -> None:
    everything = frozenset(range(5))
    failing = fails | {everything}
    executor: Any = Judged(failing)
    found = executor.execute(Deviate(dict.fromkeys(everything, 1)), Model("reorder"), 0)
    best, _ = minimise(executor, found, perf_counter() + 60)
    left = frozenset(at for at, _ in best.schedule.deviations)
    assert left in failing
    assert not any(left - {at} in fails for at in left)
    moved = {left - {at} | {to} for at in left for to in everything - left if abs(at - to) <= 2}
    assert not any(other in failing and sum(other) < sum(left) for other in moved)


async def two_timers() -> None:
    """Fails when either timer comes while the loop is busy."""
    fired: list[str] = []
    loop = asyncio.get_running_loop()
    loop.call_later(0.05, fired.append, "long")
    await asyncio.sleep(0)
    loop.call_later(0.001, fired.append, "short")
    for _ in range(2):
        await asyncio.sleep(0)
    assert not fired


def test_of_schedules_with_as_few_deviations_the_least_late_is_kept() -> None:
    executor = executor_of(two_timers)
    model = executor.model("stock")
    trials = [executor.execute(Deviate({at: option}), model, 0, detail=True) for at in range(3) for option in (1, 2)]
    late = {trial.schedule.deviations: least_lateness(trial.run) for trial in trials if trial.failed}
    possible = {schedule: seconds for schedule, seconds in late.items() if seconds is not None}
    assert min(possible.values()) == pytest.approx(0.001)
    assert max(possible.values()) >= 0.05
    latest = max(possible, key=lambda schedule: possible[schedule])
    found = executor.execute(Deviate(dict(latest)), model, 0)
    best, _ = minimise(executor, found, perf_counter() + 60)
    assert len(best.schedule.deviations) == 1
    assert least_lateness(executor.replay(best.schedule, detail=True).run) == pytest.approx(0.001)
