"""The stock loop with the lightest hooks that can tell which task runs, how long, and where it waits.

The loop is asyncio's own selector loop, untouched but for instance attributes. Two things are substituted:

* Its selector, by `QuietSelector`: a deadlock raises instead of blocking for ever.
* The coroutine of each task, by a delegate (`collections.abc.Coroutine`, which asyncio accepts). `send` and `throw` are
  exactly the steps of the task. A hook on handles would see more and cost every callback; a `sys.monitoring` hook would
  cost every function. The delegate keeps no task alive, shows the coroutine's names and frames, and adds one frame of
  its own at the outer end of tracebacks.

A suspension site is the deepest frame of the subject in the chain of awaited coroutines. Ready-queue latency is taken
from the return of the poll to the start of the step, so it is the time spent queueing inside one round (a lower bound
for steps that were scheduled in the round before).
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, nullcontext
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType
from typing import Any, Protocol, cast

from chaossloth.evidence import Frame, Outcome
from chaossloth.loop import identity, uvloops
from chaossloth.loop.auditing import StockAudit
from chaossloth.loop.collecting import was_destroyed
from chaossloth.loop.quiet import NothingRunnable, QuietSelector, TimeIsUp
from chaossloth.loop.virtual import real_monotonic as monotonic
from chaossloth.loop.virtual import real_monotonic_ns as monotonic_ns
from chaossloth.subject.channel import guard
from chaossloth.subject.unawaited import Unawaited, UnawaitedWatch

__all__ = [
    "Actor",
    "Program",
    "StepWatch",
    "StockPolicy",
    "StockRun",
    "stock_policy",
]

_CLEAN_UP_S = 1.0  # what a finished run may take to cancel its tasks
_ASYNCIO = asyncio.__file__.rpartition("/")[0] + "/"


class Program(Protocol):
    """What is executed; see `subject.entry.Program`."""

    kind: Any

    def make(self) -> Coroutine[Any, Any, Any]: ...

    def call(self) -> Any: ...

    def judge(self, result: Any, error: BaseException | None) -> Outcome: ...


class StepWatch(Protocol):
    """What is told about each step, e.g. `starvation.Watchdog`: by two writes, so that a step costs no call."""

    started_ns: int  # monotonic_ns at the start of the running step, 0 between steps
    threshold_ns: int

    def too_long(self, started: int, length: int, where: Frame | None) -> None: ...


class StockPolicy(asyncio.DefaultEventLoopPolicy):
    """The default policy with another factory for loops, so that the subject's own `asyncio.run` gets hooked loops."""

    def __init__(self, loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
        super().__init__()
        self._chosen_factory = loop_factory

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return self._chosen_factory()


@contextmanager
def stock_policy(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> Iterator[None]:
    """`StockPolicy(loop_factory)` for the time of the block."""
    before = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(StockPolicy(loop_factory))
    try:
        with uvloops.loops_from(loop_factory):
            yield
    finally:
        asyncio.set_event_loop_policy(before)


class Actor:
    """A task or a callback: its stable identity, and how much of each kind it has made so far."""

    __slots__ = ("callbacks", "identity", "steps", "tasks", "timers", "yields")

    def __init__(self, name: str) -> None:
        self.identity = name
        self.tasks = self.callbacks = self.timers = self.yields = self.steps = 0


class StockRun:
    """One run on fresh stock loops: makes the loops, follows the tasks, keeps the figures.

    suspended_ns: nanoseconds that tasks were suspended, by (file, line).
    queued_ns:    longest ready-queue latency.
    switches:     how many steps tasks made.
    longest:      (nanoseconds, where the step ended, or the function that ran) of the longest step.
    audit:        what was seen of holders and waits; None for a run without hooks.
    """

    def __init__(
        self,
        is_subject: Callable[[str], bool],
        limit_s: float | None = None,
        *,
        hooked: bool = True,
        step_watch: StepWatch | None = None,
    ) -> None:
        self.suspended_ns: dict[tuple[str, int], int] = {}
        self.queued_ns = 0
        self.switches = 0
        self.longest: tuple[int, Frame | None] = (0, None)
        self.current = self.outside = Actor("")
        self.elsewhere = Actor(identity.UNHOOKED)  # creator of tasks made by callbacks that carry no identity
        self.judging = True
        self.problems: list[dict[str, Any]] = []
        self.main_ended: list[BaseException] = []  # how main coroutines ended: StopIteration holds a result
        self.stop: NothingRunnable | TimeIsUp | None = None  # the first stop while the run was judged
        self.waiting: list[tuple[str, Frame]] = []  # name and place of each task at that stop
        self.unawaited: tuple[Unawaited, ...] = ()
        self.hung_at_end: list[tuple[str, Frame]] = []  # tasks that were cancelled at the end and wait for ever
        self.step_watch = step_watch
        self.audit = StockAudit(self._stopped, lambda: self.switches) if hooked else None
        self.selector: QuietSelector | None = None
        self._is_subject = is_subject
        self._known_files: dict[str, bool] = {}
        self._limit_s = limit_s
        self._hooked = hooked
        self._tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self._dead: list[asyncio.Task[Any]] = []
        self._main_coroutine: Any = None
        self._opened = monotonic()

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """A fresh selector loop of this run (a synchronous subject may ask for several)."""
        self.selector = selector = QuietSelector(self._stopped)
        if self._limit_s is not None:
            selector.limit(max(0.001, self._limit_s - (monotonic() - self._opened)))
        loop = asyncio.SelectorEventLoop(selector)
        loop.set_exception_handler(self._on_problem)
        _count_thread_work(loop, selector)
        self.judging = True
        if self._hooked:
            self.hook(loop, selector)
        return loop

    def hook(self, loop: asyncio.AbstractEventLoop, selector: QuietSelector) -> None:
        """Put the delegate around the coroutine of each new task. By `create_task`, so that factories stay free."""
        create = loop.create_task

        def create_task(coro: Any, **kwargs: Any) -> asyncio.Task[Any]:
            if not asyncio.iscoroutine(coro):
                return create(coro, **kwargs)
            creator = self.current
            main = creator is self.outside and not loop.is_running()
            if main and _is_asyncios(coro):
                return create(coro, **kwargs)
            if creator is self.outside and not main:
                creator = self.elsewhere
            creator.tasks += 1
            name = identity.outside(creator.tasks) if main else identity.child(creator.identity, creator.tasks)
            if main:
                self._main_coroutine = coro
            delegate = _Delegate(self, selector, coro, Actor(name), main)
            task = create(delegate, **kwargs)
            self._tasks.add(task)
            return task

        loop.create_task = create_task  # type: ignore[method-assign]

    # ------------------------------------------------------------------ what the delegate tells

    def step_ended(self, delegate: _Delegate, started: int, ended: int) -> None:
        """After each step: longest step, ready-queue latency."""
        self.switches += 1
        if ended - started > self.longest[0]:
            self.longest = (ended - started, delegate.position())
        queued = started - delegate.selector.polled_ns
        if queued > self.queued_ns:
            self.queued_ns = queued

    def suspended(self, delegate: _Delegate, yielded: Any) -> Any:
        """After a step that did not end its task: may put another future in the place of what it waits for."""
        return yielded

    def main_has_ended(self, selector: QuietSelector, error: BaseException) -> None:
        """From here on nothing is judged. Tasks that died before are looked at again when the loop is closed."""
        self.main_ended.append(error)
        self._dead += [task for task in self._tasks if _died(task)]
        self._end_judging(selector)

    def _stopped(self, stop: NothingRunnable | TimeIsUp) -> None:
        """The run is about to be given up: note where each task waits, and let `asyncio.run` clean up."""
        pending = sorted((t for t in self._tasks if not t.done()), key=_identity)
        if not self.judging and self.stop is None and isinstance(stop, NothingRunnable):
            self.hung_at_end = self.hung_at_end or _places(pending)
        if self.judging and self.stop is None:
            self.stop = stop
            self.waiting = _places(pending)
            if self.audit is not None and isinstance(stop, NothingRunnable):
                self.audit.describe(pending)
        if self.selector is not None:
            self._end_judging(self.selector)

    def _end_judging(self, selector: QuietSelector) -> None:
        self.judging = False
        if self._limit_s is not None:
            selector.limit(_CLEAN_UP_S)

    def _on_problem(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not self.judging or (was_destroyed(context) and self._main_is_over()):
            return
        self.problems.append(context)

    def _main_is_over(self) -> bool:
        """Its frame is gone, and with it what it held, although nobody was told yet."""
        return getattr(self._main_coroutine, "cr_frame", self) is None

    def site(self, coroutine: Any) -> FrameType | None:
        """Deepest frame of the subject in a suspended chain of awaits, None when there is none."""
        found = None
        while True:
            kind = type(coroutine)
            if kind is CoroutineType:
                frame, awaited = coroutine.cr_frame, coroutine.cr_await
            elif kind is GeneratorType:
                frame, awaited = coroutine.gi_frame, coroutine.gi_yieldfrom
            elif kind is AsyncGeneratorType:
                frame, awaited = coroutine.ag_frame, coroutine.ag_await
            else:
                return found
            if frame is not None and self.is_subject(frame.f_code.co_filename):
                found = frame
            coroutine = awaited

    def is_subject(self, filename: str) -> bool:
        known = self._known_files.get(filename)
        if known is None:
            known = self._known_files[filename] = self._is_subject(filename)
        return known

    # ------------------------------------------------------------------ the whole run

    def execute(self, program: Program) -> tuple[Any, BaseException | None]:
        """Run the program to its end under this run's loops: its result, or the exception that ended it.

        Any exception is the subject's own, KeyboardInterrupt too: Ctrl-C goes to the command, never to this process.
        Whatever tasks are left are cancelled by `asyncio.run`.
        """
        result: Any = None
        error: BaseException | None = None
        unawaited = UnawaitedWatch(self._is_subject)
        unawaited.start()
        watching = nullcontext() if self.audit is None else self.audit.watching(self._is_subject)
        with stock_policy(self.new_loop), watching:
            try:
                result = program.call() if program.kind == "sync" else asyncio.run(program.make())
            except BaseException as raised:
                error = raised
        self.unawaited = unawaited.stop()
        guard.step_started = None
        if program.kind != "sync" and self.main_ended and self.stop is None:
            result, error = _main_result(self.main_ended[0])  # what then refused to be cancelled is not judged
        self._silence()
        return result, error

    def _silence(self) -> None:
        for task in list(self._tasks):
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]

    def unretrieved(self) -> list[BaseException]:
        """Exceptions of tasks that died before the main task ended, and of callbacks, that nobody has looked at."""
        found = [problem["exception"] for problem in self.problems if problem.get("exception") is not None]
        dead = self._dead if self.main_ended else [task for task in self._tasks if _died(task)]
        for task in dead:
            if _died(task):
                error = task.exception()
                if error is not None:
                    found.append(error)
        self._dead = []
        return found

    def destroyed(self) -> list[str]:
        """Messages about tasks that were collected by the garbage collector while they were pending."""
        return [str(problem["message"]) for problem in self.problems if was_destroyed(problem)]


def _places(tasks: list[asyncio.Task[Any]]) -> list[tuple[str, Frame]]:
    delegates = [cast(_Delegate, task.get_coro()) for task in tasks]
    return [(each.name(), frame) for each in delegates if (frame := each.position()) is not None]


def _identity(task: asyncio.Task[Any]) -> str:
    return cast(_Delegate, task.get_coro()).actor.identity


def _count_thread_work(loop: asyncio.AbstractEventLoop, selector: QuietSelector) -> None:
    """Tell the selector of work that threads do for this loop: what is queued for a thread cannot be seen on it."""
    run_in_executor = loop.run_in_executor

    def counted(executor: Any, function: Callable[..., Any], *args: Any) -> Any:
        future = run_in_executor(executor, function, *args)
        selector.in_threads.add(future)
        return future

    loop.run_in_executor = counted  # type: ignore[method-assign, assignment]


def _died(task: asyncio.Task[Any]) -> bool:
    """True when the task ended with an exception that nobody has retrieved."""
    return task.done() and bool(task._log_traceback)


def _main_result(ended: BaseException) -> tuple[Any, BaseException | None]:
    return (ended.value, None) if isinstance(ended, StopIteration) else (None, ended)


def _is_asyncios(coro: Any) -> bool:
    """The coroutines by which asyncio shuts a loop down are not the subject's."""
    code = getattr(coro, "cr_code", None)
    return code is not None and code.co_filename.startswith(_ASYNCIO)


class _Delegate(Coroutine[Any, Any, Any]):
    """Stands for a task's coroutine and reports each step of it; see the module docstring."""

    __slots__ = ("__weakref__", "_at", "_inner", "_main", "_run", "_since", "actor", "selector")

    def __init__(self, run: StockRun, selector: QuietSelector, inner: Any, actor: Actor, main: bool) -> None:
        self._run = run
        self._inner = inner
        self._main = main
        self._at: tuple[str, int] | None = None
        self._since = 0
        self.actor = actor
        self.selector = selector

    def send(self, value: Any, /) -> Any:
        return self._step(self._inner.send, value)

    def throw(self, *error: Any) -> Any:
        return self._step(self._inner.throw, *error)

    def _step(self, resume: Callable[..., Any], *args: Any) -> Any:
        run, actor = self._run, self.actor
        outer, run.current = run.current, actor
        actor.steps += 1
        outer_step = guard.step_started
        step_watch = run.step_watch
        started = monotonic_ns()
        if step_watch is not None:
            step_watch.started_ns = started
        if self._at is not None:
            run.suspended_ns[self._at] += started - self._since
            self._at = None
        guard.step_started = started * 1e-9
        try:
            yielded = resume(*args)
        except BaseException as error:
            if self._main:
                run.main_has_ended(self.selector, error)
            raise
        finally:
            ended = monotonic_ns()
            guard.step_started = outer_step
            run.current = outer
            run.step_ended(self, started, ended)
            if step_watch is not None:
                step_watch.started_ns = 0
                if ended - started > step_watch.threshold_ns:
                    step_watch.too_long(started, ended - started, self.position())
        frame = run.site(self._inner)
        if frame is not None:
            self._at = at = (frame.f_code.co_filename, frame.f_lineno)
            run.suspended_ns.setdefault(at, 0)
            self._since = ended
        return run.suspended(self, yielded)

    def position(self) -> Frame | None:
        """Where the task waits; the function alone (its first line) when it has ended."""
        frame = self._run.site(self._inner)
        if frame is not None:
            return Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname)
        code = getattr(self._inner, "cr_code", None)
        return None if code is None else Frame(code.co_filename, code.co_firstlineno, code.co_qualname)

    def name(self) -> str:
        """The coroutine's function, for people."""
        return str(getattr(self._inner, "__qualname__", type(self._inner).__name__)).rpartition("<locals>.")[2]

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return cast("Generator[Any, Any, Any]", self._inner.__await__())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __repr__(self) -> str:
        return repr(self._inner)
