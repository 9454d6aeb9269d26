"""Threads under control: bodies of thread work, and whatever other threads hand in.

Thread work is explained in `bodies`. Threads of the subject's own, or of a library (`aiosqlite` keeps one per
connection), run freely; what they hand in through `call_soon_threadsafe` becomes a pending completion of the schedule,
in order per thread (`arrivals.Lane`). That this is the same in each execution is the business of `waiting`: the loop
goes on when its threads have come to rest.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

from chaossloth.loop.arrivals import Arrival, Lane, Source
from chaossloth.loop.bodies import Body, DaemonPool
from chaossloth.loop.quiescence import Looks, started
from chaossloth.loop.run import Handle, Run
from chaossloth.loop.scheduling import SchedulingLoop, callback_name

__all__ = ["ThreadingLoop"]


class ThreadingLoop(SchedulingLoop):
    """Adds executors and `call_soon_threadsafe`."""

    _bodies: list[Body] = []

    def __init__(self) -> None:
        self._looks = Looks()
        super().__init__()

    def begin(self, run: Run) -> None:
        if run.current is None:
            started.clear()
        super().begin(run)
        self._lanes: dict[threading.Thread | None, Lane] = {}
        self._bodies: list[Body] = []  # not ended, in the order in which they were asked for
        self._awaiting_bodies: asyncio.Future[None] | None = None
        self._sources_made: dict[tuple[str, str], int] = {}
        self._default_executor = None

    # ------------------------------------------------------------------ what threads hand in

    def call_soon_threadsafe(  # type: ignore[override]  # generic over the callback's arguments
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        if threading.get_ident() == self._thread_id or self._thread_id is None:
            return self.call_soon(callback, *args, context=context)
        if self._closed:
            raise RuntimeError("Event loop is closed")
        arrival = Arrival(self, callback, args, context)
        with self._condition:
            self._real = True
            self._threadsafe.append((threading.current_thread(), arrival))
            self._condition.notify_all()
        return arrival

    def thread_started(self, thread: threading.Thread) -> None:
        """A thread was started by a step of this loop."""
        self._real = True
        if self.run.judging:
            self.run.real_io.add("threads")
        self._lane(thread)

    def _lane(self, thread: threading.Thread | None) -> Lane:
        lane = self._lanes.get(thread)
        if lane is None:
            proc = self._outside_proc("t", "thread")
            lane = self._lanes[thread] = Lane(Source(proc, self.run))
        return lane

    def _outside_proc(self, kind: str, name: str) -> Any:
        raise NotImplementedError  # `io.IoLoop`

    def _take_threadsafe(self) -> None:
        while self._threadsafe:
            thread, arrival = self._threadsafe.popleft()
            if arrival._cancelled:
                continue
            self.run.real_io.add("threads")
            self._lane(thread).join(arrival)

    # ------------------------------------------------------------------ executors

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """The body runs when the schedule delivers it; see `bodies`."""
        self._check_callback(func)
        if executor is None:
            if self._default_executor is None:
                self._default_executor = DaemonPool()
            executor = self._default_executor
        body = Body(self, executor, func, args)
        body.handle = self._completion("external", 0.0, Handle(self, body.step, (), None))
        body.handle.proc.called = _name_of_body(func)
        self._bodies.append(body)
        self._real = True
        self.run.real_io.add("threads")
        self._begin_bodies(executor)
        return body.future

    def _begin_bodies(self, executor: Any) -> None:
        """Offer bodies of `executor` to the schedule, in order, as far as its threads suffice."""
        places: int = getattr(executor, "_max_workers", len(self._bodies))
        for body in [each for each in self._bodies if each.executor is executor]:
            if not body.offered and body.future.cancelled():
                self._bodies.remove(body)  # cancelled while it waited for a thread: it never runs
                continue
            if places == 0:
                break
            places -= 1
            if not body.offered:
                body.offered = True
                self._free.append(body.handle)

    def resume_later(self, body: Body, seconds: float) -> None:
        """The body sleeps: a timer delivers the rest of it, which is the body's next step."""
        handle = self.call_later(seconds, body.step)
        handle.proc = body.handle.proc

    def left_in_flight(self) -> None:
        """A body waits for something: the loop goes on without it."""
        self.run.real_io.add("threads that wait for the loop")

    def body_ended(self, body: Body) -> None:
        self._bodies.remove(body)
        self._begin_bodies(body.executor)
        if self._awaiting_bodies is not None and not self._awaiting_bodies.done():
            self._awaiting_bodies.set_result(None)

    def set_default_executor(self, executor: Any) -> None:
        self._default_executor = executor

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Waits for the bodies that were given to it, like the stock loop. They end by the schedule."""
        while any(body.executor is self._default_executor for body in self._bodies):
            self._awaiting_bodies = self.create_future()
            await self._awaiting_bodies

    # ------------------------------------------------------------------ the end of an execution

    def close_io(self) -> None:
        """Give back everything real that the execution has taken; harmless when there is nothing."""
        if self._real:
            self._release()

    def _release(self) -> None:
        """Give back whatever the execution has begun in threads."""
        for body in self._bodies:
            body.abandon()
        self._bodies = []
        self._looks.close()
        self._real = False


def _name_of_body(func: Any) -> str:
    """The function that `to_thread` was given, else the one that runs."""
    context = getattr(getattr(func, "func", None), "__self__", None)
    return callback_name(func.args[0] if isinstance(context, contextvars.Context) and func.args else func)
