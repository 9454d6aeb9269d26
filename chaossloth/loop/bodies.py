"""The body of a piece of thread work (`run_in_executor`, `to_thread`) as steps that the schedule orders.

A body runs in a real thread of its executor, but only while the loop's thread waits for it: body and steps never
overlap, so that an execution stays deterministic and the body's accesses belong to a step of their own. It gives the
baton back when it

  ends         its future is set in the same step;
  sleeps       `time.sleep` in a body is virtual: the rest of the body is a step of its own, delivered by a timer. This
               is where two bodies interleave, and a body with the loop's steps;
  waits        for the loop (`run_coroutine_threadsafe(...).result()`), a lock, a socket: seen by its thread coming to
               rest. The loop goes on, and the body's end arrives when it does (real time, the run is marked).

Limits: between those points a body is one piece. Real threads may be switched at any bytecode; such races are outside
of what is explored, and no run with thread work is called exhaustive. What a body accesses after it was left waiting is
booked on whichever step runs then.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from chaossloth.loop.quiescence import State
from chaossloth.loop.virtual import real_monotonic, sources

if TYPE_CHECKING:
    from chaossloth.loop.threads import ThreadingLoop

__all__ = ["REAL_WAIT_S", "Body", "DaemonPool", "current_body"]

REAL_WAIT_S = 20.0
_LOOK_S = 0.0005
_PARKED_LOOKS = 2
_BLOCKED_LOOKS = 8  # blocked, but not on a lock: it has to look so for a while
_here = threading.local()
_threads: set[int] = set()
sources.also_threads = _threads.__contains__


class _Abandoned(BaseException):
    """Ends a body that still slept when its execution was over."""


def current_body() -> Body | None:
    """The body that runs in the calling thread."""
    return getattr(_here, "body", None)


class DaemonPool:
    """Stands for the loop's default executor: a thread per call, and none of them keeps the process from ending."""

    def __init__(self) -> None:
        self._max_workers = min(32, (os.cpu_count() or 1) + 4)

    def submit(self, func: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """As `ThreadPoolExecutor.submit`."""
        work: Future[Any] = Future()

        def run() -> None:
            try:
                result = func(*args)
            except BaseException as error:  # handed to the future, as concurrent.futures does
                work.set_exception(error)
            else:
                work.set_result(result)

        threading.Thread(target=run, daemon=True, name="asyncio").start()
        return work


class Body:
    """One call in an executor. The loop sets `handle`, which makes its first step."""

    handle: Any

    def __init__(self, loop: ThreadingLoop, executor: Any, func: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.future = loop.create_future()
        self.executor = executor
        self.offered = False  # to the schedule: a thread of its executor is free
        self.in_flight = False
        self.asleep = False  # for real, because it was left in flight
        self._loop = loop
        self._run = loop.run
        self._func = func
        self._args = args
        self._work: Future[Any] | None = None
        self._thread: threading.Thread | None = None
        self._condition = loop._condition
        self._sleep_s: float | None = None
        self._baton = False  # the body may run
        self._over = False
        self._abandoned = False

    # ------------------------------------------------------------------ in the loop's thread

    @property
    def followed(self) -> bool:
        """It runs in a pool of threads of this process."""
        kind = type(self.executor)
        return kind is DaemonPool or getattr(kind, "submit", None) is ThreadPoolExecutor.submit

    def step(self) -> None:
        """One step: from where the body stands to its next sleep, or to its end."""
        with self._condition:
            self._baton, self._sleep_s = True, None
            self._condition.notify_all()
        if self._work is None:
            self._submit()
        self._follow()
        with self._condition:
            self.in_flight = not self._gave_back()
        if self._over:
            self.finish()
        elif self._sleep_s is not None:
            self._loop.resume_later(self, self._sleep_s)
        else:
            self._loop.left_in_flight()

    def _submit(self) -> None:
        if self.followed:
            self._work = self.executor.submit(self._main)
        else:
            self._work = self.executor.submit(self._func, *self._args)
        self._work.add_done_callback(self._ended)

    def _gave_back(self) -> bool:
        return self._over or self._sleep_s is not None

    def _follow(self) -> None:
        """Until it gives the baton back, or its thread comes to rest elsewhere; see the module docstring."""
        deadline = real_monotonic() + REAL_WAIT_S
        parked = blocked = 0
        while real_monotonic() < deadline:
            with self._condition:
                if not self._gave_back():
                    self._condition.wait(_LOOK_S)  # not `wait_for`, whose clock is virtual here
                if self._gave_back():
                    return
            if self._thread is None:
                if self._loop._threadsafe:
                    return
                continue
            state = self._loop._looks.state(self._thread)  # without the lock: the body may need it to give back
            parked = parked + 1 if state is State.PARKED else 0
            blocked = blocked + 1 if state is State.BLOCKED else 0
            if parked >= _PARKED_LOOKS or blocked >= _BLOCKED_LOOKS:
                return

    def finish(self) -> None:
        """Hand the result to the future."""
        work, future = self._work, self.future
        assert work is not None
        self._loop.body_ended(self)
        if future.cancelled():
            return
        if work.cancelled():
            future.cancel()
            return
        error = work.exception()
        if error is None:
            future.set_result(work.result())
        elif isinstance(error, StopIteration):
            future.set_exception(RuntimeError("coroutine raised StopIteration"))
        else:
            future.set_exception(error)

    def abandon(self) -> None:
        """The execution is over: a body that sleeps ends there, what another one brings is dropped."""
        with self._condition:
            self._abandoned = self._baton = True
            self._condition.notify_all()

    # ------------------------------------------------------------------ in the body's thread

    def _main(self) -> Any:
        self._thread = threading.current_thread()
        identity = threading.get_ident()
        _threads.add(identity)
        _here.body = self
        try:
            return self._func(*self._args)
        finally:
            _here.body = None
            _threads.discard(identity)

    def _ended(self, _: Future[Any]) -> None:
        with self._condition:
            self._over = True
            self._condition.notify_all()
            if self.in_flight and not self._abandoned and self._loop.run is self._run:
                self._loop.call_soon_threadsafe(self.finish)

    def sleep(self, seconds: float) -> None:
        """`time.sleep` in the body: the rest of it comes later."""
        with self._condition:
            if self.in_flight:  # the loop has gone on without it
                self.asleep = True
                self._condition.wait_for(lambda: self._abandoned, timeout=seconds)
                self.asleep = False
            else:
                self._sleep_s, self._baton = seconds, False
                self._condition.notify_all()
                self._condition.wait_for(lambda: self._baton)
            if self._abandoned:
                raise _Abandoned
