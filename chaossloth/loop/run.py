"""One execution's data: its model, its handles and tasks, the choices made, and what it left behind.

Nothing here schedules. `Run` is shared by the loops that a synchronous subject may open one after another.
"""

from __future__ import annotations

import asyncio
import contextvars
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from chaossloth.evidence import DeadlockReport
from chaossloth.loop.ends import CLEAN_UP_STEPS, Ends

if TYPE_CHECKING:
    from chaossloth.loop.scheduling import SchedulingLoop

__all__ = [
    "CANCELLED",
    "DEFAULT_BYPASS_BOUND",
    "DEFAULT_STALL_S",
    "MAX_STEPS",
    "Chooser",
    "Handle",
    "LoopStopped",
    "Model",
    "Nondeterminism",
    "Proc",
    "RawStep",
    "Run",
]

MAX_STEPS = 20_000
DEFAULT_BYPASS_BOUND = 8
DEFAULT_STALL_S = 0.1


class LoopStopped(BaseException):
    """Raised out of `run_forever` when the execution ends before its main future.

    kind: "deadlock", "livelock" (step limit), "unsupported" (a call that the loop does not offer) or "diverged".
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

    __slots__ = ("key", "given", "number", "name", "ref", "tasks", "callbacks", "timers", "yields", "steps", "is_task")

    def __init__(self, key: str, number: int, name: str, is_task: bool, given: bool = False) -> None:
        self.key = key
        self.number = number
        self.name = name
        self.given = given
        self.is_task = is_task
        self.ref: weakref.ref[asyncio.Task[Any]] | None = None
        self.tasks = self.callbacks = self.timers = self.yields = self.steps = 0

    @property
    def label(self) -> str:
        return self.name if self.given or "." not in self.key else f"{self.name} #{self.key.rpartition('.')[2]}"


class Handle:
    """asyncio.Handle and TimerHandle in one; `cause` says what it is to the scheduler.

    Who schedules it also sets proc and creator, and for a completion deadline (seconds), seq, owner and ordinal.
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
    )

    proc: Proc
    creator: int
    cause: str
    deadline: float
    seq: int
    owner: str
    ordinal: int

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
    stretch: float = 1.0  # timers last this many times as long
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
    on_stop: Callable[[LoopStopped, SchedulingLoop], None] | None = None
    ends: Ends = field(default_factory=Ends)
    limit: int = 0  # of steps, for the part of the execution that runs now

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
