"""Natural cycles: the program as it is, on stock loops, on the real clock; how often it fails and where it waits.

Chance may reveal a defect here, so the baseline must not be perturbed: hooks are per task step only, nothing is
delayed, nothing is seeded. What the hooks cost is measured, not assumed: hooked and bare runs alternate with the same
draws, and the median of the ratios of their durations is reported, but only where that is a measurement: runs of at
least 5 ms, and ratios that agree with each other. Runs of a millisecond differ more by chance than by the hooks.

How a run is judged: first by what stopped it (deadlock, livelock), then by the program, then by what was left behind (a
task that died and that nobody looked at, a pending task that was garbage-collected, a task that waits for ever after it
was cancelled at the end, a coroutine that was never awaited). "Never retrieved" is computed when the main task ends;
the message that asyncio itself gives depends on when the collector runs.
"""

from __future__ import annotations

import asyncio
import math
import statistics
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from chaossloth.boundary.telemetry import Telemetry, table
from chaossloth.evidence import (
    DeadlockReport,
    Failure,
    Frame,
    LockOrderEdge,
    Natural,
    Outcome,
    StarvationEntry,
    wilson_interval,
)
from chaossloth.loop.auditing import StockAudit
from chaossloth.loop.quiet import NothingRunnable, TimeIsUp
from chaossloth.loop.stock import Program, StockRun
from chaossloth.loop.virtual import real_monotonic, sources
from chaossloth.starvation import Watchdog
from chaossloth.subject.primitives import watch
from chaossloth.subject.running import innermost_own

__all__ = ["NaturalSample", "judge_run", "overhead_of", "sample"]

_OVERHEAD_PAIRS = 5
_OVERHEAD_MIN_PAIRS = 3
_OVERHEAD_MIN_RUN_S = 0.005
_OVERHEAD_MAX_SPREAD = 0.10  # interquartile range of the ratios
_OVERHEAD_BUDGET_S = 1.0
_STUCK = ("livelock", "deadlock")  # a run without hooks would have to be ended from outside
_MAX_WAITING = 6  # tasks named in a deadlock's sentence


@dataclass(frozen=True, slots=True)
class NaturalSample:
    """What natural runs showed.

    natural: counts, interval, overhead (None where it is not measurable, see `overhead_of`).
    telemetry: µs suspended per await site and run. starvation: long steps. longest_step_ms: None when no task made a
    step. lock_order, locks: edges and number of locks, of all runs. deadlock: of the first run that got stuck.
    outcomes, durations_s, switches (steps of tasks) and ready_latency_us (longest time from the poll to the
    step): one per run.
    """

    natural: Natural
    telemetry: Telemetry
    starvation: tuple[StarvationEntry, ...] = ()
    longest_step_ms: float | None = None
    longest_step_at: Frame | None = None
    outcomes: tuple[Outcome, ...] = ()
    durations_s: tuple[float, ...] = ()
    switches: tuple[int, ...] = ()
    ready_latency_us: tuple[float, ...] = ()
    lock_order: tuple[LockOrderEdge, ...] = ()
    locks: int = 0
    deadlock: DeadlockReport | None = None


@dataclass(slots=True)
class _Tally:
    """Figures of the runs so far."""

    outcomes: list[Outcome] = field(default_factory=list)
    rows: list[dict[str, float]] = field(default_factory=list)
    durations: list[float] = field(default_factory=list)
    switches: list[int] = field(default_factory=list)
    queued: list[float] = field(default_factory=list)
    longest: tuple[int, Frame | None] = (0, None)
    aborted: str | None = None
    lock_order: dict[LockOrderEdge, None] = field(default_factory=dict)
    locks: int = 0
    deadlock: DeadlockReport | None = None

    def audit(self, audit: StockAudit) -> None:
        """Also of a run that is not counted."""
        self.lock_order.update(dict.fromkeys(audit.lock_order))
        self.locks = max(self.locks, audit.locks)
        self.deadlock = self.deadlock or audit.deadlock

    def add(self, run: StockRun, outcome: Outcome, seconds: float) -> None:
        self.outcomes.append(outcome)
        self.rows.append({f"{file}:{line}": ns / 1000 for (file, line), ns in run.suspended_ns.items()})
        self.durations.append(seconds)
        self.switches.append(run.switches)
        self.queued.append(run.queued_ns / 1000)
        self.longest = max(self.longest, run.longest, key=lambda each: each[0])

    @property
    def failures(self) -> int:
        return sum(not outcome.ok for outcome in self.outcomes)


