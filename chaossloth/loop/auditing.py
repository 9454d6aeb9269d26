"""The audit of liveness in runs on the stock loop: the watch on primitives for the time of one run, and its findings.

The watch records nothing there, it only follows who holds and who waits, so that a natural run that gets stuck is told
with holders and lines like a controlled one, and a step that blocks the loop's thread for ever ends as what it is.
Tasks are named as on the controlled loop: by their given name, else by their coroutine and their place among their
creator's tasks.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from chaossloth.evidence import DeadlockReport, LockOrderEdge
from chaossloth.liveness import describe_blocked_loop, describe_deadlock
from chaossloth.loop.quiet import NothingRunnable
from chaossloth.subject.holdings import Wait
from chaossloth.subject.primitives import PrimitiveWatch, watch

__all__ = ["StockAudit"]

Task = asyncio.Task[Any]
_GENERATED = re.compile(r"Task-\d+")


class StockAudit:
    """What the watch saw of one run.

    stopped: called before a wait that can never end is given up. steps: how many steps the run has made.
    deadlock: of a run that got stuck. lock_order, locks: edges of the lock-order graph, number of locks taken.
    """

    def __init__(self, stopped: Callable[[NothingRunnable], None], steps: Callable[[], int]) -> None:
        self._stopped = stopped
        self._steps = steps
        self._blocking: Wait | None = None
        self.deadlock: DeadlockReport | None = None
        self.lock_order: tuple[LockOrderEdge, ...] = ()
        self.locks = 0

    @contextmanager
    def watching(self, is_subject: Callable[[str], bool]) -> Iterator[None]:
        """The watch, installed and set up for this run; afterwards everything is as it was."""
        before = (watch.active, watch.recorder, watch.is_subject, watch.task_name)
        watch.recorder, watch.task_name = None, label
        if watch.is_subject is not is_subject:
            watch.is_subject = is_subject
        watch.install()
        watch.start_run()
        watch.on_block, watch.step = self._blocked, self._steps
        try:
            yield
        finally:
            self.lock_order, self.locks = watch.lock_order(), watch.locks_seen
            watch.on_block = None
            _restore(watch, *before)

    def describe(self, pending: list[Task]) -> None:
        """The run is stuck: `pending` are its unfinished tasks in the order of creation."""
        names = [name(task) for task in pending]
        shown = {
            id(task): label(task) if names.count(own) > 1 else own for task, own in zip(pending, names, strict=True)
        }

        def name_of(task: Task) -> str:
            return shown.get(id(task)) or label(task)

        if self._blocking is not None:
            self.deadlock = describe_blocked_loop(self._blocking, name_of)
        else:
            self.deadlock = describe_deadlock(pending, name_of)

    def _blocked(self, wait: Wait) -> None:
        stop = NothingRunnable(f"a step waits in {wait.operation}() and nothing can end the wait")
        self._blocking = wait
        try:
            self._stopped(stop)
        finally:
            self._blocking = None
        raise stop


def _restore(watch: PrimitiveWatch, active: bool, recorder: Any, is_subject: Any, task_name: Any) -> None:
    if not active:
        watch.uninstall()
    watch.recorder, watch.task_name = recorder, task_name
    if watch.is_subject is not is_subject:
        watch.is_subject = is_subject


def name(task: Task) -> str:
    """The name that the subject gave the task, else its coroutine's."""
    given = task.get_name()
    if not _GENERATED.fullmatch(given):
        return given
    qualname = str(getattr(task.get_coro(), "__qualname__", given))
    return "main" if qualname.startswith("ConcurrentCalls.") else qualname.rpartition("<locals>.")[2]


def label(task: Task) -> str:
    """The same made unique by the task's identity, equal in every run."""
    own, actor = name(task), getattr(task.get_coro(), "actor", None)
    if own == task.get_name() or actor is None or "." not in actor.identity:
        return own
    return f"{own} #{actor.identity.rpartition('.')[2]}"
