"""A sweep over a small program, without the command around it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from chaossloth.diagnose.cancelled import classify_cancelled
from chaossloth.diagnose.landing import Landed, diagnose_cancelled
from chaossloth.evidence import LABELS, Label
from chaossloth.explore.cancellation import Sweep, SweepResult
from chaossloth.explore.execute import Execution, Executor
from chaossloth.explore.search import Limits
from chaossloth.loop.cancelling import Victims
from chaossloth.subject.primitives import watch
from chaossloth.subject.record import recorder
from tests.engine.support import executor_of_source


@contextmanager
def watched(executor: Executor) -> Iterator[None]:
    """asyncio's primitives are followed, as in the worker."""
    before = watch.recorder, watch.is_subject
    watch.recorder, watch.is_subject = recorder, executor.is_subject
    watch.install()
    try:
        yield
    finally:
        watch.uninstall()
        watch.recorder, watch.is_subject = before


def swept(
    source: str,
    victims: str | None = None,
    *,
    double: bool = False,
    labels: tuple[Label, ...] = LABELS,
    executions: int = 400,
) -> tuple[Executor, SweepResult]:
    """Sweep label after label until the first failure."""
    executor, _ = executor_of_source(source)
    sweep = Sweep(executor, Victims(victims), 0, double)
    with watched(executor):
        for label in labels:
            sweep.run(label, Limits(executions, perf_counter() + 60))
            if sweep.result.failure is not None:
                break
    return executor, sweep.result


def failure_of(result: SweepResult) -> Execution:
    assert result.failure is not None
    return result.failure


def explained(executor: Executor, failure: Execution) -> tuple[Landed, str, str, tuple[Any, ...]]:
    """Diagnosis, pattern, explanation, critical pair."""
    with watched(executor):
        found = diagnose_cancelled(executor, failure, 3)
    seen = {"handed": found.handed, "innocents": found.innocents, "died": found.died}
    named = classify_cancelled(found.failing, found.passing, found.cancellations, seen, failure.run.deadlock)
    return (found, *named)
