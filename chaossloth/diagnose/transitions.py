"""Interrupted transitions in a run: T1 U T2, a task's two accesses with another task's access between them.

See `patterns` for what they are called. A write is *fresh* when its task read the location in the same step before it:
such a write overwrites nothing unseen.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from chaossloth.diagnose.lines import Lines
from chaossloth.evidence import CriticalAccess, Frame, Mode, Trace

__all__ = ["Touch", "Triple", "acts", "by_location", "interrupted", "touches_at"]


@dataclass(frozen=True, slots=True)
class Touch:
    """One access to the contested location in the failing run. order: position among all touches. fresh: a write
    before which its task read the location in the same step, so that it overwrites nothing unseen."""

    proc: str
    task: str
    step: int
    order: int
    mode: Mode
    name: str
    value: str | None
    stack: tuple[Frame, ...]
    fresh: bool = False

    @property
    def writes(self) -> bool:
        return self.mode != "read"

    @property
    def reads(self) -> bool:
        return self.mode != "write"


Triple = tuple[Touch, Touch, Touch]


def touches_at(trace: Trace, locations: Container[str]) -> list[Touch]:
    """All accesses to the locations in the order of the run, with what each write knew of its location."""
    found: list[Touch] = []
    for step in trace.steps:
        read: set[str] = set()
        for access in step.accesses:
            if access.location not in locations or access.sync:
                continue
            fresh = access.mode == "update" or (access.mode == "write" and access.location in read)
            if access.mode != "write":
                read.add(access.location)
            name, mode = access.name, access.mode
            found.append(
                Touch(step.proc, step.task, step.index, len(found), mode, name, access.value, access.stack, fresh)
            )
    return found


def by_location(trace: Trace) -> list[list[Touch]]:
    locations = dict.fromkeys(a.location for s in trace.steps for a in s.accesses if not a.sync and a.stack)
    return [[t for t in touches_at(trace, {location}) if t.stack] for location in locations]


def interrupted(pair: Sequence[CriticalAccess], touches: Sequence[Touch], lines: Lines | None = None) -> Triple | None:
    """The best T1 U T2: adjacent accesses of one proc in different steps, a conflicting one of another between them.

    Triples that hold an access of the critical pair come first, then those whose write rests on an older read, then
    those that end in a write (their damage stays).
    """
    critical = {(c.step, c.line) for c in pair}
    found: list[tuple[tuple[int, int, int, int], Triple]] = []
    by_proc: dict[str, list[Touch]] = {}
    for touch in touches:
        by_proc.setdefault(touch.proc, []).append(touch)
    for own in by_proc.values():
        for before, after in _adjacent(own):
            for other in touches:
                if other.proc == before.proc or not before.order < other.order < after.order:
                    continue
                if _serializable(before, other, after):
                    continue
                triple = (before, other, after)
                hits = sum((t.step, t.stack[0].line if t.stack else 0) in critical for t in triple)
                loose = not (before.reads and other.writes and lines is not None and acts(before, after, lines))
                found.append(((-hits, loose, not after.writes, before.order), triple))
    return min(found, key=lambda item: item[0])[1] if found else None


def acts(before: Touch, after: Touch, lines: Lines) -> bool:
    """Does the write rest on the read: no later read in its own step, or a test of what was read in front of it?"""
    return after.writes and (not after.fresh or lines.is_check(before, after))


def _adjacent(own: Sequence[Touch]) -> Iterable[tuple[Touch, Touch]]:
    """Last access of a step with every access of the next step that touches: T1 is read-like when the step reads."""
    steps = sorted({t.step for t in own})
    for early, late in zip(steps, steps[1:], strict=False):
        befores = [t for t in own if t.step == early]
        afters = [t for t in own if t.step == late]
        yield from ((b, a) for b in befores for a in afters)


def _serializable(before: Touch, other: Touch, after: Touch) -> bool:
    if other.writes:
        return not (before.reads or after.reads)
    return not (before.writes and after.writes)
