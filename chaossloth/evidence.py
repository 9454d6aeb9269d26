"""The data model of an investigation: frozen dataclasses, JSON out and in, one versioned schema.

Everything that a phase learns is one of these values; every face (terminal, JSON, tests) reads nothing else.
Units: `*_us` microseconds, `*_s` seconds, `runs`/`executions` counts, `step` an index into an execution.
Source: DESIGN of the JSON contract "chaossloth/1"; fields may be added, none may be renamed.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = [
    "SCHEMA",
    "Access",
    "AwaitTiming",
    "Bounds",
    "Boundary",
    "Cancellation",
    "CandidateCounts",
    "CriticalAccess",
    "DeadlockReport",
    "Failure",
    "Finding",
    "Fingerprint",
    "Forced",
    "Frame",
    "Investigation",
    "Label",
    "GovernorRule",
    "LadderRung",
    "Liveness",
    "LockOrderEdge",
    "ModelUse",
    "Natural",
    "Outcome",
    "Repair",
    "RepairIntent",
    "StarvationEntry",
    "Step",
    "Target",
    "Trace",
    "Verdict",
    "WaitEdge",
    "as_json",
    "dumps",
    "wilson_interval",
]

SCHEMA = "chaossloth/1"

Label = Literal["stock", "latency", "reorder"]
LABELS: tuple[Label, ...] = ("stock", "latency", "reorder")
VerdictWord = Literal["proven", "bounded", "sampled", "unobservable", "inconclusive"]
OutcomeWord = Literal["clean", "found", "repaired", "no-repair", "not-a-race", "inconclusive", "error"]
Failure = Literal["assertion", "exception", "deadlock", "livelock", "leak", "not-serializable", "starvation"]
Mode = Literal["read", "write", "update"]


@dataclass(frozen=True, slots=True)
class Frame:
    """One source position of the subject: absolute path, 1-based line, qualified function name."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class Access:
    """One access to a shared location, as recorded inside a step.

    location: stable identity of (object, key) within one program, equal in every execution of it.
    name:     the same for people, e.g. "Wallet._row['gold']".
    value:    short repr of what was read or written, where it was recorded.
    sync:     True for operations of asyncio primitives (they order, they do not race).
    stack:    subject frames, innermost first; stack[0] is the access's own line.
    """

    location: str
    name: str
    mode: Mode
    stack: tuple[Frame, ...]
    value: str | None = None
    sync: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """What one handle did from one suspension to the next.

    proc:    stable identity of the task or callback (creator's proc, creation index), equal in every execution.
    task:    display name ("A", "B", ... for calls under test, else the task's name or coroutine).
    ordinal: 1 for the first step of this proc, 2 for the next, ...
    creator: index of the step that scheduled it, -1 for the first.
    cause:   "start", "wakeup", "yield", "timer", "callback", "external".
    suspended_at: where the task waits after this step; None when it ended or was no task.
    """

    index: int
    proc: str
    task: str
    ordinal: int
    creator: int
    cause: str
    accesses: tuple[Access, ...] = ()
    suspended_at: Frame | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one execution ended. `ok` or a failure with its kind, exception type, message and place."""

    ok: bool
    failure: Failure | None = None
    exception: str | None = None
    message: str = ""
    where: Frame | None = None

    def key(self) -> tuple[Any, ...]:
        """Equal for outcomes that a user would call the same failure (message left out: it may hold addresses)."""
        return (self.ok, self.failure, self.exception, self.where and (self.where.file, self.where.line))


@dataclass(frozen=True, slots=True)
class Trace:
    """One controlled execution: its steps in order, its outcome and the token that replays it."""

    steps: tuple[Step, ...]
    outcome: Outcome
    token: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    path: str
    cls: str | None = None
    methods: tuple[str, ...] = ()
    test: str | None = None
    calls: int = 2
    arguments: tuple[str, ...] = ()  # repr of the argument tuple of each call
    how_chosen: str = ""  # one sentence


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a figure depends on: source, interpreter, installed packages, environment (hashes only)."""

    commit: str | None
    python: str
    platform: str
    lock_sha256: str
    env_sha256: str
    source_sha256: str


@dataclass(frozen=True, slots=True)
class Natural:
    """Natural cycles on the stock loop.

    ci95: the Wilson interval. overhead: hooked/bare duration - 1 (None: not measured).
    """

    runs: int
    failures: int
    ci95: tuple[float, float]
    overhead: float | None
    messages: tuple[str, ...] = ()
    aborted: str | None = None  # why fewer runs than asked were made


