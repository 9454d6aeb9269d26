"""The wrappers around the methods of asyncio's primitives: as few lines as possible, since they run inside the subject.

A wrapper delegates to the original method and tells the watch (`subject.primitives`) what was asked for and what became
of it. It adds no suspension point and leaves names, signatures and exceptions alone.
"""

from __future__ import annotations

import functools
import sys
from asyncio import locks, queues
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from chaossloth.evidence import Mode

if TYPE_CHECKING:
    from chaossloth.subject.primitives import PrimitiveWatch

__all__ = ["Effects", "Part", "wrappers"]

Effects = tuple[tuple[str, Mode], ...]
Part = tuple[str, str, bool]  # attribute, prefix of its keys, does the whole speak for it (Resource.hidden)

_QUEUES = queues.Queue._get.__code__.co_filename

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


def _instant(watch: PrimitiveWatch, done: Effects, refused: Effects = (), data: Mode | None = None) -> Wrap:
    """A method that cannot suspend. refused: its effects when it raises; data: its access to a queue's contents."""

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
            watch.touch(self, done)
            # The checks inside Queue.get and Queue.put are repeated after every wake-up: they decide nothing.
            if data is not None and (data != "read" or sys._getframe(1).f_code.co_filename != _QUEUES):
                watch.touch_items(self, data)
            return result

        return method

    return wrap


def _release(watch: PrimitiveWatch) -> Wrap:
    report = _instant(watch, (("free", "update"),), (("free", "read"),))

    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        def release(self: Any) -> None:
            original(self)
            if watch.active:
                watch.released(self)

        return functools.wraps(original)(report(release))

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
                watch.end(wait, (("queue", "update"), ("free", "update")))
                raise
            watch.acquired(wait)
            return result

        return acquire

    return wrap


def _parking(watch: PrimitiveWatch, operation: str, before: Effects, after: Effects = ()) -> Wrap:
    """A coroutine method without arguments that may suspend."""

    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        async def method(self: Any) -> Any:
            if not watch.active:
                return await original(self)
            wait = watch.begin(self, operation, before)
            try:
                return await original(self)
            finally:
                watch.end(wait, after)

        return method

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


def wrappers(watch: PrimitiveWatch) -> Iterator[tuple[type, str, Wrap]]:
    """(class, method, function from the original to its wrapper) of everything that is watched."""
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
    yield locks.Event, "wait", _parking(watch, "wait", (("flag", "read"),))
    yield locks.Event, "is_set", _instant(watch, (("flag", "read"),))
    for name in ("set", "clear"):
        yield locks.Event, name, _instant(watch, (("flag", "write"),))
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
    yield from _queue_wrappers(watch)


def _queue_wrappers(watch: PrimitiveWatch) -> Iterator[tuple[type, str, Wrap]]:
    getters: Effects = (("getters", "update"),)
    items: Effects = (("items", "read"),)
    taken: Effects = (("items", "update"),)
    unfinished: Effects = (("unfinished", "update"),)
    yield queues.Queue, "__init__", _constructor(watch, ("_finished", "", True))
    yield queues.Queue, "get", _parking(watch, "get", getters, getters)
    yield queues.Queue, "put", _put(watch)
    yield queues.Queue, "join", _parking(watch, "join", (("unfinished", "read"),))
    yield queues.Queue, "task_done", _instant(watch, unfinished)
    for name in ("qsize", "empty", "full"):
        yield queues.Queue, name, _instant(watch, items, data="read")
    yield queues.Queue, "get_nowait", _instant(watch, taken, items, data="update")
    yield queues.Queue, "put_nowait", _instant(watch, taken + unfinished, items, data="update")
    if hasattr(queues.Queue, "shutdown"):  # 3.13
        everything = (*taken, *unfinished, *getters, ("putters", "update"))
        yield queues.Queue, "shutdown", _instant(watch, everything, data="update")
