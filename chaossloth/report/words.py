"""Small words and figures that every part of a report shares: durations, places, verdicts and their bounds."""

from __future__ import annotations

import os
from collections.abc import Iterable

from chaossloth.evidence import Bounds, Frame, Investigation, Verdict
from chaossloth.plural import count

__all__ = [
    "bounds_words",
    "duration",
    "executed_words",
    "joined",
    "place",
    "shortened",
    "shown_path",
    "skipped",
    "verdict_words",
]

_MESSAGE = 300  # characters of a subject's message that a report repeats; JSON has all of it


def duration(us: float | None) -> str:
    if us is None:
        return "unknown"
    for factor, unit in ((1e6, "s"), (1e3, "ms")):
        if abs(us) >= factor:
            return f"{us / factor:.4g} {unit}"
    return f"{us:.4g} µs"


def shortened(message: str) -> str:
    first, _, more = message.strip().partition("\n")
    if len(first) > _MESSAGE:
        return first[:_MESSAGE] + " …"
    return f"{first} …" if more else first


def skipped(inv: Investigation, reason: str) -> str:
    """That a phase was not attempted, and why."""
    if inv.interrupted:
        return f"not attempted: interrupted ({reason})"
    return f"not attempted: {reason}"


def place(frame: Frame | None) -> str:
    return f"{shown_path(frame.file)}:{frame.line}" if frame else "an unknown place"


def shown_path(path: str) -> str:
    """Relative to the working directory where it lies below it, else as it is."""
    try:
        relative = os.path.relpath(path)
    except ValueError:  # another drive
        return path
    return path if relative.startswith("..") else relative


def verdict_words(verdict: Verdict) -> str:
    """The word, and what was executed; `bounds_words` goes beside it, always."""
    executed = executed_words(verdict)
    ran = _ran(verdict, executed)
    number = _distinct(verdict)
    distinct = "the only interleaving" if number == 1 else f"all {number} inequivalent interleavings"
    unfinished = "" if verdict.failures else ", search not finished"
    words = {
        "proven": f"{distinct} within the bounds executed · {ran}",
        "bounded": f"{ran}{unfinished}{_share(verdict)}",
        "sampled": f"natural runs only · {ran}",
        "unobservable": f"{ran}, but the recorder cannot see {joined(verdict.unobservable) or 'all of it'}",
        "inconclusive": f"{ran}; nothing is claimed",
    }
    parts = [f"{verdict.word.upper()}: {words[verdict.word]}", f"{verdict.failures} failed"]
    if verdict.unobservable and verdict.word != "unobservable":
        parts.append(f"not observed: {joined(verdict.unobservable)}")
    return " · ".join([*parts, verdict.pct_floor] if verdict.pct_floor else parts)


def _ran(verdict: Verdict, executed: str) -> str:
    if not verdict.failures:
        return executed
    if verdict.failures == verdict.executions > 1:  # one interleaving, replayed; or nothing that ever passes
        return f"each of {executed} fails"
    return f"failure found after {executed}"


def executed_words(verdict: Verdict) -> str:
    """How many executions, and of which label."""
    executed = count(verdict.executions, "execution")
    if not verdict.executions_by_label:
        return executed
    return f"{executed} ({joined(f'{label} {number}' for label, number in verdict.executions_by_label.items())})"


def _distinct(verdict: Verdict) -> int:
    return verdict.executions if verdict.distinct is None else verdict.distinct


def _share(verdict: Verdict) -> str:
    distinct = "" if verdict.distinct is None else f", {verdict.distinct} inequivalent"
    return distinct + (
        "" if verdict.coverage is None else f", about {100 * verdict.coverage:.0f} % covered (estimated)"
    )


def bounds_words(bounds: Bounds) -> str:
    parts = [f"labels {joined(bounds.labels)}" if bounds.labels else "no label"]
    if bounds.calls is not None:
        parts.append(count(bounds.calls, "call"))
    parts += [count(bounds.seeds, "seed"), f"durations {bounds.durations}", f"cancellation {bounds.cancellation}"]
    if bounds.bypass_bound is not None:
        parts.append(f"bypass ≤ {bounds.bypass_bound}")
    if bounds.max_steps:
        parts.append(f"≤ {bounds.max_steps} steps")
    if bounds.executions is not None:
        parts.append(f"search ≤ {count(bounds.executions, 'execution')} per label")
    if bounds.strategies:
        parts.append(f"strategies {joined(bounds.strategies)}")
    if bounds.run_on:
        parts.append(bounds.run_on)
    if bounds.real_io:
        parts.append(f"bounded by real I/O: {joined(bounds.real_io)}")
    return " · ".join(parts)


def joined(items: Iterable[str]) -> str:
    return ", ".join(items)
