"""Explores real subjects on real loopback, and says what came of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from time import perf_counter
from typing import Any

from chaossloth.evidence import Label
from chaossloth.explore.execute import Execution, Executor
from chaossloth.explore.search import Limits, Search, SearchResult
from tests.engine.support import executor_of

LABELS: tuple[Label, ...] = ("stock", "latency", "reorder")
SECONDS = 20.0


def search(executor: Executor, label: Label, executions: int) -> SearchResult:
    return Search(executor, label, 0).run(Limits(executions, perf_counter() + SECONDS))


def passes(function: Callable[[], Any], *marks: str, executions: int = 25, sync: bool = False) -> Executor:
    """Every execution of every label passes; none is called exhaustive; the run is marked with `marks`."""
    executor = executor_of(function, sync=sync)
    for label in LABELS:
        result = search(executor, label, executions)
        failure = result.failure
        if (
            failure is not None
        ):  # as in the command: what its own schedule does not show again (a loaded machine) is none
            again = executor.replay(failure.schedule)
            assert not again.failed, (label, failure.outcome)
        assert not result.exhausted
        assert result.truncated < result.executions
    assert executor.real_io >= set(marks), executor.real_io
    return executor


def fails(function: Callable[[], Any], label: Label, exception: str, executions: int = 60) -> Execution:
    """A failing order is found, and each of 20 replays takes its path and fails."""
    executor = executor_of(function)
    failure = search(executor, label, executions).failure
    assert failure is not None
    assert failure.outcome.exception == exception, failure.outcome
    again = [executor.replay(failure.schedule, strict=True) for _ in range(20)]
    assert [each.schedule.check for each in again] == [failure.schedule.check] * 20
    assert all(each.failed for each in again)
    return failure


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
