"""One execution of an asyncio program under a chosen schedule: the controlled event loop.

Transition system. A *step* is one handle run to its end (a task's step from one suspension to the next, a callback, a
timer's callback). The loop keeps stock asyncio's structure (`base_events._run_once`): a FIFO ready queue worked off in
rounds, completions appended at round boundaries. Three models differ only in what is a choice:

  stock    which pending completions are delivered at a boundary. Timers come in deadline order and never early; delivering
           one while the loop is busy means the loop was stalled until then: that time is summed up as *lateness*.
           Equal virtual deadlines may fall into different rounds (real clocks move between two `call_later`).
  latency  also: a bare yield (`sleep(0)`) may take time. It becomes a completion of free length.
  reorder  also: any ready handle may run next. A handle that was passed over `bypass_bound` times by younger ones runs at
           once (fairness). Two callbacks of one future keep their order: stock transports rely on it. asyncio's own
           callbacks (gather, wait, TaskGroup, shield) run inside the step that caused them; as separate steps they would
           only multiply equivalent interleavings.

Option 0 of every choice is what a stock loop would do with infinitely fast steps, so a schedule is the sparse list of its
deviations. Time is virtual. Tasks and futures are asyncio's own C ones. Thread work (`to_thread`, `run_in_executor`) runs to
its end when its completion is delivered; one that waits for the loop itself is left in flight. The loop object is reused.

Prior art: CHESS (Musuvathi et al., OSDI 2008) for deterministic re-execution, NodeRacer (Endo, Moller, ICST 2020) and
loom/shuttle for the shape. Rejected: subclassing BaseEventLoop (its heap, selector and clock are what must be controlled).
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import sys
import threading
import weakref
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol

from chaossloth.evidence import DeadlockReport
from chaossloth.loop.identity import callback as callback_identity
from chaossloth.loop.identity import child as child_identity
from chaossloth.subject.channel import guard
from chaossloth.subject.record import recorder

__all__ = ["Chooser", "ControlledLoop", "Handle", "LoopStopped", "Model", "Nondeterminism", "Proc", "RawStep", "Run"]

MAX_STEPS = 20_000
DEFAULT_BYPASS_BOUND = 8
DEFAULT_STALL_S = 0.1
_REAL_WAIT_S = 20.0


class LoopStopped(BaseException):
    """Raised out of `run_forever` when the execution ends before its main future: deadlock, step limit, unsupported call.

    A BaseException so that no `except Exception` of the subject turns a deadlock into a passing test.
    """

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


class Nondeterminism(LoopStopped):
    """A replayed schedule does not fit the execution."""


@dataclass(frozen=True, slots=True)
class Model:
    """Which orders are explored; see the module docstring. stall_s: longest single stall (seconds)."""

    label: str = "stock"
    bypass_bound: int = DEFAULT_BYPASS_BOUND
    stall_s: float = DEFAULT_STALL_S
    max_steps: int = MAX_STEPS


class Proc:
    """A task or callback: its identity in every execution, and the counters from which its children's follow.

    name: the task's given name, else its coroutine's; label: the same made unique, equal in every execution.
    """

    __slots__ = ("key", "label", "number", "name", "ref", "tasks", "callbacks", "timers", "yields", "steps", "is_task")

    def __init__(self, key: str, number: int, name: str, is_task: bool, given: bool = False) -> None:
        self.key = key
        self.number = number
        self.name = name
        self.label = name if given or "." not in key else f"{name} #{key.rpartition('.')[2]}"
        self.is_task = is_task
        self.ref: weakref.ref[asyncio.Task[Any]] | None = None
        self.tasks = self.callbacks = self.timers = self.yields = self.steps = 0


class Handle:
    """asyncio.Handle and TimerHandle in one; `kind` says what it is to the scheduler."""

    __slots__ = ("callback", "args", "context", "_cancelled", "proc", "creator", "cause", "deadline", "seq", "passed", "label", "loop", "owner", "ordinal")

    def __init__(
        self, loop: ControlledLoop, callback: Callable[..., Any], args: tuple[Any, ...], context: contextvars.Context | None
    ) -> None:
        self.loop = loop
        self.callback = callback
        self.args = args
        self.context = context if context is not None else contextvars.copy_context()
        self._cancelled = False
        self.passed = 0
        self.deadline = 0.0
        self.label = ""
        self.owner = ""
        self.ordinal = 0

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self.callback = _nothing
            self.args = ()

    def cancelled(self) -> bool:
        return self._cancelled

    def when(self) -> float:
        return self.deadline

    def get_context(self) -> contextvars.Context:
        return self.context

    def __lt__(self, other: Handle) -> bool:
        return (self.deadline, self.seq) < (other.deadline, other.seq)


def _nothing(*_: Any) -> None:
    return None


class Chooser(Protocol):
    """A strategy: picks one of at least two options. Must be a function of its own state and its arguments alone."""

    def choose(self, options: list[Handle | None], run: Run) -> int:
        """options[0] is stock order; None stands for "deliver nothing now". Returns an index."""
        ...


@dataclass(slots=True)
class RawStep:
    proc: Proc
    ordinal: int
    creator: int
    cause: str
    accesses: list[Any]
    suspended: Any = None


@dataclass(slots=True)
class Run:
    """All state of one execution; shared by the loops a synchronous subject may open one after another."""

    model: Model
    chooser: Chooser
    recording: bool = True
    detail: bool = False
    now: float = 0.0
    lateness: float = 0.0
    bypass: int = 0
    count: int = 0
    options: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    order: list[tuple[str, str]] = field(default_factory=list)  # (proc key, cause) per step
    groups: list[list[tuple[str, int]]] = field(default_factory=list)  # timers delivered together: (task identity, n)
    extended: list[tuple[str, int]] = field(default_factory=list)  # bare yields that took time
    stalls: list[tuple[str, int, float]] = field(default_factory=list)  # (proc key, step ordinal, seconds)
    steps: list[RawStep] = field(default_factory=list)
    procs: list[Proc] = field(default_factory=list)
    problems: list[dict[str, Any]] = field(default_factory=list)
    real_io: set[str] = field(default_factory=set)
    current: Proc | None = None
    index: int = -1
    task_names: int = 0
    judging: bool = True
    deadlock: DeadlockReport | None = None
    ended: LoopStopped | None = None
    on_stop: Callable[[LoopStopped, ControlledLoop], None] | None = None

    def stopped_by(self, stopped: LoopStopped, loop: ControlledLoop) -> None:
        """The first stop decides the outcome; what runs afterwards (the subject's own cleaning up) is not judged."""
        if self.ended is None:
            self.ended = stopped
            if self.on_stop is not None:
                self.on_stop(stopped, loop)
        self.judging = False
        self.recording = False

    def decide(self, options: list[Handle | None]) -> int:
        taken = self.chooser.choose(options, self)
        self.options.append(len(options))
        self.taken.append(taken)
        return taken


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


class ControlledLoop(asyncio.AbstractEventLoop):
    """An event loop that runs one `Run` at a time; `begin(run)` makes it new."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._debug = False
        self._condition = threading.Condition()
        self._asyncgens: weakref.WeakSet[Any] = weakref.WeakSet()
        self._task_factory: Any = None
        self._exception_handler: Any = None
        self._default_executor: Any = None
        self.begin(Run(Model(), _Stock()))

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
            handle.proc = self._proc(callback_identity(current.key, current.callbacks), _callback_name(callback), False)
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

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None) -> Any:
        if threading.get_ident() == self._thread_id or self._thread_id is None:
            return self.call_soon(callback, *args, context=context)
        handle = Handle(self, callback, args, context)
        with self._condition:
            self._threadsafe.append(handle)
            self._condition.notify_all()
        return handle

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None) -> Any:
        if delay is None:
            raise TypeError("delay must not be None")
        return self.call_at(self.run.now + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None) -> Any:
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

    def create_task(self, coro: Any, *, name: str | None = None, context: contextvars.Context | None = None, **kwargs: Any) -> Any:
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

    # ------------------------------------------------------------------ threads

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """The body runs to its end when the schedule delivers its completion; see the module docstring."""
        self._check_callback(func)
        future = self.create_future()
        handle = self.call_at(0.0, self._thread_body, executor, func, args, future)
        self._timers.remove(handle)
        heapq.heapify(self._timers)
        handle.cause = "external"
        handle.label = "x" + handle.label[1:]
        self._free.append(handle)
        return future

    def _thread_body(self, executor: Any, func: Callable[..., Any], args: tuple[Any, ...], future: asyncio.Future[Any]) -> None:
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
                future.set_exception(RuntimeError("coroutine raised StopIteration") if isinstance(value, StopIteration) else value)

        thread = threading.Thread(target=body, daemon=True, name="chaossloth-executor")
        with self._condition:
            thread.start()
            self._condition.wait_for(lambda: box or self._threadsafe, timeout=_REAL_WAIT_S)
        if box:
            thread.join()
            finish()
            return
        self._in_flight += 1  # it waits for the loop: let the loop go on, the completion arrives by itself
        self.run.real_io.add("threads that wait for the loop")

        def waiter() -> None:
            thread.join()
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
            current.callbacks += 1
            handle.proc = self._proc(callback_identity(current.key, current.callbacks), _callback_name(handle.callback), False)
            self._ready.append(handle)

    def _other_threads(self) -> bool:
        return self._in_flight > 0 or any(
            t.is_alive() and not t.daemon and t is not threading.main_thread() for t in threading.enumerate()
        )

    # ------------------------------------------------------------------ running

    def run_forever(self) -> None:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        if self._running:
            raise RuntimeError("This event loop is already running")
        if events._get_running_loop() is not None:
            raise RuntimeError("Cannot run the event loop while another loop is running")
        old_hooks = sys.get_asyncgen_hooks()
        self._running = True
        self._thread_id = threading.get_ident()
        sys.set_asyncgen_hooks(firstiter=self._asyncgens.add, finalizer=self._finalize_asyncgen)
        events._set_running_loop(self)
        try:
            while not self._stopping:
                self._round()
        except LoopStopped as stopped:
            self.run.stopped_by(stopped, self)
            raise
        finally:
            guard.step_started = None
            self._stopping = False
            self._running = False
            self._thread_id = None
            events._set_running_loop(None)
            sys.set_asyncgen_hooks(*old_hooks)

    def run_until_complete(self, future: Any) -> Any:
        new_task = not asyncio.isfuture(future)
        task = asyncio.ensure_future(future, loop=self)
        if new_task and hasattr(task, "_log_destroy_pending"):
            task._log_destroy_pending = False
        stop = self._stop_when_done
        task.add_done_callback(stop)
        try:
            self.run_forever()
        except BaseException:
            if new_task and task.done() and not task.cancelled():
                task.exception()
            raise
        finally:
            task.remove_done_callback(stop)
        if not task.done():
            raise RuntimeError("Event loop stopped before Future completed.")
        return task.result()

    def _stop_when_done(self, future: asyncio.Future[Any]) -> None:
        if not future.cancelled() and isinstance(future.exception(), (SystemExit, KeyboardInterrupt)):
            return
        self._stopping = True

    _stop_when_done.__module__ = "asyncio.base_events"  # folded in `reorder` like the stock loop's own

    def _round(self) -> None:
        if self._threadsafe:
            self._take_threadsafe()
        self._deliver()
        batch = len(self._ready)
        ready = self._ready
        for _ in range(batch):
            if not ready:
                break
            handle = self._pick() if self._reorder and len(ready) + len(self._timers) + len(self._free) > 1 else ready.popleft()
            if handle._cancelled:
                continue
            self._execute(handle)
            if self._stopping and self._reorder:
                break

    def _deliver(self) -> None:
        """The round boundary: due completions join the ready queue; which others do is the schedule's choice."""
        run = self.run
        ready = self._ready
        stop: list[Handle | None] = [None]
        group: list[tuple[str, int]] = []
        while True:
            timers = self._timers
            while timers and timers[0]._cancelled:
                heapq.heappop(timers)
            self._free = [h for h in self._free if not h._cancelled] if self._free else self._free
            free = self._free
            if not timers and not free:
                break
            first = timers[0] if timers else None
            if first is not None and first.deadline < run.now:
                self._arrive(first, group)
                continue
            idle = not ready
            due = first is not None and first.deadline <= run.now
            if not run.judging:
                if idle or due:
                    self._arrive(free[0] if free else first, group)  # type: ignore[arg-type]
                    continue
                break
            if self._reorder and not idle and not due:
                break  # `_pick` offers early completions before every step
            near = first is not None and (idle or first.deadline - run.now <= run.model.stall_s)
            options: list[Handle | None] = []
            if due:
                options = [first, *stop, *free] if not idle else [first, *free]
            elif idle:
                options = [*free, first] if near else list(free)
            else:
                options = [None, first, *free] if near else [None, *free]
            taken = run.decide(options) if len(options) > 1 else 0
            choice = options[taken]
            if choice is None:
                break
            self._arrive(choice, group)
        if group:
            run.groups.append(group)
        if not ready:
            self._nothing_ready()

    def _arrive(self, handle: Handle, group: list[tuple[str, int]]) -> None:
        """Deliver one completion. Where that happens while the loop is busy, the step before it took that long."""
        run = self.run
        wait = 0.0
        stalls = bool(self._ready) and not group
        if handle.cause == "timer":
            if handle is self._timers[0]:
                heapq.heappop(self._timers)
            else:
                self._timers.remove(handle)
                heapq.heapify(self._timers)
            group.append((handle.owner, handle.ordinal))
            wait = max(0.0, handle.deadline - run.now)
            run.now += wait
            run.lateness += wait if self._ready else 0.0
        else:
            self._free.remove(handle)
            if handle.cause == "yield":
                group.append((handle.proc.key, -handle.proc.yields))
            else:
                group.append((handle.owner, handle.ordinal))
        if stalls and run.current is not None:
            run.stalls.append((run.current.key, run.current.steps, wait))
        self._ready.append(handle)

    def _nothing_ready(self) -> None:
        """No handle, no timer: real threads may still deliver; else this is a deadlock."""
        if self._other_threads():
            self.run.real_io.add("threads")
            with self._condition:
                self._condition.wait_for(lambda: self._threadsafe or not self._other_threads(), timeout=_REAL_WAIT_S)
            if self._threadsafe:
                return
        if self._threadsafe:
            return
        raise LoopStopped("deadlock", "nothing can ever run again: no ready handle, no timer")

    def _pick(self) -> Handle:
        """`reorder`: any ready handle, or a completion that arrives now."""
        run = self.run
        ready = self._ready
        while ready and ready[0]._cancelled:
            ready.popleft()
        if not ready:
            return _CANCELLED
        bound = run.model.bypass_bound
        options: list[Handle | None] = []
        futures: set[int] = set()
        for handle in ready:
            if handle._cancelled:
                continue
            if handle.passed >= bound:
                options = [handle]
                break
            args = handle.args
            if args and isinstance(args[0], asyncio.Future):
                if id(args[0]) in futures:
                    continue
                futures.add(id(args[0]))
            options.append(handle)
        if run.judging and not (len(options) == 1 and options[0] is not None and options[0].passed >= bound):
            first = self._timers[0] if self._timers else None
            if first is not None and not first._cancelled and first.deadline - run.now <= run.model.stall_s:
                options.append(first)
            options.extend(h for h in self._free if not h._cancelled)
        taken = run.decide(options) if len(options) > 1 and run.judging else 0
        chosen = options[taken]
        assert chosen is not None
        if chosen.cause == "timer" and chosen in self._timers or chosen in self._free:
            group: list[tuple[str, int]] = []
            self._arrive(chosen, group)
            run.groups.append(group)
            ready.pop()
            for handle in ready:
                handle.passed += 1
        else:
            for handle in ready:
                if handle is chosen:
                    break
                handle.passed += 1
            ready.remove(chosen)
        if ready:
            run.bypass = max(run.bypass, max(handle.passed for handle in ready))
        return chosen

    def _execute(self, handle: Handle) -> None:
        run = self.run
        proc = handle.proc
        if run.count >= run.model.max_steps + (0 if run.judging else 2_000):
            raise LoopStopped("livelock", f"{run.count} steps were made and the program did not end")
        proc.steps += 1
        run.current = proc
        run.index = run.count
        run.count += 1
        run.order.append((proc.key, handle.cause))
        recording = run.recording
        guard.step_started = monotonic()
        if recording:
            recorder.begin_step(proc.number, proc.steps)
        self._call(handle)
        while self._folded:
            folded = self._folded.pop(0)
            if not folded._cancelled:
                self._call(folded)
        if recording:
            step = RawStep(proc, proc.steps, handle.creator, handle.cause, recorder.end_step())
            run.steps.append(step)
            if run.detail and proc.is_task:
                step.suspended = _position(proc)

    def _call(self, handle: Handle) -> None:
        try:
            handle.context.run(handle.callback, *handle.args)
        except (SystemExit, KeyboardInterrupt, LoopStopped):
            raise
        except BaseException as error:
            self.call_exception_handler(
                {"message": f"Exception in callback {_callback_name(handle.callback)}", "exception": error, "handle": handle}
            )

    # ------------------------------------------------------------------ the rest of the loop's interface

    def time(self) -> float:
        return self.run.now

    def stop(self) -> None:
        self._stopping = True

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        if self._running:
            raise RuntimeError("Cannot close a running event loop")
        self._closed = True
        self._ready.clear()
        self._timers.clear()
        self._free.clear()

    def get_debug(self) -> bool:
        return self._debug

    def set_debug(self, enabled: bool) -> None:
        self._debug = False  # debug mode reads real clocks and formats every handle

    def get_exception_handler(self) -> Any:
        return self._exception_handler

    def set_exception_handler(self, handler: Any) -> None:
        self._exception_handler = handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.run.problems.append(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._exception_handler is None:
            self.default_exception_handler(context)
        else:
            self._exception_handler(self, context)

    def _finalize_asyncgen(self, agen: Any) -> None:
        self._asyncgens.discard(agen)
        if not self._closed:
            self.call_soon_threadsafe(self.create_task, agen.aclose())

    async def shutdown_asyncgens(self) -> None:
        agens = list(self._asyncgens)
        self._asyncgens.clear()
        if agens:
            await asyncio.gather(*(agen.aclose() for agen in agens), return_exceptions=True)

    def add_signal_handler(self, sig: int, callback: Any, *args: Any) -> None:
        self.run.real_io.add("signal handlers (never fire under control)")

    def remove_signal_handler(self, sig: int) -> bool:
        return False

    # ------------------------------------------------------------------ after the main future

    def drain(self) -> None:
        """What `asyncio.run` does at its end: cancel what is left, let it finish in stock order; close what will not."""
        self.run.judging = False
        self.run.recording = False
        left = self.unfinished()
        if left:
            for task in left:
                task.cancel()
            try:
                self._reorder = self._latency = False
                self.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            except LoopStopped:
                pass  # a task that refuses to end: closed below, its outcome was judged already
            except RuntimeError as error:
                self.run.problems.append({"message": f"while cancelling what was left: {error}", "exception": None})
        for task in self.unfinished():
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            _close_quietly(task.get_coro())
        self._ready.clear()
        self._timers.clear()
        self._free.clear()

    def unfinished(self) -> list[asyncio.Task[Any]]:
        tasks = [proc.ref() for proc in self.run.procs if proc.ref is not None]
        return [t for t in tasks if t is not None and not t.done() and t.get_loop() is self]


def _close_quietly(coro: Any) -> None:
    """`close()` of a coroutine that ignores GeneratorExit raises RuntimeError: the execution is over, nothing is lost."""
    try:
        coro.close()
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise


def _thread_pool() -> type:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor


def _callback_name(callback: Any) -> str:
    inner = getattr(callback, "func", callback)
    return str(getattr(inner, "__qualname__", type(inner).__name__)).rsplit("<locals>.", 1)[-1]


def _position(proc: Proc) -> Any:
    """Frames of the suspended coroutine chain of `proc`'s task, outermost first; None when it has ended."""
    task = proc.ref() if proc.ref is not None else None
    if task is None or task.done():
        return None
    frames: list[tuple[str, int, str]] = []
    awaited: Any = task.get_coro()
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None) or getattr(awaited, "ag_frame", None)
        if frame is not None:
            frames.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname))
        awaited = (
            getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None) or getattr(awaited, "ag_await", None)
        )
    return frames


