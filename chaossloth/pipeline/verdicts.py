"""What the figures allow to be said: verdict words with their bounds, and the outcome of an investigation.

The only place that turns counts into words. Never says more than was shown: an empty search is "proven" only when
nothing was drawn, nothing was real, nothing was unobservable and no run was cut short; a budget that ran out is
"bounded".
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from chaossloth.errors import SubjectUnusable
from chaossloth.evidence import (
    AwaitTiming,
    Bounds,
    DeadlockReport,
    Finding,
    Investigation,
    Label,
    Liveness,
    LockOrderEdge,
    Natural,
    OutcomeWord,
    StarvationEntry,
    Verdict,
)
from chaossloth.loop.ends import RUN_ON_WORDS

__all__ = ["liveness", "of_search", "outcome_of", "starving", "timings"]


_T = TypeVar("_T")


def of_search(
    figures: Sequence[Mapping[str, Any]], calls: int | None, natural: Natural | None = None, finished: bool = True
) -> Verdict:
    """The verdict over one or several labels' searches (their JSON figures), in the order in which they were made.

    finished: False where labels that were asked for are missing, because the work was cut short before their end.
    """
    made = [f for f in figures if f["executions"]]
    executions: dict[str, int] = {}
    for f in made:  # a label may have been searched twice: without and with cancellations
        executions[str(f["label"])] = executions.get(str(f["label"]), 0) + int(f["executions"])
    total = sum(executions.values())
    failures = sum(f["failures"] for f in made)
    unobservable = tuple(sorted({u for f in made for u in f["unobservable"]}))
    if any(not f.get("repeatable", True) for f in made):
        unobservable += ("something that is not under control: a schedule executed again took another path",)
    real_io = tuple(sorted({r for f in made for r in f["real_io"]}))
    word = _word(made, failures, unobservable, natural)
    if word == "proven" and not finished:
        word = "bounded"
    floors = [f["pct"] for f in made if f["pct"]]
    return Verdict(
        word=word,
        bounds=_bounds(made, calls, real_io),
        executions=total,
        executions_by_label=executions,
        coverage=_coverage(made),
        distinct=max((f["distinct"] for f in made), default=None),
        failures=failures,
        unobservable=unobservable,
        pct_floor=floors[-1] if floors and not failures else None,
    )


def _coverage(made: Sequence[Mapping[str, Any]]) -> float | None:
    """Estimated share of the space, of the label of which least is known; None where one has no estimate."""
    shares = [f["coverage"] for f in made]
    return None if not shares or None in shares else min(shares)


def _word(
    made: Sequence[Mapping[str, Any]],
    failures: int,
    unobservable: tuple[str, ...],
    natural: Natural | None,
) -> Any:
    if not made:
        return "sampled" if natural is not None and natural.runs else "inconclusive"
    if unobservable:
        return "unobservable"
    return "proven" if not failures and all(f["exhausted"] for f in made) else "bounded"


def _bounds(made: Sequence[Mapping[str, Any]], calls: int | None, real_io: tuple[str, ...]) -> Bounds:
    labels: tuple[Label, ...] = tuple(dict.fromkeys(f["label"] for f in made))
    swept = [f["bound"] for f in made if "bound" in f]
    draws = any(f["draws"] for f in made)
    stall_ms = max((f["stall_s"] for f in made), default=0.0) * 1000
    return Bounds(
        labels=labels,
        calls=calls,
        seeds=max((f["seeds"] for f in made), default=0),
        durations=("drawn from seeds" if draws else "as written") + f", no step over {stall_ms:g} ms late",
        bypass_bound=made[-1]["bypass_bound"] if "reorder" in labels else None,
        max_steps=20_000 if made else 0,
        cancellation=swept[-1] if swept else "none",
        strategies=tuple(dict.fromkeys(name for f in made for name in f["strategies"])),
        real_io=real_io,
        run_on=RUN_ON_WORDS if any(f.get("capped") for f in made) else None,
    )


def outcome_of(
    finding: Finding | None,
    result: Investigation,
    figures: Sequence[Mapping[str, Any]],
    repair: bool,
    cut_short: bool,
) -> tuple[OutcomeWord, str]:
    """Outcome and its one sentence."""
    if finding is not None:
        if not repair:
            return "found", "a failing interleaving is reproduced on demand"
        if finding.repair is not None and finding.repair.verified:
            return "repaired", "the patch passes every rung that was tried"
        if finding.repair is None and finding.no_repair_reason is None:
            return "found", "a failing interleaving was found; the time ended before a repair was judged"
        return "no-repair", finding.no_repair_reason or "no candidate survived"
    if cut_short:
        return "inconclusive", "the work ended before the search did"
    if any(f["failures"] for f in figures):
        return "inconclusive", "a failure was seen that its own schedule does not show again"
    natural = result.natural
    if natural is not None and natural.failures:
        first = natural.messages[0] if natural.messages else "a failure"
        return (
            "inconclusive",
            f"{natural.failures} of {natural.runs} natural runs fail ({first}), but no controlled execution did",
        )
    if not any(f["executions"] for f in figures):
        return "inconclusive", "nothing was executed"
    if all(f["truncated"] == f["executions"] for f in figures):
        return "inconclusive", "every execution met the step limit, or waited in vain for something outside"
    return "clean", "nothing failed within the bounds"


def liveness(figures: Sequence[Mapping[str, Any]], sample: Mapping[str, Any]) -> Liveness:
    """The audit over every execution (`figures`, per label) and natural run (`sample`, may be empty).

    The two name locks differently (only recorded executions know access paths), so a cycle of the natural runs counts
    where no execution has one at the same lines.
    """
    from chaossloth.liveness import distinct_cycles

    cycles = distinct_cycles(_cycles([cycle for f in figures for cycle in f["lock_cycles"]]))
    known = {_places(cycle) for cycle in cycles}
    natural = [cycle for cycle in _cycles(sample.get("lock_cycles", ())) if _places(cycle) not in known]
    deadlock = sample.get("deadlock")
    return Liveness(
        executions=sum(f["executions"] for f in figures),
        deadlocks=(_decoded(DeadlockReport, deadlock),) if deadlock else (),
        lock_order_cycles=(*cycles, *natural),
        locks_seen=max((*(f["locks"] for f in figures), sample.get("locks", 0)), default=0),
        natural_runs=sample["natural"]["runs"] if sample else 0,
        left_at_end=tuple(dict.fromkeys(each for f in figures for each in f.get("left", ()))),
    )


def _cycles(values: Any) -> tuple[tuple[LockOrderEdge, ...], ...]:
    return _decoded(tuple[tuple[LockOrderEdge, ...], ...], values)


def _places(cycle: tuple[LockOrderEdge, ...]) -> frozenset[Any]:
    return frozenset((edge.first_at, edge.second_at) for edge in cycle)


def _decoded(kind: type[_T], value: Any) -> _T:
    from pydantic import TypeAdapter

    return TypeAdapter(kind).validate_python(value)


_ENTRY = re.compile(r"(?P<file>.*):(?P<line>\d+) (?P<function>.*)")


def starving(lost: SubjectUnusable, is_own: Callable[[str], bool]) -> StarvationEntry:
    """The step that never ended, as an entry of the starvation audit: its innermost line in the subject."""
    entries = [match for entry in lost.stack if (match := _ENTRY.fullmatch(entry))]
    own = [match for match in entries if is_own(match["file"])] or entries
    if not own:
        return StarvationEntry("", 0, "", None, lost.detail, lost.stack)
    stack = tuple(match.group() for match in own)
    return StarvationEntry(own[0]["file"], int(own[0]["line"]), own[0]["function"], None, lost.detail, stack)


def timings(table: Mapping[str, Any]) -> tuple[AwaitTiming, ...]:
    """The telemetry table (rows: runs, columns: await sites, µs) as one entry per site."""
    failed = table["failed"]
    entries = []
    for number, site in enumerate(table["columns"]):
        column = [row[number] for row in table["rows"]]
        reached = [value for value in column if value is not None]
        if not reached:
            continue
        failing = [v for v, bad in zip(column, failed, strict=True) if v is not None and bad]
        passing = [v for v, bad in zip(column, failed, strict=True) if v is not None and not bad]
        entries.append(AwaitTiming(site, len(reached), statistics.median(reached), _median(failing), _median(passing)))
    return tuple(entries)


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