@dataclass(frozen=True, slots=True)
class Boundary:
    site: str
    estimator: str
    p50_us: float | None
    ci90_us: tuple[float, float] | None
    posterior: float | None
    measured_us: float | None
    second_opinion: str | None = None


@dataclass(frozen=True, slots=True)
class AwaitTiming:
    """How long tasks were suspended at one await site, summed per natural run (µs). None: no such run reached it."""

    site: str
    runs: int
    median_us: float
    median_failing_us: float | None
    median_passing_us: float | None


@dataclass(frozen=True, slots=True)
class Bounds:
    """Within which limits a verdict holds; always printed beside it."""

    labels: tuple[Label, ...]
    calls: int | None = None
    seeds: int = 1
    durations: str = "drawn per task from seeds"
    cancellation: str = "none"
    bypass_bound: int | None = None
    max_steps: int = 0
    strategies: tuple[str, ...] = ()
    real_io: tuple[str, ...] = ()
    executions: int | None = None  # limit per label that was asked for (--executions)
    run_on: str | None = None  # how long tasks left at the end were followed, where that was cut short


@dataclass(frozen=True, slots=True)
class Verdict:
    word: VerdictWord
    bounds: Bounds
    executions: int
    executions_by_label: Mapping[str, int]
    coverage: float | None = None
    unobservable: tuple[str, ...] = ()
    distinct: int | None = None  # inequivalent interleavings among the executions (by happens-before)
    failures: int = 0
    pct_floor: str | None = None  # sentence with the guarantee of the PCT runs


@dataclass(frozen=True, slots=True)
class Forced:
    runs: int
    failures: int
    how: str = ""  # "virtual time", "3 timers delayed", ...


@dataclass(frozen=True, slots=True)
class CriticalAccess:
    file: str
    line: int
    task: str
    access: Mode
    object: str
    function: str = ""
    value: str | None = None
    stack: tuple[Frame, ...] = ()
    step: int = -1


@dataclass(frozen=True, slots=True)
class RepairIntent:
    """A typed intention: which kind of change, where, why. The only thing a model may ever rank."""

    kind: str
    target: str  # "Wallet.grant"
    lines: tuple[int, int]
    rationale: str


@dataclass(frozen=True, slots=True)
class CandidateCounts:
    generated: int = 0
    refuted_by_replay: int = 0
    refuted_by_exploration: int = 0
    refused_by_governor: int = 0
    refuted_by_sequential: int = 0
    refuted_by_duplicate_work: int = 0
    refuted_on_ladder: int = 0
    untried: int = 0


@dataclass(frozen=True, slots=True)
class LadderRung:
    """One rung of the verification ladder. passed None means: not attempted (and detail says why)."""

    rung: str
    passed: bool | None
    detail: str


@dataclass(frozen=True, slots=True)
class GovernorRule:
    rule: str
    kind: str
    passed: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Repair:
    intent: RepairIntent
    diff: str
    candidates: CandidateCounts
    ladder: tuple[LadderRung, ...]
    verified: bool
    forced_after: Mapping[str, Forced | None] = field(default_factory=dict)
    verdict: Verdict | None = None
    governor: tuple[GovernorRule, ...] = ()
    guard: str | None = None
    tried: tuple[str, ...] = ()  # one line per refuted candidate that a reader may want to know of
    applied: bool = False
    installed: bool = False  # the patch is for installed code: shown, never applied


@dataclass(frozen=True, slots=True)
class ModelUse:
    backend: str
    name: str
    used_for: str
    tokens_per_s: float | None


@dataclass(frozen=True, slots=True)
class WaitEdge:
    """`task` waits at `at` for `resource`, held by `holder` since `held_at`.

    holder None: nobody is left who could provide it.
    """

    task: str
    resource: str
    operation: str
    at: Frame | None
    holder: str | None
    held_at: Frame | None


@dataclass(frozen=True, slots=True)
class DeadlockReport:
    """kind: "self-deadlock", "cycle", "blocked-loop", "lost-wakeup", "all-waiting".

    cycle: its edges, or those of all who wait. A task or a thread is named by `WaitEdge.task`.
    """

    kind: str
    cycle: tuple[WaitEdge, ...]
    sentence: str
    coffman: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LockOrderEdge:
    """`task` held `first` when it asked for `second`.

    how: "await": it would be suspended while it waits; "step": it took both in one step and would block the loop's
    thread; "thread": it is a thread of its own. reentrant: `second` is a lock that its own thread gets again.
    """

    first: str
    second: str
    task: str
    first_at: Frame | None
    second_at: Frame | None
    gates: tuple[str, ...] = ()  # the other locks that the task held when it asked for `second`
    how: str = "await"
    reentrant: bool = False


