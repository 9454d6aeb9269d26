"""Happens-before over the steps of one execution, and its races: what partial-order reduction works on.

Edges: program order; creation (the step that scheduled a handle); a callback of a future before the wake-ups of those
that wait for it; every child of a `gather` or `TaskGroup` before the wake-up of its parent, while the children stay
unordered among themselves; the orders that time leaves no choice about (`loop.delivery`); and conflicts, in the order
of the execution. Sets of steps are integers used as bit sets, so that a step costs one `or` per edge.

Dependency. Two steps conflict when one has an access of each at one location and one of the two writes, except that
COMMUTES accesses (counting children) do not conflict with each other. BLOCKED is the access of an operation that waits
for the location to be written:

    non-FIFO (`reorder`)       it races with nothing: the wake-up that ends the wait is ordered by creation already. A
                               sleeping transition that writes what it waits for is woken.
    FIFO (`stock`, `latency`)  it is a write: who waits first is served first, and who wakes whom decides in which
                               round everything that follows will run.

(Vector clocks of the same relation, for reports, are in `chaossloth.causality`; without conflict edges.)
"""

from __future__ import annotations

import heapq
import math
from typing import Any

from chaossloth.loop.run import RawStep, Run
from chaossloth.subject.record import recorder
from chaossloth.subject.recorder import BLOCKED, COMMUTES, READ, WRITE

__all__ = ["CLOCK", "CONFLICTS", "Accesses", "HappensBefore", "conflict", "wakes"]

Accesses = dict[Any, int]
CLOCK = ("clock", "now")  # the location that clocks read and timers advance

_MODES = READ | WRITE | COMMUTES | BLOCKED


def _conflicting(mode: int) -> int:
    """The modes that an access of `mode` conflicts with, as a mask."""
    mask = 0
    if mode & READ:
        mask |= WRITE | COMMUTES
    if mode & WRITE:
        mask |= READ | WRITE | COMMUTES
    if mode & COMMUTES:
        mask |= READ | WRITE
    return mask


CONFLICTS = [_conflicting(mode) for mode in range(_MODES + 1)]


def conflict(one: Accesses, other: Accesses) -> bool:
    """Whether two steps with these accesses are dependent."""
    if len(one) > len(other):
        one, other = other, one
    return any(CONFLICTS[mode] & other.get(location, 0) for location, mode in one.items())


def wakes(step: Accesses, sleeping: Accesses) -> bool:
    """Whether `step` takes a sleeping transition out of the sleep set: a conflict, or one waits for what one writes."""
    if len(step) > len(sleeping):
        step, sleeping = sleeping, step
    for location, mode in step.items():
        other = sleeping.get(location, 0)
        if CONFLICTS[mode] & other or (other and (mode | other) & (BLOCKED | WRITE) == BLOCKED | WRITE):
            return True
        if mode & other & COMMUTES and location[1] == "#":  # a container's order may yet be looked at
            return True
    return False


