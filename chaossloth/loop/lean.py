"""The controlled loop for executions that record nothing and run in stock order: the same steps, less bookkeeping.

What a step costs here decides how much slower than a stock loop the control is, so the scheduling of a step and its
execution are written out once more, without what only a recorder or the models `latency` and `reorder` ask for. Timers,
threads and choices at round boundaries are the base class's own. The saving is in small change: a handle is filled in
place instead of by a constructor, what `Run.order` says of a step is kept with its identity, a bare yield is recognised
without a table (only the running task can make one), and callbacks are not listed among the run's tasks.
"""

from __future__ import annotations

import contextvars
from asyncio import Task
from collections.abc import Callable
from inspect import CO_COROUTINE
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any
from weakref import ref

from chaossloth.loop.controlled import UNJUDGED_STEPS, ControlledLoop
from chaossloth.loop.run import Handle, LoopStopped, Proc, Run
from chaossloth.loop.scheduling import STEP
from chaossloth.subject.channel import BY_COUNT, guard

__all__ = ["LeanLoop", "fits"]

_make = object.__new__
_copy_context = contextvars.copy_context


def fits(run: Run) -> bool:
    """Whether a `LeanLoop` can execute `run`."""
    return not run.recording and run.model.label == "stock"


class LeanHandle:
    """A `Handle` of fewer parts. entry: what `Run.order` says of the step.

    No choice is ever made among these, so that nobody asks who created them.
    """

    __slots__ = ("_cancelled", "args", "callback", "context", "entry", "proc")

    _cancelled: bool
    args: tuple[Any, ...]
    callback: Callable[..., Any]
    context: contextvars.Context
    entry: tuple[str, str]
    proc: Proc

    @property
    def cause(self) -> str:
        return self.entry[1]

    cancel = Handle.cancel
    cancelled = Handle.cancelled
    get_context = Handle.get_context


class LeanLoop(ControlledLoop):
    """An event loop that runs one `Run` at a time, which `fits`."""

    def call_soon(  # type: ignore[override]  # generic over the callback's arguments
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        current: Any = self.run.current
        handle = _make(LeanHandle)
        handle.callback = callback
        handle.args = args
        handle.context = context if context is not None else _copy_context()
        handle._cancelled = False
        kind = type(callback)
        if kind is STEP:
            new = self._new
            if new is not None:
                self._new = None
                task = callback.__self__
                self._by_task[id(task)] = handle.proc = new
                new.ref = ref(task)
                handle.entry = new.identity.start
            elif current.is_task and current.ref() is callback.__self__:
                current.yields += 1
                handle.proc = current
                handle.entry = current.identity.yielded
            else:
                return super().call_soon(callback, *args, context=handle.context)
        elif kind is FunctionType or kind is MethodType:
            if kind is MethodType or callback.__code__.co_flags & CO_COROUTINE:
                self._check_callback(callback)
            k = current.callbacks
            current.callbacks = k + 1
            known = current.identity.callbacks
            identity = known[k] if k < len(known) else current.identity.callback(k + 1)
            proc = identity.spare
            if proc is None:
                proc = identity.spare = Proc(identity, "", False)
            proc.called = callback.__qualname__
            proc.tasks = proc.callbacks = proc.timers = proc.steps = 0  # who ran under this name in the last execution
            handle.proc = proc
            handle.entry = identity.called
        elif kind is BuiltinFunctionType and callback.__name__ == "task_wakeup":
            task = callback.__self__
            proc = self._by_task.get(id(task))  # type: ignore[assignment]
            if proc is None or proc.ref() is not task:  # type: ignore[misc]
                return super().call_soon(callback, *args, context=handle.context)
            handle.proc = proc
            handle.entry = proc.identity.wakeup
        else:
            return super().call_soon(callback, *args, context=handle.context)
        self._ready.append(handle)
        return handle

    def create_task(
        self, coro: Any, *, name: str | None = None, context: contextvars.Context | None = None, **kwargs: Any
    ) -> Any:
        if self._task_factory is not None or self._closed or kwargs or name is not None:
            return super().create_task(coro, name=name, context=context, **kwargs)
        run = self.run
        self._new = self._new_task_proc(coro, None)
        run.task_names = k = run.task_names + 1
        try:
            return Task(coro, loop=self, name=f"Task-{k}", context=context)
        except BaseException:
            self._new = None
            raise

    def _rounds(self) -> None:
        run = self.run
        ready = self._ready
        next_handle, note = ready.popleft, run.order.append
        limit = self._max_steps if run.judging else self._max_steps + UNJUDGED_STEPS
        index = run.count
        guard.step_started = BY_COUNT
        while not self._stopping:
            if self._threadsafe:
                self._take_threadsafe()
            if not ready or self._timers or self._free:
                self._deliver()
                guard.step_started = BY_COUNT
            for _ in range(len(ready)):
                handle = next_handle()
                if handle._cancelled:
                    continue
                if index >= limit:
                    raise LoopStopped("livelock", f"{index} steps were made and the program did not end")
                run.current = proc = handle.proc
                proc.steps += 1
                run.index = index
                run.count = index = index + 1
                note(handle.entry if type(handle) is LeanHandle else (proc.key, handle.cause))
                args = handle.args
                try:
                    if args:
                        handle.context.run(handle.callback, *args)
                    else:
                        handle.context.run(handle.callback)
                except (SystemExit, KeyboardInterrupt, LoopStopped):
                    raise
                except BaseException as error:
                    self._report(handle, error)
            handle = None  # type: ignore[assignment]  # it keeps its task alive
