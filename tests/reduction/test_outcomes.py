"""The reduced search reaches exactly the outcomes that brute force reaches, on random small programs, under each label.

Brute force executes every choice sequence of the same loop, without recording; a program for which that takes more than
`_BRUTE` executions is replaced by the next one. 300 programs per label by default; a longer run:

    CHAOSSLOTH_PROGRAMS=3000 python -m pytest tests/reduction/test_outcomes.py
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from chaossloth.explore.dpor import Reduction
from chaossloth.explore.execute import Executor
from chaossloth.explore.fifo import FifoReduction
from chaossloth.subject.primitives import watch
from tests.engine.support import executor_of_source
from tests.reduction.brute import brute_force, outcome
from tests.reduction.generate import Flavour, program

_PROGRAMS = int(os.environ.get("CHAOSSLOTH_PROGRAMS", "300"))
_BRUTE = 1_200
_UNBOUNDED = 10**9

# Each label is asked with those flavours that give it something to choose.
_FLAVOURS: dict[str, list[Flavour]] = {
    "stock": [
        Flavour(timers=True, dense=True, awaits=(5, 6, 7)),
        Flavour(timers=True, dense=True, cancels=True, awaits=(5, 6)),
        Flavour(timers=True),
    ],
    "latency": [
        Flavour(timers=True, calls=True),
        Flavour(dense=True),
        Flavour(timers=True, cancels=True),
    ],
    "reorder": [
        Flavour(),
        Flavour(dense=True),
        Flavour(timers=True),
        Flavour(cancels=True, awaits=(4, 5)),
        Flavour(cancels=True, timers=True),
    ],
}


@pytest.fixture(autouse=True)
def watched() -> Iterator[None]:
    watch.install()
    yield
    watch.uninstall()


def by_reduction(executor: Executor, label: str) -> tuple[set[Any], int]:
    """All outcomes that the reduced search reaches, and its executions."""
    reduction: Any = Reduction(_UNBOUNDED) if label == "reorder" else FifoReduction()
    found, executions = set(), 0
    while not reduction.finished:
        path = reduction.next()
        execution = executor.execute(path, executor.model(label), 0)
        assert execution.run.ended is None or execution.run.ended.kind != "diverged", execution.run.ended
        if not execution.pruned:
            found.add(outcome(executor, execution))
        reduction.learn(path, execution.run)
        executions += 1
    assert reduction.complete
    return found, executions


def by_brute_force(executor: Executor, label: str) -> set[Any] | None:
    """The same by brute force; None where that is too much."""
    found, executions = set(), 0
    for execution in brute_force(executor, label, _BRUTE):
        found.add(outcome(executor, execution))
        executions += 1
    return found if executions < _BRUTE else None


@pytest.mark.parametrize(
    ("label", "flavour"), [pytest.param(label, n) for label, kinds in _FLAVOURS.items() for n in range(len(kinds))]
)
def test_the_same_outcomes_as_brute_force(label: str, flavour: int) -> None:
    kinds = _FLAVOURS[label]
    wanted = -(-_PROGRAMS // len(kinds))
    compared, reduced, seed = 0, 0, 100_000 * (flavour + 1)
    while compared < wanted:
        seed += 1
        executor, _ = executor_of_source(program(seed, kinds[flavour]))
        expected = by_brute_force(executor, label)
        if expected is None:
            continue
        found, executions = by_reduction(executor, label)
        assert found == expected, f"{label}, flavour {flavour}, program {seed}: missing {expected - found}"
        compared += 1
        reduced += executions
    print(f"{label}, flavour {flavour}: {compared} programs, {reduced} reduced executions")


_SHARED = """
import asyncio

class Shared:
    def __init__(self):
        self.x = 0

async def stop(s, log, victim):
    s.x = s.x + 3
    victim[0].cancel()

{victim}

async def main():
    s, log, victim = Shared(), [], []
    stopping = asyncio.create_task(stop(s, log, victim))
    victim.append(asyncio.create_task(work(s, log)))
    ended = await asyncio.gather(stopping, *victim, return_exceptions=True)
    return repr((s.x, log, [repr(each) for each in ended]))
"""
_SLEEPER = """
async def work(s, log):
    log.append(s.x)
    await asyncio.sleep(0.001)
    log.append(s.x)
"""
_PARENT = """
async def child(s, log):
    log.append(s.x)

async def nothing():
    pass

async def work(s, log):
    async with asyncio.TaskGroup() as group:
        group.create_task(child(s, log))
        group.create_task(nothing())
    log.append("all")
"""


@pytest.mark.parametrize("label", ["latency", "reorder"])
@pytest.mark.parametrize("victim", [_SLEEPER, _PARENT], ids=["sleeper", "parent"])
def test_a_cancellation_competes_with_what_would_end_the_wait(victim: str, label: str) -> None:
    """A timer, the last child of a group: once it has come, the victim's wait is over and its next step may come."""
    executor, _ = executor_of_source(_SHARED.replace("{victim}", victim))
    assert by_reduction(executor, label)[0] == by_brute_force(executor, label)


@pytest.mark.parametrize(
    ("label", "flavour", "seed"), [("latency", 2, 300_928), ("reorder", 3, 400_167), ("reorder", 4, 500_065)]
)
def test_programs_of_which_the_reduction_once_missed_an_outcome(label: str, flavour: int, seed: int) -> None:
    executor, _ = executor_of_source(program(seed, _FLAVOURS[label][flavour]))
    assert by_reduction(executor, label)[0] == by_brute_force(executor, label)