class _Stock:
    def choose(self, options: list[Handle | None], run: Run) -> int:
        return 0


class _Idle(Handle):
    __slots__ = ()

    def __init__(self) -> None:
        self._cancelled = True


_CANCELLED: Handle = _Idle()

_UNSUPPORTED = (
    "create_connection create_server create_unix_connection create_unix_server create_datagram_endpoint connect_accepted_socket"
    " sock_recv sock_recv_into sock_recvfrom sock_sendall sock_sendto sock_connect sock_accept sock_sendfile sendfile start_tls"
    " add_reader add_writer remove_reader remove_writer connect_read_pipe connect_write_pipe subprocess_exec subprocess_shell"
    " getaddrinfo getnameinfo"
).split()


def _unsupported(name: str) -> Callable[..., Any]:
    def refuse(self: ControlledLoop, *args: Any, **kwargs: Any) -> Any:
        stopped = LoopStopped("unsupported", f"the subject uses real I/O (loop.{name}), which this version cannot control")
        self.run.stopped_by(stopped, self)  # here: a task would keep the exception to itself
        raise stopped

    refuse.__name__ = refuse.__qualname__ = name
    return refuse


for _name in _UNSUPPORTED:
    setattr(ControlledLoop, _name, _unsupported(_name))


Main = Coroutine[Any, Any, Any]
