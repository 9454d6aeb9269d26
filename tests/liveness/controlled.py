"""Programs under the controlled loop with recording and the watch, as the worker has them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

from chaossloth.evidence import DeadlockReport
from chaossloth.explore.execute import Execution, Executor
from chaossloth.explore.strategy import StockOrder
from chaossloth.subject.primitives import watch
from chaossloth.subject.record import recorder
from tests.engine.support import executor_of_source


@contextmanager
def executor(source: str) -> Iterator[Executor]:
    """An executor of `main` in this module, whose first line is line 1."""
    made, _ = executor_of_source(textwrap.dedent(source).lstrip("\n"))
    watch.recorder, watch.is_subject = recorder, made.is_subject
    watch.install()
    try:
        yield made
    finally:
        watch.uninstall()
        watch.recorder = None


def once(source: str, label: str = "stock") -> Execution:
    """One execution in stock order."""
    with executor(source) as made:
        return made.execute(StockOrder(), made.model(label), 0)


def deadlock(source: str) -> DeadlockReport:
    execution = once(source)
    assert execution.outcome.failure == "deadlock", execution.outcome
    report = execution.run.deadlock
    assert report is not None
    return report


def lines(report: DeadlockReport) -> list[tuple[str, int | None, str | None, int | None]]:
    """(task, line of its wait, holder, line of the acquisition) per edge."""
    return [
        (e.task, e.at and e.at.line, e.holder, e.held_at and e.held_at.line)  # type: ignore[misc]
        for e in report.cycle
    ]