def sample(
    program: Program,
    runs: int,
    *,
    is_subject: Callable[[str], bool],
    step_limit_s: float,
    on_run: Callable[[int, int], None] | None = None,
    seconds: float = math.inf,
) -> NaturalSample:
    """Run the program `runs` times as it is.

    step_limit_s: wall-clock limit of one run, in seconds. A run that spins until then is a livelock; one that waits
    until then ends the sampling, and is not counted, since nothing was shown.
    on_run: called after each run with (runs made, failures so far).
    seconds: real time after which no further run is begun.
    Raises KeyboardInterrupt only; a MemoryError ends the sampling and is said.
    """
    tally = _Tally()
    watchdog = Watchdog(is_subject=is_subject)
    watchdog.start(threading.get_ident())
    watched = watch.active
    watch.install()  # once, not for each run: it makes the interpreter forget what it knows of these classes
    end = real_monotonic() + seconds
    try:
        for number in range(runs):
            if real_monotonic() > end:
                tally.aborted = f"{seconds:g} s were used up after {number} of {runs} runs"
                break
            _one(program, tally, is_subject, step_limit_s, watchdog)
            if tally.aborted is not None:
                tally.aborted += f" (after {number} of {runs} runs)"
                break
            if on_run is not None:
                on_run(len(tally.outcomes), tally.failures)
        overhead = _overhead(program, tally, is_subject, step_limit_s, watchdog)
    finally:
        watchdog.stop()
        if not watched:
            watch.uninstall()
    return _result(tally, overhead, watchdog)


def _one(
    program: Program, tally: _Tally, is_subject: Callable[[str], bool], limit_s: float, watchdog: Watchdog
) -> None:
    run = StockRun(is_subject, limit_s, step_watch=watchdog)
    started = real_monotonic()
    result, error = run.execute(program)
    seconds = real_monotonic() - started
    if run.audit is not None:
        tally.audit(run.audit)
    if isinstance(error, MemoryError):
        tally.aborted = "a run ran out of memory"
    elif isinstance(run.stop, TimeIsUp) and not run.stop.spinning:
        tally.aborted = f"{run.stop}; it waits at {_places(run)}" if run.waiting else str(run.stop)
    else:
        tally.add(run, judge_run(run, program, result, error), seconds)


def _result(tally: _Tally, overhead: float | None, watchdog: Watchdog) -> NaturalSample:
    made, failures = len(tally.outcomes), tally.failures
    messages = tuple(_message(outcome) for outcome in tally.outcomes if not outcome.ok)
    natural = Natural(made, failures, wilson_interval(failures, made), overhead, messages, tally.aborted)
    length, place = tally.longest
    return NaturalSample(
        natural,
        table(tally.rows, [not outcome.ok for outcome in tally.outcomes]),
        watchdog.result(),
        length / 1e6 if length else None,
        place,
        tuple(tally.outcomes),
        tuple(tally.durations),
        tuple(tally.switches),
        tuple(tally.queued),
        tuple(tally.lock_order),
        tally.locks,
        tally.deadlock,
    )


def _message(outcome: Outcome) -> str:
    """One line. A message that already begins with its exception's name is not given it twice."""
    text = outcome.message.strip().split("\n", 1)[0]
    name = outcome.exception
    if name is None or text.startswith(name):
        return text or str(outcome.failure)
    return f"{name}: {text}" if text else name


# --- judging -------------------------------------------------------------------------------------------------------


def judge_run(run: StockRun, program: Program, result: Any, error: BaseException | None) -> Outcome:
    """Outcome of a run that was executed; see the module docstring for the order of the questions."""
    stop = run.stop or error
    if isinstance(stop, NothingRunnable):
        if run.audit is not None and run.audit.deadlock is not None:
            report = run.audit.deadlock
            at = next((edge.at for edge in report.cycle if edge.at is not None), None)
            return Outcome(False, "deadlock", None, report.sentence, at)
        where = run.waiting[0][1] if run.waiting else None
        who = f"nothing can run again; waiting for ever: {_places(run)}" if run.waiting else f"nothing can run: {stop}"
        return Outcome(False, "deadlock", None, who, where)
    if isinstance(stop, TimeIsUp):
        return Outcome(False, "livelock", None, f"{stop} and was never idle: {_places(run)}")
    outcome = program.judge(result, error)
    return (_left_behind(run) or outcome) if outcome.ok else outcome


