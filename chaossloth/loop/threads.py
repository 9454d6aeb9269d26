"""Work in threads under control: a body runs to its end when the schedule delivers its completion.

The loop's thread waits meanwhile, so that body and steps never overlap and an execution stays deterministic. A body
that itself waits for the loop (`run_coroutine_threadsafe(...).result()`) is left in flight as soon as it asks; its
completion then arrives in real time and the run is marked as bounded by that.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

from chaossloth.loop.run import Handle
from chaossloth.loop.scheduling import SchedulingLoop, callback_name
from chaossloth.subject.primitives import watch

__all__ = ["REAL_WAIT_S", "ThreadingLoop"]

REAL_WAIT_S = 20.0
_BODY = "chaossloth-executor"


class ThreadingLoop(SchedulingLoop):
    """Adds executors and `call_soon_threadsafe`."""

    def call_soon_threadsafe(  # type: ignore[override]  # generic over the callback's arguments
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        if threading.get_ident() == self._thread_id or self._thread_id is None:
            return self.call_soon(callback, *args, context=context)
        handle = Handle(self, callback, args, context)
        with self._condition:
            self._threadsafe.append(handle)
            self._condition.notify_all()
        return handle

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """The body runs to its end when the schedule delivers its completion; see the module docstring."""
        self._check_callback(func)
        future = self.create_future()
        handle = Handle(self, self._thread_body, (executor, func, args, future), None)
        self._free.append(self._completion("external", 0.0, handle))
        return future

    def _thread_body(
        self, executor: Any, func: Callable[..., Any], args: tuple[Any, ...], future: asyncio.Future[Any]
    ) -> None:
        box: list[Any] = []

        def body() -> None:
            try:
                if executor is not None and not isinstance(executor, _thread_pool()):
                    box.append((True, executor.submit(func, *args).result()))
                else:
                    box.append((True, func(*args)))
            except BaseException as error:  # handed to the future, as concurrent.futures does
                box.append((False, error))
            with self._condition:
                self._condition.notify_all()

        def finish() -> None:
            if future.cancelled():
                return
            ok, value = box[0]
            if ok:
                future.set_result(value)
            else:
                future.set_exception(
                    RuntimeError("coroutine raised StopIteration") if isinstance(value, StopIteration) else value
                )

        thread = threading.Thread(target=body, daemon=True, name=_BODY)
        watch.threads.thread_blocked = self._look_up
        with self._condition:
            thread.start()
            self._condition.wait_for(
                lambda: box or self._threadsafe or watch.threads.is_blocked(thread.ident), timeout=REAL_WAIT_S
            )
        if box:
            thread.join()
            finish()
            return
        # It waits for the loop, or for a lock that a task holds: the loop goes on, the completion arrives by itself.
        self._in_flight += 1
        run = self.run
        self.run.real_io.add("threads that wait for the loop")

        def waiter() -> None:
            thread.join()
            with self._condition:  # both at once: in between the loop would see nobody left who could wake it
                if self.run is run:  # else it outlived its execution
                    self._in_flight -= 1
                    self.call_soon_threadsafe(finish)

        threading.Thread(target=waiter, daemon=True, name="chaossloth-executor-wait").start()

    def set_default_executor(self, executor: Any) -> None:
        self._default_executor = executor

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        return None

    def _take_threadsafe(self) -> None:
        while self._threadsafe:
            handle = self._threadsafe.popleft()
            run = self.run
            current = run.current
            assert current is not None
            handle.creator, handle.cause = run.index, "external"
            run.anchors += 1
            handle.clock = (run.anchors, run.now)
            handle.proc = self._callback_proc(current, callback_name(handle.callback))
            self._ready.append(handle)

    def _look_up(self) -> None:
        """A thread has begun to wait for a lock: whoever waits for that thread has to look again."""
        with self._condition:
            self._condition.notify_all()

    def _other_threads(self) -> bool:
        """Whether a thread could still hand something in: one that waits for a lock cannot."""
        blocked = watch.threads.is_blocked
        threads = [t for t in threading.enumerate() if t.is_alive() and t is not threading.main_thread()]
        stuck = sum(t.name == _BODY and blocked(t.ident) for t in threads)
        return self._in_flight > stuck or any(not t.daemon and not blocked(t.ident) for t in threads)


def _thread_pool() -> type:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor
