"""Runs a program once under a strategy and says how it ended.

Everything that makes executions comparable is here: one reused loop, virtual sources seeded anew, the policy through
which a synchronous test's `asyncio.run` gets the controlled loop, module state made fresh when an execution is seen to
write it, and the end of a run: deadlock, step limit, exceptions nobody retrieved (looked for at the end, not when the
collector comes by).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import traceback
from asyncio import events
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any, Protocol

from chaossloth import evidence
from chaossloth.errors import ToolError
from chaossloth.evidence import Frame, Outcome
from chaossloth.explore.cancelled import deaths, judge_result, kept, was_expired, where_landed
from chaossloth.explore.schedule import Schedule, checksum
from chaossloth.explore.strategy import Deviate
from chaossloth.liveness import describe_blocked_loop, describe_deadlock, detect_livelock, suspended_at
from chaossloth.loop import controlled, real_io, uvloops
from chaossloth.loop.bodies import current_body
from chaossloth.loop.cancelling import Cancel, Injector, Victims
from chaossloth.loop.collecting import collecting, was_destroyed
from chaossloth.loop.controlled import ControlledLoop
from chaossloth.loop.ends import Ends
from chaossloth.loop.quiescence import follow_threads
from chaossloth.loop.run import Chooser, LoopStopped, Model, Run, for_people
from chaossloth.loop.scheduling import SchedulingLoop
from chaossloth.loop.virtual import sources
from chaossloth.subject.holdings import Wait
from chaossloth.subject.primitives import watch
from chaossloth.subject.record import recorder
from chaossloth.subject.running import innermost_own
from chaossloth.subject.unawaited import UnawaitedWatch

__all__ = ["Execution", "Executor", "Program", "display_names", "run_alone"]


# A coroutine that is kept and never awaited rarely depends on the order, and each look costs as much as a run.
_LOOKS = 3


class Program(Protocol):
    """What is executed; see `chaossloth.subject.entry`."""

    kind: str

    def make(self) -> Coroutine[Any, Any, Any]: ...

    def call(self) -> Any: ...

    def judge(self, result: Any, error: BaseException | None) -> Outcome: ...


class Execution:
    """One execution: its schedule (as taken), outcome, and the raw material of its trace.

    schedule: made when it is asked for; few executions are ever told about. truncated: it says nothing, because the
    step limit ended it under an order that need not be fair, or because something outside (a child, a peer) did not
    answer for longer than is waited. pruned: the strategy left it before its end, as equivalent to another or beyond
    the fairness bound; or what is real did not come again as it did. locks: how many it acquired. left: what still
    ran, or was left unfinished, at the end: sentences with their lines. landed: the subject's lines at which
    cancellations reached their tasks.
    """

    __slots__ = (
        "_schedule",
        "draws",
        "landed",
        "left",
        "lock_order",
        "locks",
        "outcome",
        "pruned",
        "run",
        "seed",
        "touched",
        "truncated",
    )

    def __init__(
        self,
        schedule: Schedule | int,
        outcome: Outcome,
        run: Run,
        draws: int,
        touched: frozenset[str],
        lock_order: tuple[evidence.LockOrderEdge, ...],
        truncated: bool = False,
        locks: int = 0,
        pruned: bool = False,
        left: frozenset[str] = frozenset(),
        landed: tuple[evidence.Frame | None, ...] = (),
    ) -> None:
        """schedule: or the seed of one that is what `run` has taken."""
        self._schedule: Schedule | None = schedule if isinstance(schedule, Schedule) else None
        self.seed: int = schedule.seed if isinstance(schedule, Schedule) else schedule
        self.outcome = outcome
        self.run = run
        self.draws = draws
        self.touched = touched
        self.lock_order = lock_order
        self.truncated = truncated
        self.locks = locks
        self.pruned = pruned
        self.left = left
        self.landed = landed

    @property
    def schedule(self) -> Schedule:
        if self._schedule is None:
            run = self.run
            deviations = tuple((i, taken) for i, taken in enumerate(run.taken) if taken)
            cancels = run.cancels.plan if run.cancels is not None else ()
            check = checksum(run.order)
            self._schedule = Schedule(run.model.label, self.seed, deviations, check, cancels, run.collect)  # type: ignore[arg-type]
        return self._schedule

    @property
    def failed(self) -> bool:
        return not self.outcome.ok and not self.truncated and not self.pruned


class _Policy(asyncio.DefaultEventLoopPolicy):
    """Hands controlled loops to `asyncio.run`: the reused one first, fresh ones if the subject opens more."""

    def __init__(self, loops: Callable[[], ControlledLoop]) -> None:
        super().__init__()
        self._loops = loops

    def new_event_loop(self) -> Any:
        return self._loops()


class Executor:
    """Executes one program.

    refresh: returns the program with its modules executed anew; used before each execution once state is seen to leak.
    is_subject: whether a file is the subject's. max_steps: where an execution ends as a livelock.
    """

    def __init__(
        self,
        program: Program,
        refresh: Callable[[], Program],
        is_subject: Callable[[str], bool],
        max_steps: int = 20_000,
    ) -> None:
        self.program = program
        self.refresh = refresh
        self.is_subject = is_subject
        self.max_steps = max_steps
        self.leaks: set[str] = set()
        self.unobservable: set[str] = set()
        self.real_io: set[str] = set()
        self.last_result: Any = None  # what the program returned; for comparisons made right after the run
        self.last_run: Run | None = None
        self.victims: Victims | None = None  # of cancellations; None: nobody looks where they could land
        self.cancels: tuple[Cancel, ...] = ()  # what the next executions add, see `like`
        self.collect = False  # whether the next executions collect before every step, see `like`
        self._stale = False
        self._unawaited = UnawaitedWatch(is_subject)
        self._ends = _LOOKS  # executions whose left-over tasks are tried without following them
        self._refuses = False  # one of them does not end when it is cancelled
        self._looks = _LOOKS  # executions at whose end coroutines are looked for that are still referenced
        follow_threads()
        uvloops.install()
        self._loop = ControlledLoop()
        self._extra: list[ControlledLoop] = []
        watch.task_name = self._task_label

    def execute(
        self, chooser: Chooser, model: Model, seed: int, detail: bool = False, record: bool = True
    ) -> Execution:
        """One execution."""
        if self._stale:
            self.program = self.refresh()
            self._stale = False
        enabled = gc.isenabled()
        gc.disable()  # a collection in the middle of a run would end unreferenced tasks at arbitrary steps
        try:
            run = self._new_run(model, chooser, self.cancels, record, detail, not self._refuses)
            self.last_run = run
            if run.collect:
                with collecting():
                    return self._execute(run, seed)
            execution = self._execute(run, seed)
            return self._with_its_end(execution) if record and run.ends.pending else execution
        finally:
            if enabled:
                gc.enable()

    def _new_run(
        self,
        model: Model,
        chooser: Chooser,
        cancels: tuple[Cancel, ...],
        record: bool,
        detail: bool = False,
        follow: bool = True,
    ) -> Run:
        collect = self.collect and record
        run = Run(model, chooser, recording=record, detail=detail, follow=follow, collect=collect)
        if self.victims is not None or cancels:
            self.victims = self.victims or Victims()
            run.cancels = Injector(self.victims, cancels)
        return run

    def _with_its_end(self, execution: Execution) -> Execution:
        """Where tasks were left and followed: the same schedule once more, but they are cancelled at once."""
        run = execution.run
        asked = run.follow and not run.detail and self._ends > 0
        if not asked or not execution.outcome.ok or not run.ends.pending:
            return execution
        self._ends -= 1
        if self._stale:
            self.program, self._stale = self.refresh(), False
        chooser = Deviate(dict(execution.schedule.deviations))
        again = self._execute(self._new_run(run.model, chooser, execution.schedule.cancels, False), execution.seed)
        if again.outcome.failure == "leak":
            self._refuses = True
            execution.outcome = again.outcome
        return execution

    def _execute(self, run: Run, seed: int) -> Execution:
        run.on_stop = self._on_stop
        recorder.start_run()
        recorder.enabled, recorder.detail = run.recording, run.detail
        if watch.active:
            watch.start_run()
            _watch_blocking(run)
        self._loop.begin(run)
        if self._extra:
            self._extra = []
        sources.enter(run.read_clock, _sleeping(run), seed, self._loop.task_key)
        real_io.start()
        self._unawaited.start(look_around=self._looks > 0)
        try:
            outcome = self._judge(run, *self._run())
            draws, touched = sources.drawn, frozenset(sources.touched) if sources.touched else _NOTHING
        finally:
            found = self._unawaited.stop()
            if seen := real_io.stop():
                run.real_io |= seen
            sources.leave()
            _leave_blocking()
            for loop in self._extra:
                loop.close_io()
            recorder.enabled = False
        if self._looks > 0 and not found:
            self._looks -= 1
        if outcome.ok and found and run.ended is None:
            outcome = Outcome(False, "leak", None, found[0].sentence, found[0].created)
        return self._finish(run, outcome, seed, draws, touched)

    def _finish(self, run: Run, outcome: Outcome, seed: int, draws: int, touched: frozenset[str]) -> Execution:
        for step in run.steps if not recorder.grown.isdisjoint(recorder.ordered) else ():
            recorder.commuting(step.accesses)
        if recorder.persistent_writes:
            self.leaks |= recorder.persistent_writes
        self._stale = bool(self.leaks)
        if recorder.unobservable:
            self.unobservable |= recorder.unobservable
        if run.real_io:
            self.real_io |= run.real_io
        ended = run.ended.kind if run.ended is not None else ""
        truncated = ended == "waited" or (ended == "livelock" and run.model.label == "reorder")
        edges, pruned = watch.lock_order(), ended == "pruned" or (ended == "diverged" and bool(run.real_io))
        ends = run.ends
        left = frozenset(_left_at_end(ends)) if ends.pending or ends.generators else _NOTHING
        landed = tuple(where_landed(each, self.is_subject) for each in run.cancels.landed) if run.cancels else ()
        return Execution(seed, outcome, run, draws, touched, edges, truncated, watch.locks_seen, pruned, left, landed)

    def _run(self) -> tuple[Any, BaseException | None]:
        try:
            if self.program.kind == "sync":
                return self._call_sync(), None
            return self._loop.run_until_complete(self.program.make()), None
        except MemoryError:
            raise
        except BaseException as error:  # KeyboardInterrupt too: Ctrl-C goes to the command, never to this process
            return None, error

    def _call_sync(self) -> Any:
        policy = events.get_event_loop_policy()
        asyncio.set_event_loop_policy(_Policy(self._next_loop))
        try:
            with uvloops.loops_from(self._next_loop):
                return self.program.call()
        finally:
            asyncio.set_event_loop_policy(policy)

    def _next_loop(self) -> ControlledLoop:
        if not self._extra:
            self._extra.append(self._loop)
            return self._loop
        loop = ControlledLoop()
        loop.begin(self._loop.run)
        self._extra.append(loop)
        return loop

    def _task_label(self, task: asyncio.Task[Any]) -> str:
        """Equal in every execution, unlike the names that asyncio counts up."""
        proc = self._loop.proc_of(task)
        if proc is None and self._extra:
            proc = next((found for loop in self._extra if (found := loop.proc_of(task)) is not None), None)
        return proc.label if proc is not None else task.get_name()

    # ------------------------------------------------------------------ how it ended

    @real_io.pause()  # what it imports and reads is the tool's own
    def _on_stop(self, stopped: LoopStopped, loop: SchedulingLoop) -> None:
        if stopped.kind != "deadlock":
            return
        shown = display_names(loop.run)
        names = {id(proc.ref()): shown[proc.key] for proc in loop.run.procs if proc.ref is not None}
        if isinstance(stopped, _BlockedLoop):
            report = describe_blocked_loop(stopped.wait, lambda task: names.get(id(task), task.get_name()))
        else:
            left = loop.unfinished()
            if isinstance(loop, ControlledLoop) and loop.run.cancels is not None and loop.run.cancels.after_main:
                left = loop.run.cancels.awaited(loop)
            report = describe_deadlock(left, lambda task: names.get(id(task), task.get_name()))
        loop.run.deadlock = report

    def _judge(self, run: Run, result: Any, error: BaseException | None) -> Outcome:
        self.last_result = result
        outcome = self._first_judgement(run, result, error)
        if outcome.ok:
            outcome = self._unretrieved(run) or self._kept(run) or outcome
        if run.cancels is not None and run.detail:
            run.cancels.died = deaths(run, self.is_subject)
        if self.program.kind != "sync" and not self._loop.is_closed():
            self._loop.drain()
        if outcome.ok and run.ends.stubborn:
            sentence, place = run.ends.stubborn[0]
            return Outcome(False, "leak", None, sentence, place)
        return outcome

    def _first_judgement(self, run: Run, result: Any, error: BaseException | None) -> Outcome:
        if run.collect and (collected := _collected(run)) is not None:
            return collected
        if run.ended is None:
            if error is not None and _is_ours(error):
                raise ToolError(f"{type(error).__name__} in the controlled loop: {error}") from error
            if run.cancels is not None and run.cancels.landed:
                return judge_result(self.program, run, result, error)
            return self.program.judge(result, error)
        if run.ended.kind == "deadlock" and run.deadlock is not None:
            at = next((edge.at for edge in run.deadlock.cycle if edge.at is not None), None)
            return Outcome(False, "deadlock", None, run.deadlock.sentence, at)
        if run.ended.kind == "livelock":
            return self._livelock(run)
        return Outcome(False, "exception", type(run.ended).__name__, run.ended.detail)

    def _livelock(self, run: Run) -> Outcome:
        names = display_names(run)
        tasks = {proc.key: proc.ref() for proc in run.procs if proc.ref is not None}
        places = {key: suspended_at(task) for key, task in tasks.items() if task is not None}
        tail = [(names[key], place) for key, _ in run.order[-400:] if (place := places.get(key)) is not None]
        repeating = detect_livelock(tail)
        assert run.ended is not None
        return Outcome(False, "livelock", None, run.ended.detail + (f"; it repeats: {repeating}" if repeating else ""))

    def _kept(self, run: Run) -> Outcome | None:
        return kept(run, self.victims, self.is_subject) if self.victims is not None else None

    def _unretrieved(self, run: Run) -> Outcome | None:
        for proc in run.procs:
            task = proc.ref() if proc.ref is not None else None
            if task is not None and getattr(task, "_log_traceback", False):  # only of a task that died
                error = task.exception()
                assert error is not None
                if was_expired(run, error):
                    continue
                return self._from_error(error, f"task {proc.name} died and nobody looked: ")
        for problem in run.problems:
            error = problem.get("exception")
            message = str(problem.get("message", "")).split("\n", 1)[0]
            if error is not None:
                return self._from_error(error, f"{message}: ")
        return _collected(run)

    def _from_error(self, error: BaseException, prefix: str) -> Outcome:
        failure: evidence.Failure = "assertion" if isinstance(error, AssertionError) else "exception"
        return Outcome(
            False,
            failure,
            type(error).__name__,
            f"{prefix}{type(error).__name__}: {error}",
            innermost_own(error.__traceback__, self.is_subject),
        )

    # ------------------------------------------------------------------ conveniences

    def model(self, label: str) -> Model:
        return replace(Model(), label=label, max_steps=self.max_steps)

    @contextlib.contextmanager
    def like(self, cancels: tuple[Cancel, ...] = (), collect: bool = False) -> Iterator[None]:
        """Within the block every execution adds these cancellations and collects or not, but replays, which do as
        their schedule says.
        """
        before = self.cancels, self.collect
        self.cancels, self.collect = cancels, collect
        try:
            yield
        finally:
            self.cancels, self.collect = before

    def replay(self, schedule: Schedule, detail: bool = False, strict: bool = False) -> Execution:
        chooser = Deviate(dict(schedule.deviations), strict)
        with self.like(schedule.cancels, schedule.collect):
            return self.execute(chooser, self.model(schedule.label), schedule.seed, detail)


_NOTHING: frozenset[str] = frozenset()
_LOOP_DIRECTORY = os.path.dirname(controlled.__file__) + os.sep
_FAULTS = (AttributeError, NameError, LookupError, AssertionError)


def _is_ours(error: BaseException) -> bool:
    """A fault of the loop itself, raised in the middle of the subject: what it raises on purpose is of other types."""
    frames = list(traceback.walk_tb(error.__traceback__))
    file = frames[-1][0].f_code.co_filename if frames else ""
    dispatchers = (_LOOP_DIRECTORY + "virtual.py", _LOOP_DIRECTORY + "streams.py")
    return isinstance(error, _FAULTS) and file.startswith(_LOOP_DIRECTORY) and file not in dispatchers


def _collected(run: Run) -> Outcome | None:
    """A task that was destroyed while it was pending."""
    for problem in filter(was_destroyed, run.problems):
        coroutine = problem["task"].get_coro()
        name = getattr(coroutine, "__qualname__", type(coroutine).__name__)
        origin = getattr(coroutine, "cr_origin", None)  # the line that made the coroutine
        where = Frame(*origin[0]) if origin and watch.is_subject(origin[0][0]) else None
        sentence = f"task {for_people(name)} was garbage-collected while it was pending: nobody holds it"
        return Outcome(False, "leak", None, sentence, where)
    return None


def _left_at_end(ends: Ends) -> Iterator[str]:
    for what, left in (("task", ends.pending), ("asynchronous generator", ends.generators)):
        for name, place in left:
            yield f"{what} {name}" + (f" at {os.path.basename(place.file)}:{place.line}" if place else "")


def display_names(run: Run) -> dict[str, str]:
    """Identity -> name for people; where several tasks have one name, the place in the order of creation is added."""
    tasks = [proc for proc in run.procs if proc.is_task]
    several = {name for name, count in Counter(proc.name for proc in tasks).items() if count > 1}
    return {proc.key: proc.label if proc.is_task and proc.name in several else proc.name for proc in run.procs}


class _BlockedLoop(LoopStopped):
    """A step waits for what only the loop could bring."""

    def __init__(self, wait: Wait) -> None:
        super().__init__("deadlock", f"a step waits in {wait.operation}() and nothing can end the wait")
        self.wait = wait


def _watch_blocking(run: Run) -> None:
    """From here on a wait that stops the loop's thread for ever ends this run."""

    def on_block(wait: Wait) -> None:
        stopped = _BlockedLoop(wait)
        loop = events._get_running_loop()
        assert isinstance(loop, SchedulingLoop)
        run.stopped_by(stopped, loop)  # here: a task would keep the exception to itself
        raise stopped

    watch.on_block = on_block
    watch.step = lambda: run.count
    watch.virtual_sleep = run.hold


