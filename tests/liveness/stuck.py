"""Runs small programs on the stock loop until nothing can run, with the watch installed.

The selector raises when the loop would block for ever, which is what a deadlock is on a stock loop without real I/O.
"""

from __future__ import annotations

import asyncio
import selectors
import textwrap
from dataclasses import dataclass, field
from typing import Any

from chaossloth.evidence import DeadlockReport, LockOrderEdge
from chaossloth.liveness import describe_deadlock
from chaossloth.subject.primitives import watch

FILE = "/subject/buggy.py"


class Stuck(Exception):
    """Nothing is ready and no timer is pending."""


class StuckSelector(selectors.DefaultSelector):
    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Stuck
        return super().select(timeout)


@dataclass
class Recorder:
    """The accesses as (display name or kind, key, mode), sync and data apart."""

    names: list[tuple[Any, str]] = field(default_factory=list)
    sync: list[tuple[str, str, str]] = field(default_factory=list)
    data: list[tuple[str, str, str]] = field(default_factory=list)

    def name_of(self, obj: Any) -> str | None:
        return next((name for known, name in self.names if known is obj), None)

    def add_sync(self, obj: Any, key: str, mode: str) -> None:
        self.sync.append((self.name_of(obj) or type(obj).__name__, key, mode))

    def add(self, obj: Any, key: str, mode: str) -> None:
        self.data.append((self.name_of(obj) or type(obj).__name__, key, mode))

    def add_waiter(self, task: Any) -> None:
        self.sync.append(("task", "waiter", "write"))

    def named(self, obj: Any, name: str) -> Any:
        self.names.append((obj, name))
        return obj


@dataclass
class Run:
    result: Any = None
    deadlock: DeadlockReport | None = None
    edges: tuple[LockOrderEdge, ...] = ()
    recorder: Recorder = field(default_factory=Recorder)
    namespace: dict[str, Any] = field(default_factory=dict)

    @property
    def report(self) -> DeadlockReport:
        assert self.deadlock is not None, "the program was expected to get stuck"
        return self.deadlock


def program(source: str, **names: Any) -> dict[str, Any]:
    """The namespace of a module with this source, whose file is `FILE` and whose first line is line 1."""
    namespace = {"__name__": "buggy", "asyncio": asyncio, **names}
    exec(compile(textwrap.dedent(source).lstrip("\n"), FILE, "exec"), namespace)
    return namespace


def run(source: str) -> Run:
    """Run `main()` of the source as task "main"; `named(obj, name)` is a builtin of it that tells display names."""
    outcome = Run()
    watch.install()
    watch.recorder = outcome.recorder
    watch.is_subject = lambda file: file == FILE
    watch.start_run()
    loop = asyncio.SelectorEventLoop(StuckSelector())
    try:
        outcome.namespace = program(source, named=outcome.recorder.named)
        outcome.result = loop.run_until_complete(loop.create_task(outcome.namespace["main"](), name="main"))
    except Stuck:
        tasks = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
        outcome.deadlock = describe_deadlock(tasks, lambda task: task.get_name())
    finally:
        outcome.edges = watch.lock_order()
        _end(loop)
        watch.uninstall()
        watch.recorder = None
    return outcome


def _end(loop: asyncio.AbstractEventLoop) -> None:
    pending = asyncio.all_tasks(loop)
    for task in pending:
        task.cancel()
    if pending:
        loop.run_until_complete(asyncio.wait(pending, timeout=1))
    loop.close()