def _places(run: StockRun) -> str:
    shown = [f"{name} at {frame.file}:{frame.line}" for name, frame in run.waiting[:_MAX_WAITING]]
    more = len(run.waiting) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _left_behind(run: StockRun) -> Outcome | None:
    for error in run.unretrieved():
        failure: Failure = "assertion" if isinstance(error, AssertionError) else "exception"
        message = f"died and nobody looked: {type(error).__name__}: {error}"
        return Outcome(
            False, failure, type(error).__name__, message, innermost_own(error.__traceback__, run.is_subject)
        )
    for message in run.destroyed():
        return Outcome(False, "leak", None, f"a pending task was garbage-collected: {message}")
    for name, place in run.hung_at_end:
        return Outcome(False, "leak", None, f"task {name} was cancelled at the end and waits for ever", place)
    for each in run.unawaited:
        return Outcome(False, "leak", None, each.sentence, each.created)
    return None


# --- what the hooks cost -------------------------------------------------------------------------------------------


def _overhead(
    program: Program, tally: _Tally, is_subject: Callable[[str], bool], limit_s: float, watchdog: Watchdog
) -> float | None:
    """What the hooks cost (`overhead_of`). None too when a run stops, or is too short or too long for the budget."""
    if tally.aborted is not None or not tally.durations or any(o.failure in _STUCK for o in tally.outcomes):
        return None
    if statistics.median(tally.durations) < _OVERHEAD_MIN_RUN_S:
        return None
    budget = _OVERHEAD_BUDGET_S - 2 * statistics.median(tally.durations)
    pairs: list[tuple[float, float]] = []
    begun = real_monotonic()
    while len(pairs) < _OVERHEAD_PAIRS and real_monotonic() - begun < budget:
        order = (True, False) if len(pairs) % 2 else (False, True)
        seconds = {hooked: _timed(program, is_subject, limit_s, len(pairs), watchdog, hooked) for hooked in order}
        pairs.append((seconds[True], seconds[False]))
    return overhead_of(pairs)


def overhead_of(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Median of hooked / bare - 1 over pairs of durations (hooked, bare) in seconds.

    None where that says more about chance than about the hooks: fewer than 3 pairs, a median bare run below 5 ms, or
    ratios whose interquartile range is 10 percentage points or more.
    """
    if len(pairs) < _OVERHEAD_MIN_PAIRS or statistics.median(bare for _, bare in pairs) < _OVERHEAD_MIN_RUN_S:
        return None
    ratios = [hooked / bare for hooked, bare in pairs]
    first, _, third = statistics.quantiles(ratios, n=4, method="inclusive")
    return statistics.median(ratios) - 1 if third - first < _OVERHEAD_MAX_SPREAD else None


def _timed(
    program: Program, is_subject: Callable[[str], bool], limit_s: float, seed: int, watchdog: Watchdog, hooked: bool
) -> float:
    run = StockRun(is_subject, limit_s, hooked=hooked, step_watch=watchdog if hooked else None)
    if not hooked:
        watch.uninstall()
    sources.enter(real_monotonic, _never, seed, _FirstDraw(), clocks=False)
    try:
        started = real_monotonic()
        run.execute(program)
        return max(real_monotonic() - started, 1e-9)
    finally:
        sources.leave()
        watch.install()


def _never(seconds: float) -> None:
    raise AssertionError(f"time.sleep({seconds}) is not virtual in a natural run")


class _FirstDraw:
    """Task key for runs without hooks: tasks are numbered in the order of their first draw."""

    def __init__(self) -> None:
        self._numbers: weakref.WeakKeyDictionary[asyncio.Task[Any], int] = weakref.WeakKeyDictionary()
        self._next = 0

    def __call__(self) -> int:
        try:
            task = asyncio.current_task()
        except RuntimeError:
            return 0
        if task is None:
            return 0
        number = self._numbers.get(task)
        if number is None:
            self._next += 1
            number = self._numbers[task] = self._next
        return number