@dataclass(frozen=True, slots=True)
class Liveness:
    executions: int
    deadlocks: tuple[DeadlockReport, ...] = ()
    lock_order_cycles: tuple[tuple[LockOrderEdge, ...], ...] = ()
    locks_seen: int = 0
    natural_runs: int = 0  # audited beside the executions
    left_at_end: tuple[str, ...] = ()  # tasks and asynchronous generators that the end of the scenario cut off


@dataclass(frozen=True, slots=True)
class StarvationEntry:
    """A step that held the loop, or a known blocking call seen inside a coroutine (held_ms None)."""

    file: str
    line: int
    function: str
    held_ms: float | None
    detail: str
    stack: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cancellation:
    """Where a cancellation reached a task: after its `suspension`-th step (0: before the first), at the line `at`.

    kind: "cancel" or "timeout". state: "waiting", "woken" (what it waited for was there already), "yielding", "new".
    step: index in the failing trace.
    """

    task: str
    at: Frame | None
    suspension: int
    kind: str = "cancel"
    state: str = "waiting"
    step: int = -1


@dataclass(frozen=True, slots=True)
class Finding:
    failure: Failure
    label: Label
    message: str
    token: str
    deviations: int
    bypass: int
    executions_to_find: int
    pattern: str = "unclassified"
    needs_cancellation: bool = False
    cancellations: tuple[Cancellation, ...] = ()
    lateness_us: float | None = None
    critical_pair: tuple[CriticalAccess, ...] = ()
    pair_verified: str | None = None  # sentence: what forcing both orders showed
    trace: Mapping[str, tuple[Step, ...]] = field(default_factory=dict)  # "failing", "passing"
    forced: Mapping[str, Forced | None] = field(default_factory=dict)  # "controlled", "stock"
    explanation: str = ""
    deadlock: DeadlockReport | None = None
    model: ModelUse | None = None
    repair: Repair | None = None
    no_repair_reason: str | None = None
    where: Frame | None = None  # the subject's line at which it failed


@dataclass(frozen=True, slots=True)
class Investigation:
    """The whole result: what `--json` writes and every report reads."""

    version: str
    command: tuple[str, ...]
    target: Target
    fingerprint: Fingerprint
    outcome: OutcomeWord
    cause: str  # one sentence for outcomes without a finding, or the summary
    verdict: Verdict
    natural: Natural | None = None
    boundary: Boundary | None = None
    telemetry: tuple[AwaitTiming, ...] = ()
    findings: tuple[Finding, ...] = ()
    liveness: Liveness | None = None
    starvation: tuple[StarvationEntry, ...] = ()
    longest_step_ms: float | None = None
    timings_s: Mapping[str, float] = field(default_factory=dict)
    reproduce: str = ""
    notes: tuple[str, ...] = ()  # what was excluded, could not be instrumented, was interrupted ...
    interrupted: bool = False
    schema: str = SCHEMA

    @property
    def exit_code(self) -> int:
        """0 clean; 1 a failure was found; 3 inconclusive; 70 a fault of the tool (2 is raised, never stored)."""
        return {"clean": 0, "inconclusive": 3, "error": 70}.get(self.outcome, 1)


def as_json(value: Any) -> Any:
    """Dataclasses, tuples and mappings to plain JSON values; non-finite floats become null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: as_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): as_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def dumps(investigation: Investigation) -> str:
    """The JSON document of the contract, with a final newline."""
    return json.dumps(as_json(investigation), indent=1, ensure_ascii=False) + "\n"


def wilson_interval(failures: int, runs: int, z: float = 1.959964) -> tuple[float, float]:
    """95 % Wilson score interval of a rate (Wilson 1927); (0, 1) when runs is 0."""
    if runs == 0:
        return (0.0, 1.0)
    p = failures / runs
    centre = p + z * z / (2 * runs)
    half = z * math.sqrt(p * (1 - p) / runs + z * z / (4 * runs * runs))
    scale = 1 + z * z / runs
    return (max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale))
