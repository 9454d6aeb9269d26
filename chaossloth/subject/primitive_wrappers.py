"""The wrappers around the methods of asyncio's primitives: as few lines as possible, since they run inside the subject.

A wrapper delegates to the original method and tells the watch (`subject.primitives`) what was asked for and what became
of it. It adds no suspension point and leaves names, signatures and exceptions alone.
"""

from __future__ import annotations

import asyncio
import functools
import sys
from asyncio import events, locks, queues, taskgroups, tasks, timeouts
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from chaossloth.evidence import Mode
from chaossloth.subject.cancelling import note_cancel

if TYPE_CHECKING:
    from chaossloth.subject.primitives import PrimitiveWatch

__all__ = ["FREE_NOW", "GOT", "QUEUED", "Effects", "Part", "is_free", "wrappers"]

Effects = tuple[tuple[str, str], ...]
Part = tuple[str, str, bool]  # attribute, prefix of its keys, does the whole speak for it (Resource.hidden)

_QUEUES = queues.Queue._get.__code__.co_filename

FREE_NOW: Effects = (("queue", "update"), ("free", "update"))
QUEUED: Effects = (("queue", "update"), ("free", "blocked"))
GOT: Effects = (("free", "update"),)
_GIVEN_UP: Effects = (("queue", "update"), ("free", "update"))
_RELEASE: Effects = (("free", "update"), ("queue", "blocked"))
_NOT_RELEASED: Effects = (("free", "read"),)


def is_free(lock: Any) -> bool:
    """Whether `acquire` of a lock or semaphore would return at once."""
    waiting = any(not waiter.cancelled() for waiter in lock._waiters or ())
    held = lock._locked if isinstance(lock, locks.Lock) else lock._value == 0  # type: ignore[attr-defined]
    return not waiting and not held


Wrap = Callable[[Any], Any]


def _constructor(watch: PrimitiveWatch, *parts: Part) -> Wrap:
    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if watch.active:
                given = (*args, *kwargs.values())
                own = tuple(p for p in parts if all(getattr(self, p[0]) is not each for each in given))
                watch.created(self, own, sys._getframe(1).f_code.co_filename == _QUEUES)

        return __init__

    return wrap


def _instant(
    watch: PrimitiveWatch, done: Effects, refused: Effects = (), data: Mode | None = None, blocks: Effects = ()
) -> Wrap:
    """A method that cannot suspend. refused: its effects when it raises; data: its access to a queue's contents.

    blocks: instead of `done` where it answers True to `Queue.get` or `put`, which then waits.
    """

    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not watch.active:
                return original(self, *args, **kwargs)
            try:
                result = original(self, *args, **kwargs)
            except BaseException:
                watch.touch(self, refused or done)
                if data is not None:
                    watch.touch_items(self, "read")
                raise
            waits = result is True and blocks and sys._getframe(1).f_code.co_filename == _QUEUES
            watch.touch(self, blocks if waits else done)
            # The checks inside Queue.get and Queue.put are repeated after every wake-up: they decide nothing.
            if data is not None and (data != "read" or sys._getframe(1).f_code.co_filename != _QUEUES):
                watch.touch_items(self, data)
            return result

        return method

    return wrap


def _release(watch: PrimitiveWatch) -> Wrap:
    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        def release(self: Any) -> None:
            if not watch.active:
                original(self)
                return
            try:
                original(self)
            except BaseException:
                watch.touch(self, _NOT_RELEASED)
                raise
            watch.released(self)
            watch.touch(self, _RELEASE)

        return release

    return wrap


def _acquire(watch: PrimitiveWatch) -> Wrap:
    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        async def acquire(self: Any) -> Any:
            if not watch.active:
                return await original(self)
            wait = watch.begin_acquire(self)
            try:
                result = await original(self)
            except BaseException:
                watch.end(wait, _GIVEN_UP)
                raise
            watch.acquired(wait)
            return result

        return acquire

    return wrap


def _parking(
    watch: PrimitiveWatch, operation: str, before: Effects | Callable[[Any], Effects], after: Effects = ()
) -> Wrap:
    """A coroutine method without arguments that may suspend."""

    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        async def method(self: Any) -> Any:
            if not watch.active:
                return await original(self)
            wait = watch.begin(self, operation, before(self) if callable(before) else before)
            try:
                return await original(self)
            finally:
                watch.end(wait, after)

        return method

    return wrap


_SET: Effects = (("flag", "read"),)
_UNSET: Effects = (("flag", "blocked"), ("clear", "read"))


def _clear(watch: PrimitiveWatch) -> Wrap:
    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        def clear(self: Any) -> None:
            if watch.active:
                watch.touch(self, (("flag", "write" if self._value else "read"), ("clear", "write")))
            original(self)

        return clear

    return wrap


def _wait(watch: PrimitiveWatch) -> Wrap:
    """`asyncio.wait` looks at every future when it goes on, and no longer listens to them however it ends."""

    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        async def wait(fs: Any, **options: Any) -> Any:
            if not watch.active:
                return await original(fs, **options)
            known = tuple(fs) if isinstance(fs, Collection) else ()
            try:
                return await original(fs, **options)
            finally:
                for future in known:
                    watch.looked_at(future)

        return wait

    return wrap


