"""The least lateness against what can be worked out by hand, and orders that no clock can show."""

from __future__ import annotations

from typing import Any

from chaossloth.explore.lateness import least_lateness
from chaossloth.loop.run import Boundary, Model, PlannedTimer, Run
from tests.engine.support import executor_of_source
from tests.reduction.brute import paths

_THREE = """
import asyncio

async def main():
    order = []
    async def a():
        await asyncio.sleep(0.010)
        order.append("a")
    async def b():
        await asyncio.sleep(0.010)
        await asyncio.sleep(0)
        order.append("b")
        await asyncio.sleep(0.002)
        order.append("B")
    async def c():
        await asyncio.sleep(0.0125)
        order.append("c")
    await asyncio.gather(a(), b(), c())
    return "".join(order)
"""


def test_each_order_has_the_lateness_that_its_sleeps_leave_missing() -> None:
    executor, _ = executor_of_source(_THREE)
    least: dict[Any, float] = {}
    for path in paths(10_000):
        execution = executor.execute(path, executor.model("stock"), 0, detail=True)
        late = least_lateness(execution.run)
        if late is not None:
            order = executor.last_result
            least[order] = min(late, least.get(order, late))
    # c after B needs nothing; c first needs b to be 12.5 - 12 ms late; c even before b needs 2.5 ms.
    assert least == {"abBc": 0.0, "abcB": 0.0005, "acbB": 0.0025}


def _run(*boundaries: Boundary) -> Run:
    run = Run(Model(), None)  # type: ignore[arg-type]  # nothing chooses
    run.boundaries.extend(boundaries)
    return run


def test_a_longer_timer_of_one_step_never_comes_first() -> None:
    short, long = PlannedTimer(0, 0.001), PlannedTimer(0, 0.002)
    assert least_lateness(_run(Boundary(1, False, (long,), (short,)))) is None
    assert least_lateness(_run(Boundary(1, False, (long, short), ()))) is None
    assert least_lateness(_run(Boundary(1, False, (short,), (long,)), Boundary(2, False, (long,), ()))) == 0.0


def test_a_timer_that_comes_while_the_loop_is_busy_costs_its_length() -> None:
    timer = PlannedTimer(0, 0.004)
    assert least_lateness(_run(Boundary(1, True, (), (timer,)), Boundary(2, True, (timer,), ()))) == 0.004


def test_without_timers_nothing_is_late() -> None:
    assert least_lateness(_run()) == 0.0
