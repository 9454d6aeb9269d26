"""With a cancellation in the plan, the reduced search still reaches exactly the outcomes that brute force reaches.

Where that does not hold (the search itself has to find the round, under the FIFO labels), no search is called
exhausted; see `test_what_is_not_claimed`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from chaossloth.explore.dpor import Reduction
from chaossloth.explore.execute import Executor
from chaossloth.explore.fifo import FifoReduction
from chaossloth.explore.strategy import Deviate
from chaossloth.loop.cancelling import Cancel, Victims
from chaossloth.subject.primitives import watch
from tests.cancellation.programs import PROGRAMS
from tests.cancellation.support import swept
from tests.engine.support import executor_of_source
from tests.reduction.brute import brute_force, outcome
from tests.reduction.generate import Flavour, program

_PROGRAMS = int(os.environ.get("CHAOSSLOTH_PROGRAMS", "60"))
_BRUTE = 600
_UNBOUNDED = 10**9
_CASES = [
    ("stock", "x", Flavour(timers=True, dense=True, awaits=(4, 5))),
    ("latency", "x", Flavour(timers=True)),
    ("reorder", "z", Flavour()),
]


@pytest.fixture(autouse=True)
def watched() -> Iterator[None]:
    watch.install()
    yield
    watch.uninstall()


def by_reduction(executor: Executor, label: str) -> set[Any]:
    reduction: Any = Reduction(_UNBOUNDED) if label == "reorder" else FifoReduction()
    found: set[Any] = set()
    while not reduction.finished:
        path = reduction.next()
        execution = executor.execute(path, executor.model(label), 0)
        reduction.learn(path, execution.run)
        if not execution.pruned and execution.run.cancels is not None and execution.run.cancels.landed:
            found.add(outcome(executor, execution))
    return found


@pytest.mark.parametrize(("label", "kind", "flavour"), _CASES, ids=[f"{label}-{kind}" for label, kind, _ in _CASES])
def test_same_outcomes(label: str, kind: str, flavour: Flavour) -> None:
    compared, seed, different = 0, 0, []
    while compared < _PROGRAMS:
        seed += 1
        source = program(seed, flavour)
        executor, _ = executor_of_source(source)
        executor.victims = Victims()
        executor.execute(Deviate({}), executor.model(label), 0)
        places = list(executor.victims.places)
        if not places:
            continue
        plan = (Cancel(*places[seed % len(places)], kind),)
        with executor.like(plan):
            runs = []
            brute = set()
            for execution in brute_force(executor, label, _BRUTE):
                runs.append(execution)
                if execution.run.cancels is not None and execution.run.cancels.landed:
                    brute.add(outcome(executor, execution))  # where it did not, that is an order of the plan without it
            if len(runs) == _BRUTE:
                continue
            compared += 1
            reduced = by_reduction(executor, label)
        if reduced != brute:
            different.append((seed, plan, brute - reduced, reduced - brute))
    assert not different, different[:3]


def test_what_is_not_claimed() -> None:
    source = PROGRAMS["waiter stranded"].correct
    _, result = swept(source, "second", labels=("stock",))
    stock = result.results["stock"]
    assert result.failure is None
    assert stock.executions < 400  # nothing was left to execute
    assert not stock.exhausted