def _wait_for(watch: PrimitiveWatch) -> Wrap:
    """Before 3.12 `wait_for` made a task of its own and looked at it when it went on."""

    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        async def wait_for(fut: Any, timeout: float | None) -> Any:
            if not watch.active or timeout is None or events._get_running_loop() is None:
                return await original(fut, timeout)
            future = asyncio.ensure_future(fut)
            try:
                return await original(future, timeout)
            finally:
                watch.looked_at(future)

        return wait_for

    return wrap


def _cancels(watch: PrimitiveWatch, whom: Callable[[Any], Iterable[Any]]) -> Wrap:
    """A method or function of asyncio's that cancels futures. whom: from its first argument."""

    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        def cancel(self: Any, *args: Any, **kwargs: Any) -> Any:
            if watch.active and watch.recorder is not None:
                for future in whom(self):
                    note_cancel(watch.recorder, future)
            return original(self, *args, **kwargs)

        return cancel

    return wrap


def _put(watch: PrimitiveWatch) -> Wrap:
    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        async def put(self: Any, item: Any) -> Any:
            if not watch.active:
                return await original(self, item)
            wait = watch.begin(self, "put", (("putters", "update"),))
            try:
                return await original(self, item)
            finally:
                watch.end(wait, (("putters", "update"),))

        return put

    return wrap


def _property(watch: PrimitiveWatch, effects: Effects) -> Wrap:
    return lambda original: property(_instant(watch, effects)(original.fget))


def wrappers(watch: PrimitiveWatch) -> Iterator[tuple[Any, str, Wrap]]:
    """(class or module, name, function from the original to its wrapper) of everything that is watched."""
    free: Effects = (("free", "read"),)
    yield locks.Lock, "__init__", _constructor(watch)
    yield locks.Lock, "locked", _instant(watch, free)
    yield locks.Semaphore, "__init__", _constructor(watch)
    yield locks.Semaphore, "locked", _instant(watch, (*free, ("queue", "read")))
    yield locks.BoundedSemaphore, "release", _instant(watch, free)
    for lock in (locks.Lock, locks.Semaphore):
        yield lock, "acquire", _acquire(watch)
        yield lock, "release", _release(watch)
    yield locks.Event, "__init__", _constructor(watch)
    yield locks.Event, "wait", _parking(watch, "wait", lambda event: _SET if event._value else _UNSET)
    yield locks.Event, "is_set", _instant(watch, _SET)
    yield locks.Event, "set", _instant(watch, (("flag", "write"),))
    yield locks.Event, "clear", _clear(watch)
    waiters: Effects = (("waiters", "update"),)
    yield locks.Condition, "__init__", _constructor(watch, ("_lock", "lock.", False))
    yield locks.Condition, "wait", _parking(watch, "wait", waiters, waiters)
    yield locks.Condition, "notify", _instant(watch, waiters)
    count: Effects = (("count", "update"),)
    yield locks.Barrier, "__init__", _constructor(watch, ("_cond", "cond.", True))
    for name in ("wait", "reset", "abort"):
        yield locks.Barrier, name, _parking(watch, name, count, count)
    for name in ("n_waiting", "broken"):
        yield locks.Barrier, name, _property(watch, (("count", "read"),))
    yield tasks, "wait", _wait(watch)
    yield asyncio, "wait", lambda _: tasks.wait
    if sys.version_info < (3, 12):
        yield tasks, "wait_for", _wait_for(watch)
        yield asyncio, "wait_for", lambda _: tasks.wait_for
    yield tasks._GatheringFuture, "cancel", _cancels(watch, lambda gathering: gathering._children)  # type: ignore[attr-defined]
    yield tasks, "_cancel_and_wait", _cancels(watch, lambda future: (future,))
    yield taskgroups.TaskGroup, "_abort", _cancels(watch, lambda group: group._tasks)
    yield timeouts.Timeout, "_on_timeout", _cancels(watch, lambda timeout: (timeout._task,))
    yield from _queue_wrappers(watch)


def _queue_wrappers(watch: PrimitiveWatch) -> Iterator[tuple[type, str, Wrap]]:
    getters: Effects = (("getters", "update"),)
    items: Effects = (("items", "read"),)
    taken: Effects = (("items", "update"),)
    unfinished: Effects = (("unfinished", "update"),)
    yield queues.Queue, "__init__", _constructor(watch, ("_finished", "", True))
    yield queues.Queue, "get", _parking(watch, "get", getters, getters)
    yield queues.Queue, "put", _put(watch)
    yield (
        queues.Queue,
        "join",
        _parking(watch, "join", lambda queue: (("unfinished", "blocked" if queue._unfinished_tasks else "read"),)),
    )
    yield queues.Queue, "task_done", _instant(watch, unfinished)
    for name in ("qsize", "empty", "full"):
        yield queues.Queue, name, _instant(watch, items, data="read", blocks=(("items", "blocked"),))
    yield queues.Queue, "get_nowait", _instant(watch, taken, items, data="update")
    yield queues.Queue, "put_nowait", _instant(watch, taken + unfinished, items, data="update")
    if hasattr(queues.Queue, "shutdown"):  # 3.13
        everything = (*taken, *unfinished, *getters, ("putters", "update"))
        yield queues.Queue, "shutdown", _instant(watch, everything, data="update")
