"""What asyncio's own callbacks on futures do to the order of steps: gather, TaskGroup, wait, wait_for, shield.

They are code of the standard library that no hook sees, and they decide who goes on. Each is told apart by its
qualified name and recorded as an access of the place where its parent waits, a location named after the parent's task
or the first child, so that it is the same in every execution:

    gather, TaskGroup   children that end well are unordered among themselves, all of them before the parent's wake-up
                        (`members` become required steps of what the callback schedules). The first that fails decides
                        what the parent sees: a write.
    anything else       (wait, wait_for, shield, chained futures) whoever comes first decides: a write.

In FIFO models the child that ends last also decides in which round the parent goes on: where a callback schedules
something, its access is a write.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from chaossloth.subject.record import recorder
from chaossloth.subject.recorder import COMMUTES, NO_SITE, READ, SYNC, WRITE

__all__ = ["Joins"]

_GATHER = "gather.<locals>._done_callback"
_TASK_GROUP = "TaskGroup._on_task_done"


class Joins:
    """State of one execution. key_of: a task's identity, None for one of another loop."""

    def __init__(self, key_of: Callable[[asyncio.Task[Any]], str | None]) -> None:
        self._key_of = key_of
        self._members: dict[int, list[int]] = {}
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def note(self, callback: Any, args: tuple[Any, ...], steps: tuple[int, ...], fifo: bool) -> tuple[list[int], int]:
        """Record the call of `callback` in the last of `steps`; the others are those that it joins already.

        Returns the steps of the children so far (to become required steps of what it schedules) and the location's
        number, 0 where there is none.
        """
        name = getattr(callback, "__qualname__", "")
        child = args[0] if args else None
        if name == _GATHER:
            return self._gather(callback, child, steps, fifo)
        if name == _TASK_GROUP:
            return self._task_group(callback.__self__, child, steps)
        for future in _futures_of(callback, args[1:]):
            number = self._waiter(future)
            if number:
                recorder.put((number, "children", WRITE | SYNC, NO_SITE))
            if future is not child and (known := recorder.names.known(future)):
                recorder.put((known, "done", READ | SYNC, NO_SITE))
        return list(steps[:-1]), 0

    def scheduled(self, number: int) -> None:
        """FIFO: the callback of that location has scheduled the parent."""
        recorder.put((number, "children", WRITE | SYNC, NO_SITE))

    def _gather(self, callback: Any, child: Any, steps: tuple[int, ...], fifo: bool) -> tuple[list[int], int]:
        children = _cell(callback, "children")
        first = children[0] if children else child
        number = self._number(("gather", self._name(first)), first)
        failed = (child._exception is not None or child.cancelled()) and not _cell(callback, "return_exceptions")
        if failed or fifo:
            recorder.put((number, "children", (WRITE if failed else COMMUTES) | SYNC, NO_SITE))
        members = self._member(number, steps)
        return ([], number) if failed else (members, number)  # a failure wakes the parent whatever the others do

    def _task_group(self, group: Any, child: Any, steps: tuple[int, ...]) -> tuple[list[int], int]:
        number = self._number(("task group", self._name(group._parent_task)), group)
        recorder.put((number, "children", (WRITE if _failed(child) else COMMUTES) | SYNC, NO_SITE))
        parent = recorder.names.number(("waiter", self._name(group._parent_task)))
        recorder.put((parent, "children", COMMUTES | SYNC, NO_SITE))  # the last one competes with a cancellation
        return self._member(number, steps), number

    def _member(self, number: int, steps: tuple[int, ...]) -> list[int]:
        members = self._members.setdefault(number, [])
        for step in steps:
            if step not in members:
                members.append(step)
        return members

    def _waiter(self, future: Any) -> int:
        """The location of whoever awaits `future`; stays known after the future is done and has no callbacks left."""
        number = self._numbers.get(future)
        if number is not None:
            return number
        for callback, _ in future._callbacks or ():
            task = getattr(callback, "__self__", None)
            if isinstance(task, asyncio.Task):
                return self._number(("waiter", self._name(task)), future)
        return 0

    def _name(self, future: Any) -> str:
        key = self._key_of(future) if isinstance(future, asyncio.Task) else None
        return key if key is not None else f"#{recorder.names.known(future)}"

    def _number(self, identity: tuple[str, str], whole: Any) -> int:
        number = self._numbers[whole] = recorder.names.number(identity)
        return number


def _failed(future: Any) -> bool:
    return bool(future.cancelled() or future._exception is not None)


def _cell(function: Any, name: str) -> Any:
    """The closure variable `name` of a Python function; None where there is none, or nothing in it yet."""
    names = function.__code__.co_freevars
    try:
        return function.__closure__[names.index(name)].cell_contents
    except ValueError:
        return None


def _cells(function: Any) -> dict[str, Any]:
    """The closure of `function` by variable; empty cells are left out."""
    found: dict[str, Any] = {}
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    for name, cell in zip(code.co_freevars if code is not None else (), cells or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def _futures_of(callback: Any, more: tuple[Any, ...]) -> Iterator[Any]:
    """Futures that an unknown callback holds: in its closure, its arguments (`functools.partial`), its owner."""
    held = [*_cells(callback).values(), *getattr(callback, "args", ()), getattr(callback, "__self__", None), *more]
    for value in held:
        if isinstance(value, asyncio.Future):
            yield value
