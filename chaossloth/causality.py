"""Happens-before over the steps of an execution, its races, and the pair of accesses whose order alone decides.

Happens-before here is program order within a task plus "scheduled by": creation of tasks and callbacks, and every
wake-up (a release, `set()`, `put()` or `set_result()` schedules the waiter's next step, so it orders it). Kept as
vector clocks (Fidge 1988, Mattern 1989), one entry per task or callback. Lock acquisition order is deliberately no
edge: which of two critical sections comes first is a choice of the schedule, and a pair that cannot be turned round is
found out by trying.

A race is a pair of conflicting accesses of two unordered steps. The critical pair is one whose *reversal flips the
outcome*: the failing order is followed, except that the earlier step is held back until the later one has run
(`Guided(hold=...)`); where that passes, both orders are forced again and counted. The run that passes is the nearest
passing one: it differs in this pair. (Compare Choi and Zeller, "Isolating failure-inducing thread schedules", ISSTA
2002.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from chaossloth.evidence import Access, CriticalAccess, Step

__all__ = ["Race", "VectorClocks", "critical_accesses", "races", "signature"]


class VectorClocks:
    """clocks[i]: {proc: number of its steps that happen before or are step i}."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.clocks: list[dict[str, int]] = []
        last: dict[str, int] = {}
        for step in steps:
            clock: dict[str, int] = {}
            for source in (last.get(step.proc), step.creator if step.creator >= 0 else None):
                if source is not None and source < len(self.clocks):
                    for proc, count in self.clocks[source].items():
                        if clock.get(proc, 0) < count:
                            clock[proc] = count
            clock[step.proc] = step.ordinal
            self.clocks.append(clock)
            last[step.proc] = step.index

    def before(self, steps: Sequence[Step], i: int, j: int) -> bool:
        """True when step i happens before step j."""
        return self.clocks[j].get(steps[i].proc, 0) >= steps[i].ordinal


@dataclass(frozen=True, slots=True)
class Race:
    """Two conflicting accesses of steps that happens-before leaves unordered; `first` ran before `second` here."""

    first_step: int
    second_step: int
    first: Access
    second: Access

    @property
    def read_write(self) -> bool:
        return "read" in (self.first.mode, self.second.mode)


def races(steps: Sequence[Step], sync: bool = False) -> list[Race]:
    """All races, one per (pair of steps, location), in order of the second step.

    sync: also those of the primitives' own operations.
    """
    clocks = VectorClocks(steps)
    history: dict[str, list[tuple[int, Access]]] = {}
    found: list[Race] = []
    seen: set[tuple[int, int, str]] = set()
    for step in steps:
        for access in step.accesses:
            if access.sync and not sync:
                continue
            for index, earlier in history.get(access.location, ()):
                if index == step.index or (earlier.mode == "read" and access.mode == "read"):
                    continue
                key = (index, step.index, access.location)
                if key not in seen and not clocks.before(steps, index, step.index):
                    seen.add(key)
                    found.append(Race(index, step.index, earlier, access))
            history.setdefault(access.location, []).append((step.index, access))
    return found


def signature(steps: Sequence[Any]) -> int:
    """Hash of the order of conflicting accesses: equal for equivalent interleavings (same Mazurkiewicz trace).

    steps: raw steps with `proc.number`, `ordinal` and raw accesses (object, key, mode bits, ...).
    """
    last_write: dict[Any, tuple[int, int]] = {}
    readers: dict[Any, list[tuple[int, int]]] = {}
    edges: set[Any] = set()
    for step in steps:
        accesses = step.accesses
        if not accesses:
            continue
        me = (step.proc.number, step.ordinal)
        for raw in accesses:
            location = raw[:2]
            writer = last_write.get(location)
            if writer is not None and writer is not me:
                edges.add((location, writer, me))
            if raw[2] & 2:
                for reader in readers.pop(location, ()):
                    if reader is not me:
                        edges.add((location, reader, me))
                last_write[location] = me
            elif location in readers:
                readers[location].append(me)
            else:
                readers[location] = [me]
    return hash(frozenset(edges))


def critical_accesses(race: Race, steps: Sequence[Step]) -> tuple[CriticalAccess, CriticalAccess]:
    """The pair in the report's form, in the order of the failing run."""
    return (_critical(race.first, steps[race.first_step]), _critical(race.second, steps[race.second_step]))


def _critical(access: Access, step: Step) -> CriticalAccess:
    top = access.stack[0] if access.stack else None
    return CriticalAccess(
        file=top.file if top else "",
        line=top.line if top else 0,
        task=step.task,
        access=access.mode,
        object=access.name,
        function=top.function if top else "",
        value=access.value,
        stack=access.stack,
        step=step.index,
    )
