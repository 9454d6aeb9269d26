"""One execution's data: its model, its handles and tasks, the choices made, and what it left behind.

Nothing here schedules. `Run` is shared by the loops that a synchronous subject may open one after another.
"""

from __future__ import annotations

import asyncio
import contextvars
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from chaossloth.evidence import DeadlockReport
from chaossloth.loop.defaults import literal_defaults
from chaossloth.loop.ends import CLEAN_UP_STEPS, Ends
from chaossloth.loop.identity import Identity

if TYPE_CHECKING:
    from chaossloth.loop.cancelling import Injector
    from chaossloth.loop.scheduling import SchedulingLoop

__all__ = [
    "CANCELLED",
    "START",
    "Boundary",
    "Clock",
    "DEFAULT_BYPASS_BOUND",
    "DEFAULT_STALL_S",
    "MAX_STEPS",
    "Chooser",
    "Handle",
    "LoopStopped",
    "Model",
    "Nondeterminism",
    "PlannedTimer",
    "Proc",
    "RawStep",
    "Run",
    "for_people",
]

MAX_STEPS = 20_000
DEFAULT_BYPASS_BOUND = 8
DEFAULT_STALL_S = 0.1


class LoopStopped(BaseException):
    """Raised out of `run_forever` when the execution ends before its main future.

    kind: "deadlock", "livelock" (step limit), "waited" (something outside did not answer) or "diverged".
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


Clock = tuple[int, float]
"""Causal time: (anchor, seconds). When a step would run if nothing ever waited for the loop; see `loop.delivery`."""
START: Clock = (0, 0.0)


class Proc:
    """A task or callback: its identity in every execution, and the counters from which its children's follow.

    called: the name that the task was given, else the qualified name of its function; name: the same for people;
    label: the same made unique, equal in every execution.
    """

    __slots__ = (
        "key",
        "given",
        "number",
        "called",
        "ref",
        "tasks",
        "callbacks",
        "timers",
        "yields",
        "steps",
        "is_task",
        "clock",
        "last",
        "identity",
    )

    def __init__(self, identity: Identity, called: str, is_task: bool, given: bool = False) -> None:
        self.identity = identity
        self.key = identity.key
        self.number = identity.number
        self.called = called
        self.given = given
        self.is_task = is_task
        self.ref: weakref.ref[asyncio.Task[Any]] | None = None
        self.tasks = self.callbacks = self.timers = self.yields = self.steps = 0
        self.clock: Clock = START
        self.last = -1  # index of its latest step

    @property
    def outermost(self) -> bool:
        """A task that was created while no step ran: what `run_until_complete` waits for."""
        return self.is_task and "." not in self.key

    @property
    def name(self) -> str:
        return self.called if self.given else for_people(self.called)

    @property
    def label(self) -> str:
        return self.name if self.given or "." not in self.key else f"{self.name} #{self.key.rpartition('.')[2]}"


@lru_cache(4096)
def for_people(qualname: str) -> str:
    """A function's own name, without those around it; the driver of concurrent calls is the main task."""
    return "main" if qualname.startswith("ConcurrentCalls.") else qualname.rpartition("<locals>.")[2]