def _leave_blocking() -> None:
    watch.on_block = watch.virtual_sleep = None


def _sleeping(run: Run) -> Callable[[float], None]:
    """`time.sleep`: the step holds the loop for so long; the body of thread work does not."""

    def sleep(seconds: float) -> None:
        body = current_body()
        if body is None:
            run.hold(seconds)
        else:
            body.sleep(seconds)

    return sleep


def run_alone(coro: Coroutine[Any, Any, Any], seed: int, record: bool = False) -> Any:
    """Run one coroutine by itself in stock order; its result or its exception. Another seed shifts the clock and
    stretches the timers, so that what was made from time differs between two runs.

    record: so that `recorder.persistent_writes` tells afterwards what state of modules it wrote.
    Raises LoopStopped when it can never end.
    """
    run = Run(Model(max_steps=50_000), Deviate({}), recording=record)
    run.now = seed * 1000.7
    run.clock = (0, run.now)
    run.stretch = 1.0 + (seed % 3) * 0.25
    loop = _ALONE
    loop.begin(run)
    watch.start_run()
    recorder.start_run()
    recorder.enabled, recorder.detail = record, False
    _watch_blocking(run)
    sources.enter(run.read_clock, _sleeping(run), seed, loop.task_key)
    try:
        return loop.run_until_complete(coro)
    finally:
        if not loop.is_closed():
            loop.drain()
        sources.leave()
        _leave_blocking()
        recorder.enabled = False


_ALONE = ControlledLoop()
