"""Who schedules what: handles, timers and tasks, each under an identity that is equal in every execution.

A handle is recognised for what it does (a task's step, a bare yield, a callback) when it is scheduled, because only
then its creator is known. Tasks are followed by weak reference: one that the subject let go must stay collectable.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import inspect
import sys
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from chaossloth.loop.identity import Identity
from chaossloth.loop.joins import Joins
from chaossloth.loop.run import Handle, Model, Proc, Run, for_people
from chaossloth.subject.record import recorder

__all__ = ["SchedulingLoop", "callback_name", "is_internal"]

_TRANSPORTS = frozenset(
    f"asyncio.{name}" for name in ("base_events", "base_subprocess", "selector_events", "sslproto", "unix_events")
)

_TASK_STEP_NAMES = frozenset({"task_wakeup", "TaskWakeupMethWrapper", "TaskStepMethWrapper", "__step", "__wakeup"})


def _type_of_first_step() -> type:
    """Of the C object with which a task asks for its first step, and for the next one after a bare yield."""
    found: list[type] = []

    class Loop(asyncio.AbstractEventLoop):
        def get_debug(self) -> bool:
            return False

        def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
            found.append(type(callback))

    async def nothing() -> None:
        return None

    coro = nothing()
    task = asyncio.Task(coro, loop=Loop())  # type: ignore[abstract]
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coro.close()
    return found[0]


STEP = _type_of_first_step()
_NAMED = (types.FunctionType, types.MethodType)  # surely no task's step, and with a name


def _stepped_task(callback: Any) -> asyncio.Task[Any] | None:
    """The task whose step or wake-up `callback` is; None for anything else (also for a bound `task.cancel`)."""
    owner = getattr(callback, "__self__", None)
    if not isinstance(owner, asyncio.Task):
        return None
    if type(callback).__name__ == "TaskStepMethWrapper" or getattr(callback, "__name__", "") in _TASK_STEP_NAMES:
        return owner
    return None


def is_plain(callback: Any) -> bool:
    """Surely callable and neither a coroutine function nor marked as one: spares asking `inspect`."""
    kind = type(callback)
    if kind is types.MethodType:
        callback = callback.__func__
        kind = type(callback)
    if kind is types.FunctionType:
        return not (callback.__code__.co_flags & inspect.CO_COROUTINE or callback.__dict__)
    return kind is types.BuiltinFunctionType


def is_internal(callback: Any) -> bool:
    module = getattr(callback, "__module__", None) or getattr(getattr(callback, "func", None), "__module__", None)
    return module is not None and module.startswith("asyncio.")


class SchedulingLoop(asyncio.AbstractEventLoop):
    """The part of the loop that takes work in; `begin(run)` makes it new."""

    _real = False  # something real takes part in this execution

    def __init__(self) -> None:
        self._root = Identity()
        self._condition = threading.Condition()
        self._asyncgens: weakref.WeakSet[Any] = weakref.WeakSet()
        self._asyncgen_hooks = (self._asyncgens.add, self._finalize_asyncgen)
        self._task_factory: Any = None
        self._exception_handler: Any = None
        self._default_executor: Any = None
        self.begin(Run(Model(), _StockOrder()))

    def _finalize_asyncgen(self, agen: Any) -> None:
        raise NotImplementedError

    def begin(self, run: Run) -> None:
        """Forget everything of the previous execution. The first loop of a run also creates its root identity."""
        self.run = run
        self._ready: deque[Handle] = deque()
        self._timers: list[Handle] = []
        self._free: list[Handle] = []
        self._folded: list[Handle] = []
        if run.recording:
            self._joins = Joins(self._key_of)
        self._joining: list[int] = []  # steps of children that the running callback of asyncio's may join
        self._of_transports: Handle | None = None  # `reorder`: the last handle that asyncio's transports asked for
        self._on_futures: dict[int, Handle] = {}  # `reorder`: future -> the last callback of the subject's on it
        self._threadsafe: deque[Any] = deque()  # (thread, what it handed in)
        self._by_task: dict[int, Proc] = {}
        self._new: Proc | None = None
        self._seq = 0
        self._busy_rounds = 0
        self._stopping = False
        self._running = False
        self._closed = False
        self._thread_id: int | None = None
        self._exception_handler = None
        self._task_factory = None
        self._reorder = run.model.label == "reorder"
        self._latency = run.model.label == "latency"
        if run.current is None:
            run.current = self._proc("", "main", False)

    # ------------------------------------------------------------------ identity

    def _proc(self, key: str, called: str, is_task: bool, given: bool = False) -> Proc:
        current = self.run.current
        proc = Proc((current.identity if current is not None else self._root).of(key), called, is_task, given)
        self.run.procs.append(proc)
        return proc

    def _callback_proc(self, current: Proc, called: str) -> Proc:
        """Who runs the next callback that `current` schedules."""
        k = current.callbacks
        current.callbacks = k + 1
        known = current.identity.callbacks
        proc = Proc(known[k] if k < len(known) else current.identity.callback(k + 1), called, False)
        self.run.procs.append(proc)
        return proc

    def _adopt(self, task: asyncio.Task[Any], proc: Proc) -> None:
        self._by_task[id(task)] = proc
        proc.ref = weakref.ref(task)  # no callback: `proc_of` looks whether the task is still the same

    def _new_task_proc(self, coro: Any, name: str | None) -> Proc:
        creator = self.run.current
        assert creator is not None
        k = creator.tasks
        creator.tasks = k + 1
        known = creator.identity.tasks
        identity = known[k] if k < len(known) else creator.identity.task(k + 1)
        called = str(name) if name is not None else getattr(coro, "__qualname__", None) or type(coro).__name__
        proc = Proc(identity, called, True, name is not None)
        self.run.procs.append(proc)
        return proc

    def proc_of(self, task: asyncio.Task[Any]) -> Proc | None:
        """The identity of a task; None for one that this loop never stepped."""
        proc = self._by_task.get(id(task))
        return proc if proc is not None and proc.ref is not None and proc.ref() is task else None

    def _key_of(self, task: asyncio.Task[Any]) -> str | None:
        proc = self.proc_of(task)
        return proc.key if proc is not None else None

    def completions(self) -> list[Handle]:
        """Timers, extended yields and outside work that have not arrived."""
        return [*self._timers, *self._free]

    def unfinished(self) -> list[asyncio.Task[Any]]:
        """This loop's tasks that are not done, in the order of creation."""
        return [
            task
            for proc in self.run.procs
            if (ref := proc.ref) is not None
            and (task := ref()) is not None
            and not task.done()
            and task.get_loop() is self
        ]

    def task_key(self) -> str:
        """Identity of whoever runs now: the key under which random draws are made."""
        current = self.run.current
        return current.key if current is not None else ""

    # ------------------------------------------------------------------ scheduling

    def call_soon(  # type: ignore[override]  # generic over the callback's arguments
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        handle = Handle(self, callback, args, context)
        run = self.run
        handle.creator = run.index
        handle.clock = clock = run.clock
        if self._real and self._reorder and sys._getframe(1).f_globals.get("__name__") in _TRANSPORTS:
            handle.after, self._of_transports = self._of_transports, handle  # transports rely on this order
        kind = type(callback)
        if kind is STEP or kind is types.BuiltinFunctionType and callback.__name__ == "task_wakeup":
            task = callback.__self__  # type: ignore[attr-defined]
        else:
            task = _stepped_task(callback) if kind not in _NAMED else None
            if task is None:
                self._schedule_callback(handle)
                return handle
        proc = self._new
        if proc is not None:
            self._new = None
            self._adopt(task, proc)
            handle.cause = "start"
        else:
            proc = self._by_task.get(id(task))
            if proc is None or proc.ref() is not task:  # type: ignore[misc]  # made without create_task, or started eagerly
                proc = self._new_task_proc(task.get_coro(), None)
                self._adopt(task, proc)
                handle.cause = "start" if not args else "wakeup"
            else:
                handle.cause = "wakeup" if args else "yield"
        handle.proc = proc
        if handle.cause == "yield" and proc is self.run.current:
            return self._bare_yield(handle, proc)
        last = proc.clock
        if last is not clock and last[0] == clock[0] and last[1] > clock[1]:
            handle.clock = last
        if self._joining:
            handle.joined = tuple(self._joining)
        if self._on_futures and args and handle.after is None:
            handle.after = self._on_futures.get(id(args[0]))
        self._ready.append(handle)
        return handle

    def _schedule_callback(self, handle: Handle) -> None:
        current, args = self.run.current, handle.args
        assert current is not None
        handle.cause = "callback"
        callback = handle.callback
        self._check_callback(callback)
        if self._reorder and args and isinstance(args[0], asyncio.Future):
            if is_internal(callback) and handle is not self._of_transports:
                handle.proc = current
                if self._joining:
                    handle.joined = tuple(self._joining)
                self._folded.append(handle)
                return
            handle.after = handle.after or self._on_futures.get(id(args[0]))
            self._on_futures[id(args[0])] = handle
        called = callback.__qualname__ if type(callback) in _NAMED else callback_name(callback)
        handle.proc = self._callback_proc(current, called)
        self._ready.append(handle)

    def _bare_yield(self, handle: Handle, proc: Proc) -> Handle:
        proc.yields += 1
        if self._latency and self.run.judging and proc.is_task:
            options: list[Handle | None] = [None, handle]
            if self.run.decide(options) == 1:
                self.run.extended.append((proc.key, proc.yields))
                self._free.append(handle)
                return handle
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        if delay is None:
            raise TypeError("delay must not be None")
        return self._timer(self.run.clock[1] + delay, delay, Handle(self, callback, args, context))

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        if when is None:
            raise TypeError("when cannot be None")
        return self._timer(when, when - self.run.clock[1], Handle(self, callback, args, context))

    def _timer(self, when: float, lasts: float, handle: Handle) -> Handle:
        run = self.run
        self._completion("timer", when, handle)
        handle.lasts = lasts = round(max(0.0, lasts), 9)
        if self._timers:
            handle.before = tuple(
                other
                for other in self._timers
                if other.lasts <= lasts and not other._cancelled and self._created_earlier(other.creator, run.index)
            )
        heapq.heappush(self._timers, handle)
        if run.recording and (args := handle.args) and isinstance(args[0], asyncio.Future):
            recorder.names.due(args[0], handle.proc.key)
        return handle

    def _created_earlier(self, step: int, index: int) -> bool:
        """Whether `step` comes before the running step `index` in every schedule; no other timing is known for sure."""
        run = self.run
        if step == index or step < 0:
            return True
        if run.model.label == "stock" and run.links[step][2] == run.links[index][2]:
            return True  # both follow from one delivery: FIFO leaves no choice between them
        return run.led_to(step, index)

    def _completion(self, cause: str, when: float, handle: Handle) -> Handle:
        """`handle` as something that arrives later, the next such of whoever runs now."""
        self._check_callback(handle.callback)
        run = self.run
        current = run.current
        assert current is not None
        current.timers += 1
        self._seq += 1
        if run.stretch != 1.0:
            when = run.clock[1] + (when - run.clock[1]) * run.stretch
        handle.cause, handle.creator = cause, run.index
        handle.deadline, handle.seq = when, self._seq
        handle.clock = (run.clock[0], max(when, run.clock[1]))
        handle.owner, handle.ordinal = current.key, current.timers
        handle.proc = self._callback_proc(current, "timer")
        return handle

    def _check_callback(self, callback: Any) -> None:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        if is_plain(callback):
            return
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
            if isinstance(task, asyncio.Task) and self.proc_of(task) is None:  # started eagerly, and not scheduled
                self._adopt(task, self._new_task_proc(coro, name))
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
    return for_people(str(getattr(inner, "__qualname__", type(inner).__name__)))


class _StockOrder:
    def choose(self, options: list[Handle | None], run: Run) -> int:
        return 0
