"""A selector that knows when waiting is pointless, for natural and forced runs on the stock loop.

A `select` without a deadline, while nothing but the loop's self-pipe is registered and no thread works, can never
return: that is a deadlock, and it raises `NothingRunnable` instead of blocking for ever. A wall-clock limit raises
`TimeIsUp`. Both are BaseExceptions, so that no `except Exception` around the subject's `asyncio.run` hides them.
"""

from __future__ import annotations

import concurrent.futures.thread
import selectors
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn, cast

from chaossloth.loop.virtual import real_monotonic as monotonic
from chaossloth.loop.virtual import real_monotonic_ns as monotonic_ns

__all__ = ["NothingRunnable", "QuietSelector", "TimeIsUp"]

_THREAD_POLL_S = 0.01


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
    still stands where it waits.
    """

    def __init__(self, before_stop: Callable[[NothingRunnable | TimeIsUp], None] | None = None) -> None:
        super().__init__()
        self._before_stop = before_stop
        self.polled_ns = 0
        self.limit_s = 0.0
        self._deadline: float | None = None
        self._last_pause = 0.0

    def limit(self, seconds: float | None) -> None:
        """From now on: raise TimeIsUp when `select` is called after so many seconds."""
        now = monotonic()
        self.limit_s = seconds or 0.0
        self._deadline = None if seconds is None else now + seconds
        self._last_pause = now

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None and len(self.get_map()) <= 1:
            events = self._wait_for_threads()
        else:
            events = super().select(self._bounded(timeout))
        self.polled_ns = monotonic_ns()
        return cast("list[tuple[selectors.SelectorKey, int]]", events)

    def _bounded(self, timeout: float | None) -> float | None:
        if self._deadline is None:
            return timeout
        now = monotonic()
        left = self._deadline - now
        if left <= 0:
            self._stop(TimeIsUp(self.limit_s, spinning=now - self._last_pause > self.limit_s / 2))
        if timeout is not None and timeout <= 0:
            return timeout
        self._last_pause = now
        return left if timeout is None else min(timeout, left)

    def _wait_for_threads(self) -> list[Any]:
        """Only a thread could still schedule something. A worker that went idle has scheduled it before that."""
        while True:
            working = _working_threads()
            events = super().select(self._bounded(_THREAD_POLL_S if working else 0.0))
            if events:
                return cast("list[Any]", events)
            if not working:
                self._stop(NothingRunnable("no ready handle, no timer, no I/O and no working thread"))

    def _stop(self, stop: NothingRunnable | TimeIsUp) -> NoReturn:
        if self._before_stop is not None:
            self._before_stop(stop)
        raise stop


def _working_threads() -> bool:
    """True when a thread of the subject is alive that is no idle pool worker (these stand in their queue loop)."""
    frames = sys._current_frames()
    idle = concurrent.futures.thread._worker.__code__
    for thread in threading.enumerate():
        if thread is threading.main_thread() or thread is threading.current_thread():
            continue
        if thread.name.startswith("chaossloth") or thread.name.startswith("pydevd"):
            continue
        frame = frames.get(thread.ident or -1)
        if frame is None or frame.f_code is not idle:
            return True
    return False
