"""A selector that knows when waiting is pointless, for natural and forced runs on the stock loop.

A `select` without a deadline, while only near descriptors (`nearness`) are registered and no thread works, can never
return: that is a deadlock, and it raises `NothingRunnable` instead of blocking for ever. The loop's self-pipe is near;
where there are others, the kernel is given a moment for what may be under way. A wall-clock limit raises `TimeIsUp`.
Both are BaseExceptions, so that no `except Exception` around the subject's `asyncio.run` hides them.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import selectors
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Sized
from typing import Any, NoReturn, cast

from chaossloth.loop.nearness import Nearness
from chaossloth.loop.quiescence import Looks, State
from chaossloth.loop.virtual import real_monotonic as monotonic
from chaossloth.loop.virtual import real_monotonic_ns as monotonic_ns
from chaossloth.subject.primitives import watch

__all__ = ["NothingRunnable", "QuietSelector", "TimeIsUp"]

_THREAD_POLL_S = 0.005
_IDLE_LOOKS = 3
_UNDER_WAY_S = 0.1
_NOT_ITS = ("chaossloth", "pydevd")  # names of threads that are not the subject's


class NothingRunnable(BaseException):
    """Nothing can ever run again: no ready handle, no timer, no I/O, no working thread."""


class TimeIsUp(BaseException):
    """The run reached its wall-clock limit. spinning: True when the loop had been busy without a pause (livelock)."""

    def __init__(self, limit_s: float, spinning: bool) -> None:
        super().__init__(f"the run did not end within {limit_s:g} s")
        self.spinning = spinning


class QuietSelector(selectors.DefaultSelector):
    """The platform's selector; see the module docstring.

    polled_ns: monotonic_ns of the last return. before_stop: called with what is about to be raised, while every task
    still stands where it waits. in_threads: futures of work that the loop gave to threads.
    busy: with `ready` set to the loop's ready queue, whether handles were waiting there at the last poll.
    """

    def __init__(self, before_stop: Callable[[NothingRunnable | TimeIsUp], None] | None = None) -> None:
        super().__init__()
        self.in_threads: weakref.WeakSet[asyncio.Future[Any]] = weakref.WeakSet()
        self.ready: Sized | None = None
        self.busy = False
        self._before_stop = before_stop
        self.polled_ns = 0
        self.limit_s = 0.0
        self._deadline: float | None = None
        self._looks = Looks()
        self._last_pause = 0.0

    def close(self) -> None:
        self._looks.close()
        super().close()

    def limit(self, seconds: float | None) -> None:
        """From now on: raise TimeIsUp when `select` is called after so many seconds."""
        now = monotonic()
        self.limit_s = seconds or 0.0
        self._deadline = None if seconds is None else now + seconds
        self._last_pause = now

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.ready is not None:
            self.busy = bool(self.ready)
        if timeout is None and self._only_near():
            events = self._wait_for_threads()
        else:
            events = super().select(self._bounded(timeout))
            if timeout is None or timeout > 0:
                self._last_pause = monotonic()
        self.polled_ns = monotonic_ns()
        return cast("list[tuple[selectors.SelectorKey, int]]", events)

    def _only_near(self) -> bool:
        """Nothing but this program can make a descriptor ready."""
        if len(self.get_map()) <= 1:
            return True
        if signal.getitimer(signal.ITIMER_REAL)[0]:
            return False
        nearness = Nearness()
        numbers = [key.fd for key in self.get_map().values()]
        for number in numbers:  # twice: both ends of a connection have to be known
            nearness.place(number)
        return all(nearness.place(number).near for number in numbers)

    def _bounded(self, timeout: float | None) -> float | None:
        if self._deadline is None:
            return timeout
        now = monotonic()
        left = self._deadline - now
        if left <= 0:
            self._stop(TimeIsUp(self.limit_s, spinning=now - self._last_pause > self.limit_s / 2))
        if timeout is not None and timeout <= 0:
            return timeout
        return left if timeout is None else min(timeout, left)

    def _wait_for_threads(self) -> list[Any]:
        """Only a thread could still schedule something. A worker that went idle has scheduled it before that."""
        quiet_for = 0
        while True:
            working, pools = self._threads()
            quiet_for = 0 if working else quiet_for + 1
            # A pool's worker that has just been handed something still looks idle: it has to look so several times.
            over = quiet_for > (_IDLE_LOOKS if pools else 0)
            moment = _UNDER_WAY_S if len(self.get_map()) > 1 else 0.0
            events = super().select(self._bounded(moment if over else _THREAD_POLL_S))
            if events:
                return cast("list[Any]", events)
            if over:
                self._stop(NothingRunnable("no ready handle, no timer, no I/O and no working thread"))

    def _threads(self) -> tuple[bool, bool]:
        """(a thread works or may work for this loop, there are idle workers of pools)."""
        blocked = watch.threads.is_blocked
        waiting = sum(not future.done() for future in self.in_threads)
        if waiting > sum(blocked(thread.ident) for thread in threading.enumerate()):
            return True, False
        pools = False
        frames = sys._current_frames()
        for thread in threading.enumerate():
            if thread in (threading.main_thread(), threading.current_thread()) or thread.name.startswith(_NOT_ITS):
                continue
            if blocked(thread.ident):  # for good, unless a task that could release it runs
                continue
            if self._looks.state(thread) is State.PARKED:  # on a lock or an empty queue; it may just be woken
                pools = True
                continue
            frame = frames.get(thread.ident or -1)
            if frame is None or frame.f_code is not concurrent.futures.thread._worker.__code__:
                return True, pools
            pools = True
        return False, pools

    def _stop(self, stop: NothingRunnable | TimeIsUp) -> NoReturn:
        if self._before_stop is not None:
            self._before_stop(stop)
        raise stop