class Handle:
    """asyncio.Handle and TimerHandle in one; `cause` says what it is to the scheduler.

    Who schedules it also sets proc, creator and clock, and for a completion deadline (seconds), lasts (seconds from its
    creation), seq, owner, ordinal and before (timers that are due earlier whatever happens).
    ran: index of the step that ran it, -1 before. after: a callback of the same future that has to run first.
    """

    __slots__ = (
        "callback",
        "args",
        "context",
        "_cancelled",
        "proc",
        "creator",
        "cause",
        "deadline",
        "seq",
        "passed",
        "loop",
        "owner",
        "ordinal",
        "clock",
        "lasts",
        "before",
        "after",
        "joined",
        "ran",
        "arrived",
    )

    proc: Proc
    creator: int
    cause: str
    deadline: float
    seq: int
    owner: str
    ordinal: int
    clock: Clock
    lasts: float

    def __init__(
        self,
        loop: SchedulingLoop,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> None:
        self.loop = loop
        self.callback = callback
        self.args = args
        self.context = context if context is not None else contextvars.copy_context()
        self._cancelled = False
        self.passed = 0
        self.ran = -1
        self.arrived = False  # a completion that was delivered
        self.after: Handle | None = None
        self.before: tuple[Handle, ...] = ()
        self.joined: tuple[int, ...] = ()  # steps of the children whose end this handle tells the parent

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            if self.ran < 0:
                run = self.loop.run
                run.killed.append((run.index, self))
            self.callback = _nothing
            self.args = ()

    def required(self) -> tuple[int, ...]:
        """Indices of the steps that no schedule puts after this handle, beside its creator's."""
        first = (self.after,) if self.after is not None else ()
        return self.joined + tuple(handle.ran for handle in (*first, *self.before) if handle.ran >= 0)

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


@dataclass(frozen=True, slots=True)
class PlannedTimer:
    """creator: index of the step that made it, -1 before the first. lasts: seconds from then on."""

    creator: int
    lasts: float


@dataclass(frozen=True, slots=True)
class Boundary:
    """One look at the clock. count: steps made before it. busy: handles were ready."""

    count: int
    busy: bool
    delivered: tuple[PlannedTimer, ...]
    waiting: tuple[PlannedTimer, ...]


@dataclass(slots=True)
class RawStep:
    proc: Proc
    ordinal: int
    creator: int
    cause: str
    accesses: list[Any]
    clock: Clock
    required: tuple[int, ...] = ()  # steps that had to come before, beside the creator and the task's previous one
    suspended: Any = None


@literal_defaults
@dataclass(slots=True)
class Run:
    """All state of one execution; shared by the loops a synchronous subject may open one after another."""

    model: Model
    chooser: Chooser
    recording: bool = True
    detail: bool = False
    now: float = 0.0  # what clocks show: the latest causal time of any step so far
    clock: Clock = START  # of the running step
    blocked: float = 0.0  # seconds for which steps held the loop (time.sleep)
    rounds: int = 0
    links: list[tuple[int, int, int]] = field(default_factory=list)  # per step: creator, previous of its proc, root
    killed: list[tuple[int, Handle]] = field(default_factory=list)  # (step, what it cancelled before it could run)
    ancestors: list[int] = field(default_factory=list)  # per step, as far as asked: bit set of the steps that led to it
    stretch: float = 1.0  # timers last this many times as long
    lateness: float = 0.0
    bypass: int = 0
    count: int = 0
    options: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    order: list[tuple[str, str]] = field(default_factory=list)  # (proc key, cause) per step
    boundaries: list[Boundary] = field(default_factory=list)
    groups: list[list[tuple[str, int]]] = field(default_factory=list)  # timers delivered together: (task identity, n)
    extended: list[tuple[str, int]] = field(default_factory=list)  # bare yields that took time
    stalls: list[tuple[str, int, float]] = field(default_factory=list)  # (proc key, step ordinal, seconds)
    steps: list[RawStep] = field(default_factory=list)
    procs: list[Proc] = field(default_factory=list)
    problems: list[dict[str, Any]] = field(default_factory=list)
    real_io: set[str] = field(default_factory=set)
    current: Proc | None = None
    index: int = -1
    ended_by: int = -1  # the step that told the loop to stop
    task_names: int = 0
    judging: bool = True
    capped: bool = False  # after the main task's end others went on for longer than was watched
    deadlock: DeadlockReport | None = None
    ended: LoopStopped | None = None
    on_stop: Callable[[LoopStopped, SchedulingLoop], None] | None = None
    cancels: Injector | None = None  # cancellations that the schedule adds, and the watch for where they could land
    ends: Ends = field(default_factory=Ends)
    limit: int = 0  # of steps, for the part of the execution that runs now
    on_clock: Callable[[Any], None] | None = None  # told "read" or "write" of the clock
    follow: bool = True  # let what the main task leaves behind go on for a while before it is cancelled
    pushed: bool = False  # a loop that never rested was given time to reach its next completion
    collect: bool = False  # what nobody references is collected before every step

    def __post_init__(self) -> None:
        self.limit = self.model.max_steps

    def stopped_by(self, stopped: LoopStopped, loop: SchedulingLoop) -> None:
        """The first stop decides the outcome; what runs afterwards (the subject's own cleaning up) is not judged."""
        if self.ended is None and self.judging:
            self.ended = stopped
            if self.on_stop is not None:
                self.on_stop(stopped, loop)
        self.judging = False
        self.recording = False
        self.limit = self.count + CLEAN_UP_STEPS

    def read_clock(self) -> float:
        """What any clock shows now (seconds)."""
        if self.on_clock is not None:
            self.on_clock("read")
        return self.now

    def hold(self, seconds: float) -> None:
        """The running step holds the loop for so long."""
        seconds = max(0.0, seconds)
        self.blocked += seconds
        anchor, now = self.clock
        self.clock = (anchor, now + seconds)
        self.now = max(self.now, self.clock[1])
        if self.current is not None:
            self.current.clock = self.clock
        if self.on_clock is not None:
            self.on_clock("write")

    def led_to(self, first: int, second: int) -> bool:
        """Whether step `first` is `second` or one of the steps that made it happen (creation and program order)."""
        if first == second or first < 0:
            return True
        if first > second:
            return False
        known, links = self.ancestors, self.links
        for creator, previous, _ in links[len(known) : second + 1]:
            mask = 0
            if creator >= 0:
                mask = known[creator] | 1 << creator
            if previous >= 0:
                mask |= known[previous] | 1 << previous
            known.append(mask)
        return bool(known[second] >> first & 1)

    def decide(self, options: list[Handle | None]) -> int:
        taken = self.chooser.choose(options, self)
        self.options.append(len(options))
        self.taken.append(taken)
        return taken


class _Idle(Handle):
    __slots__ = ()

    def __init__(self) -> None:
        self._cancelled = True


CANCELLED: Handle = _Idle()