class HappensBefore:
    """Grows with the execution: `add` takes its steps in order.

    past[i]: bit set of the steps before step i; causal[i]: the same by creation and program order alone.
    races: (j, i), both step numbers: they conflict, nothing else orders them, and j ran first.
    """

    def __init__(self, run: Run, fifo: bool) -> None:
        self.fifo = fifo
        self.past: list[int] = []
        self.causal: list[int] = []
        self.accesses: list[Accesses] = []
        self.procs: list[str] = []
        self.races: list[tuple[int, int]] = []
        self._run = run
        self._late = run.model.stall_s
        self._history: dict[Any, _Place] = {}
        self._due: dict[int, _Due] = {}
        self._last: dict[str, int] = {}
        self._cells: dict[str, tuple[int, str]] = {}

    def add(self, step: RawStep) -> Accesses:
        """The next step; returns its accesses, location -> mode."""
        index = len(self.past)
        accesses = self._accesses_of(step)
        causal = 0
        for source in (step.creator, self._last.get(step.proc.key, -1)):
            if source >= 0:
                causal |= self.causal[source] | 1 << source
        past = causal | self._closed(step.creator) | self._closed(self._last.get(step.proc.key, -1))
        past |= self._required(step)
        for source in sorted(self._conflicting(index, accesses), reverse=True):
            if not past >> source & 1:
                self.races.append((source, index))
                past |= self._closed(source)
        self.past.append(past)
        self.causal.append(causal)
        self.accesses.append(accesses)
        self.procs.append(step.proc.key)
        self._last[step.proc.key] = index
        anchor, seconds = step.clock
        self._due.setdefault(anchor, _Due()).add(seconds, index)
        return accesses

    def _closed(self, source: int) -> int:
        return self.past[source] | 1 << source if source >= 0 else 0

    def _accesses_of(self, step: RawStep) -> Accesses:
        accesses: Accesses = {}
        for raw in step.accesses:
            location = raw[:2]
            accesses[location] = accesses.get(location, 0) | (raw[2] & _MODES)
        if self.fifo:
            for location, mode in accesses.items():
                if mode & BLOCKED:
                    accesses[location] = mode & ~BLOCKED | READ | WRITE
        if step.proc.is_task:
            accesses[self._cancel_cell(step.proc.key)] = WRITE
        if step.cause == "timer":
            accesses[CLOCK] = accesses.get(CLOCK, 0) | COMMUTES
        return accesses

    def _cancel_cell(self, key: str) -> tuple[int, str]:
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = (recorder.names.task(key), "cancel")
        return cell

    def _required(self, step: RawStep) -> int:
        """Bit set of the steps that no legal schedule puts after `step`, beside its creator and its task's own."""
        required = 0
        for source in step.required:
            required |= self._closed(source)
        if step.cause == "timer":
            anchor, seconds = step.clock
            limit = seconds - self._late - self._run.blocked - 1e-9
            required |= self._due.setdefault(anchor, _Due()).before(limit)
        return required

    def _conflicting(self, index: int, accesses: Accesses) -> set[int]:
        found: set[int] = set()
        history = self._history
        for location, mode in accesses.items():
            if not CONFLICTS[mode]:
                continue
            place = history.get(location)
            if place is None:
                place = history[location] = _Place()
            if place.written >= 0:
                found.add(place.written)
            if mode & (WRITE | COMMUTES):
                found.update(place.readers)
            if mode & (WRITE | READ):
                found.update(place.commuters)
            if mode & WRITE:
                place.written, place.readers, place.commuters = index, [], []  # later conflicts go through this one
            elif mode & COMMUTES:
                place.commuters.append(index)
            if mode & (READ | WRITE) == READ:
                place.readers.append(index)
        return found


class _Place:
    """A location's accesses so far: the last write, and what came after it."""

    __slots__ = ("written", "readers", "commuters")

    def __init__(self) -> None:
        self.written = -1
        self.readers: list[int] = []
        self.commuters: list[int] = []


class _Due:
    """Steps of one clock by causal time; `before` answers with a bit set, cheaply when limits rise."""

    def __init__(self) -> None:
        self._later: list[tuple[float, int]] = []  # a heap: those not in `_mask`
        self._mask = 0
        self._limit = -math.inf
        self._all: list[tuple[float, int]] = []

    def add(self, seconds: float, index: int) -> None:
        heapq.heappush(self._later, (seconds, index))
        self._all.append((seconds, index))

    def before(self, limit: float) -> int:
        """The steps whose causal time is before `limit`."""
        if limit < self._limit:
            mask = 0
            for seconds, index in self._all:
                if seconds < limit:
                    mask |= 1 << index
            return mask
        self._limit = limit
        while self._later and self._later[0][0] < limit:
            self._mask |= 1 << heapq.heappop(self._later)[1]
        return self._mask
