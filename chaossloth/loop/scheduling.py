"""Who schedules what: handles, timers and tasks of the controlled loop, each under an identity equal in every execution.

A handle is recognised for what it does (a task's step, a bare yield, a callback) when it is scheduled, because only then
its creator is known. Tasks are followed by weak reference: one that the subject let go must stay collectable.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from chaossloth.loop.identity import callback as callback_identity
from chaossloth.loop.identity import child as child_identity
from chaossloth.loop.run import Handle, Model, Proc, Run

__all__ = ["SchedulingLoop", "callback_name"]

_TASK_STEP_NAMES = frozenset({"task_wakeup", "TaskWakeupMethWrapper", "TaskStepMethWrapper", "__step", "__wakeup"})


def _stepped_task(callback: Any) -> asyncio.Task[Any] | None:
    """The task whose step or wake-up `callback` is; None for anything else (also for a bound `task.cancel`)."""
    owner = getattr(callback, "__self__", None)
    if not isinstance(owner, asyncio.Task):
        return None
    if type(callback).__name__ == "TaskStepMethWrapper" or getattr(callback, "__name__", "") in _TASK_STEP_NAMES:
        return owner
    return None


def _is_internal(callback: Any) -> bool:
    module = getattr(callback, "__module__", None) or getattr(getattr(callback, "func", None), "__module__", None)
    return module is not None and module.startswith("asyncio.")


def _display_name(coro: Any, name: str | None) -> str:
    """A task's name for people: the one it was given, else its coroutine's function."""
    if name is not None:
        return str(name)
    qualname = getattr(coro, "__qualname__", type(coro).__name__)
    if qualname.startswith("ConcurrentCalls."):
        return "main"
    return str(qualname).rsplit("<locals>.", 1)[-1]


class SchedulingLoop(asyncio.AbstractEventLoop):
    """The part of the loop that takes work in; `begin(run)` makes it new."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._debug = False
        self._condition = threading.Condition()
        self._asyncgens: weakref.WeakSet[Any] = weakref.WeakSet()
        self._task_factory: Any = None
        self._exception_handler: Any = None
        self._default_executor: Any = None
        self.begin(Run(Model(), _StockOrder()))

    def begin(self, run: Run) -> None:
        """Forget everything of the previous execution. The first loop of a run also creates its root identity."""
        self.run = run
        self._ready: deque[Handle] = deque()
        self._timers: list[Handle] = []
        self._free: list[Handle] = []
        self._folded: list[Handle] = []
        self._threadsafe: deque[Handle] = deque()
        self._by_task: dict[int, Proc] = {}
        self._new: Proc | None = None
        self._seq = 0
        self._in_flight = 0
        self._stopping = False
        self._running = False
        self._closed = False
        self._thread_id: int | None = None
        self._exception_handler = None
        self._task_factory = None
        self._reorder = run.model.label == "reorder"
        self._latency = run.model.label in ("latency", "reorder")
        if run.current is None:
            run.current = self._proc("", "main", False)

    # ------------------------------------------------------------------ identity

    def _proc(self, key: str, name: str, is_task: bool, given: bool = False) -> Proc:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._numbers) + 1
        proc = Proc(key, number, name, is_task, given)
        self.run.procs.append(proc)
        return proc

    def _adopt(self, task: asyncio.Task[Any], proc: Proc) -> None:
        key = id(task)
        by_task = self._by_task
        by_task[key] = proc
        proc.ref = weakref.ref(task, lambda _: by_task.pop(key, None) if by_task.get(key) is proc else None)

    def _new_task_proc(self, coro: Any, name: str | None) -> Proc:
        creator = self.run.current
        assert creator is not None
        creator.tasks += 1
        key = child_identity(creator.key, creator.tasks) if creator.key else str(creator.tasks - 1)
        return self._proc(key, _display_name(coro, name), True, name is not None)

    def proc_of(self, task: asyncio.Task[Any]) -> Proc | None:
        return self._by_task.get(id(task))

    def task_key(self) -> str:
        """Identity of whoever runs now: the key under which random draws are made."""
        current = self.run.current
        return current.key if current is not None else ""

    # ------------------------------------------------------------------ scheduling

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None) -> Any:
        self._check_callback(callback)
        handle = Handle(self, callback, args, context)
        run = self.run
        handle.creator = run.index
        current = run.current
        assert current is not None
        task = _stepped_task(callback)
        if task is not None:
            proc = self._new
            if proc is not None:
                self._new = None
                self._adopt(task, proc)
                handle.cause = "start"
            else:
                known = self._by_task.get(id(task))
                if known is None:  # made without create_task, or started eagerly
                    known = self._new_task_proc(task.get_coro(), None)
                    self._adopt(task, known)
                    handle.cause = "start" if not args else "wakeup"
                else:
                    handle.cause = "wakeup" if args else "yield"
                proc = known
            handle.proc = proc
            if handle.cause == "yield" and proc is current:
                return self._bare_yield(handle, proc)
        else:
            if self._reorder and args and isinstance(args[0], asyncio.Future) and _is_internal(callback):
                handle.proc = current
                handle.cause = "callback"
                self._folded.append(handle)
                return handle
            current.callbacks += 1
            handle.proc = self._proc(callback_identity(current.key, current.callbacks), callback_name(callback), False)
            handle.cause = "callback"
        self._ready.append(handle)
        return handle

    def _bare_yield(self, handle: Handle, proc: Proc) -> Handle:
        proc.yields += 1
        handle.label = f"y{proc.key}#{proc.yields}"
        if self._latency and self.run.judging and proc.is_task:
            options: list[Handle | None] = [None, handle]
            if self.run.decide(options) == 1:
                self.run.extended.append((proc.key, proc.yields))
                handle.deadline = -1.0
                self._free.append(handle)
                return handle
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        if delay is None:
            raise TypeError("delay must not be None")
        return self.call_at(self.run.now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        if when is None:
            raise TypeError("when cannot be None")
        self._check_callback(callback)
        handle = Handle(self, callback, args, context)
        run = self.run
        current = run.current
        assert current is not None
        current.timers += 1
        current.callbacks += 1
        self._seq += 1
        if run.stretch != 1.0:
            when = run.now + (when - run.now) * run.stretch
        handle.deadline, handle.seq, handle.creator, handle.cause = when, self._seq, run.index, "timer"
        handle.owner, handle.label = current.key, f"t{current.key}#{current.timers}"
        handle.ordinal = current.timers
        handle.proc = self._proc(callback_identity(current.key, current.callbacks), "timer", False)
        heapq.heappush(self._timers, handle)
        return handle

    def _check_callback(self, callback: Any) -> None:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        if not callable(callback) or asyncio.iscoroutinefunction(callback):
            raise TypeError(f"a callable object was expected, got {callback!r}")

    # ------------------------------------------------------------------ tasks and futures

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: contextvars.Context | None = None, **kwargs: Any
    ) -> Any:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        if self._task_factory is not None:
            if context is not None:
                kwargs["context"] = context
            task = self._task_factory(self, coro, **kwargs)
            if name is not None:
                task.set_name(name)
            return task
        self._new = self._new_task_proc(coro, name)
        self.run.task_names += 1
        try:
            return asyncio.Task(coro, loop=self, name=name or f"Task-{self.run.task_names}", context=context, **kwargs)
        finally:
            self._new = None

    def set_task_factory(self, factory: Any) -> None:
        self._task_factory = factory

    def get_task_factory(self) -> Any:
        return self._task_factory


def callback_name(callback: Any) -> str:
    inner = getattr(callback, "func", callback)
    return str(getattr(inner, "__qualname__", type(inner).__name__)).rsplit("<locals>.", 1)[-1]


class _StockOrder:
    def choose(self, options: list[Handle | None], run: Run) -> int:
        return 0
