"""Tasks in the order of their creation, where asyncio goes by the addresses of objects.

`as_completed` makes its tasks in the order of a set of coroutines, and a `TaskGroup` cancels its children in the order
of a set of tasks. Both are orders of hash values, hence of addresses: they differ from one execution to the next
without any choice of the schedule, and a replay takes another path. Between `install()` and `uninstall()` they are what
a reader of the program expects: the order in which the awaitables were given, or the children made. That is one of the
orders that are possible on a stock loop. Sets of tasks in the subject's own code stay as they are.
Source: CPython 3.11 to 3.13, `asyncio/tasks.py` (as_completed) and `asyncio/taskgroups.py` (TaskGroup._abort).
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from asyncio import coroutines, futures, taskgroups, tasks
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["install", "uninstall"]

_as_completed: Any = tasks.as_completed
_task_group_init: Any = taskgroups.TaskGroup.__init__
_installed = False


class _InOrder(dict[Any, None]):
    """The part of a set's interface that TaskGroup uses, in the order of insertion."""

    def add(self, task: Any) -> None:
        self[task] = None

    def discard(self, task: Any) -> None:
        self.pop(task, None)


def _started(fs: Any) -> Any:
    """A task for each awaitable, made in their order; what `as_completed` refuses is left for it to refuse."""
    if not _installed or futures.isfuture(fs) or coroutines.iscoroutine(fs) or not isinstance(fs, Iterable):
        return fs
    return [tasks.ensure_future(each) for each in dict.fromkeys(fs)]


if inspect.isgeneratorfunction(_as_completed):  # before 3.13: nothing begins until the first result is asked for

    @functools.wraps(_as_completed)
    def _as_completed_in_order(fs: Any, *, timeout: float | None = None) -> Iterator[Any]:
        yield from _as_completed(_started(fs), timeout=timeout)

else:

    @functools.wraps(_as_completed)
    def _as_completed_in_order(fs: Any, *, timeout: float | None = None) -> Iterator[Any]:
        made: Iterator[Any] = _as_completed(_started(fs), timeout=timeout)
        return made


@functools.wraps(_task_group_init)
def _init_in_order(self: Any, *args: Any, **kwargs: Any) -> None:
    _task_group_init(self, *args, **kwargs)
    self._tasks = _InOrder()


def install() -> None:
    """Put the ordered versions in place. A module that took `as_completed` by name keeps what it took."""
    global _installed
    _installed = True
    taskgroups.TaskGroup.__init__ = _init_in_order  # type: ignore[method-assign]
    in_order: Any = _as_completed_in_order  # its type differs between the versions of Python
    asyncio.as_completed = tasks.as_completed = in_order


def uninstall() -> None:
    """Put the exact originals back."""
    global _installed
    _installed = False
    taskgroups.TaskGroup.__init__ = _task_group_init  # type: ignore[method-assign]
    asyncio.as_completed = tasks.as_completed = _as_completed
