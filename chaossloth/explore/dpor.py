"""Source-DPOR with sleep sets and wakeup sequences over ready handles and pending completions (label `reorder`).

After Abdulla, Aronis, Jonsson, Sagonas, "Optimal dynamic partial order reduction" (POPL 2014): depth first, execution
after execution. A frame stands for a state with a choice. When two steps j < i race, the steps after j that j did not
cause, and then i, are a sequence that puts i before j: unless one of its initial transitions is explored from j's frame
already, its first becomes a new alternative there and the rest is followed as far as it is enabled. Transitions that
were explored from a frame sleep in its later alternatives until a dependent step wakes them; a state in which
everything sleeps is left.

Three things differ from threads and locks:

* A completion that was cancelled before it could arrive never becomes a step that could race with what cancelled it:
  such pairs (`Run.killed`) are races too. Where the completion was not enabled yet, what it waited for goes first.
* A transition's accesses are those of its whole step and depend on what ran before. "i is already explored from here"
  covers a reversal only if what i did there commutes with the rest of this run.
* Spinning (`while not ready: await sleep(0)`) makes infinitely many classes under unfair orders. A step that at least
  `bound` younger steps precede in *every* equivalent order ends the execution; no order within the fairness bound is
  lost, because that lower bound on how often it was passed over belongs to the class and only grows.

The relation of dependence is that of `explore.happens_before`; property tests compare the outcomes with brute force's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from time import perf_counter

from chaossloth.explore.happens_before import Accesses, HappensBefore, conflict, wakes
from chaossloth.loop.run import Handle, LoopStopped, Run

__all__ = ["Reduction"]

Options = list[Handle | None]
_NO_SEQUENCE: tuple[str, ...] = ()
_MAX_RACES = 20_000  # of one execution; beyond, the search is no longer exhaustive and says so


class _Frame:
    """A state with a choice.

    index: the step that the choice decides. options: what was enabled; clocks: theirs, in that order. alternatives:
    chosen or to be chosen -> the sequence to follow then. sleep: explored from here -> the accesses of its step.
    """

    __slots__ = ("index", "options", "clocks", "chosen", "accesses", "alternatives", "sleep")

    def __init__(self, index: int, options: Sequence[Handle], chosen: str, sleep: dict[str, Accesses]) -> None:
        self.index = index
        self.options = tuple([handle.proc.key for handle in options])
        self.clocks = tuple([handle.clock for handle in options])
        self.chosen = chosen
        self.accesses: Accesses = {}
        self.alternatives: dict[str, tuple[str, ...]] = {chosen: _NO_SEQUENCE}
        self.sleep = sleep


class Reduction:
    """The search's state between executions.

    finished: nothing is left to explore. complete: no execution was cut for another reason than the fairness bound.
    redundant: executions that were left because everything slept. unfair: those that the fairness bound cut.
    """

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.finished = False
        self.complete = True
        self.deadline = math.inf  # of perf_counter; the analysis of a very long execution stops there, incomplete
        self.redundant = 0
        self.unfair = 0
        self.frames: list[_Frame] = []

    def next(self) -> _Path:
        """The strategy of the next execution. Call `learn` with it afterwards."""
        return _Path(self)

    def learn(self, path: _Path, run: Run) -> None:
        """Take in an execution: its races become alternatives; then go to the next one."""
        path.catch_up(run)
        self.redundant += path.redundant
        self.unfair += path.unfair
        order = path.order
        if order is None:  # no choice at all
            self.finished = True
            return
        frames = {frame.index: frame for frame in self.frames}
        for step, handle in run.killed:
            frame = frames.get(step)
            if frame is not None and handle.creator < step and handle.cause != "start":
                _fire_first(frame, handle, run.model.stall_s + run.blocked)
        if len(order.races) > _MAX_RACES:
            self.complete = False
        for first, second in order.races[:_MAX_RACES]:
            frame = frames.get(first)
            if frame is not None:
                _reverse(frame, order, first, second)
            if perf_counter() > self.deadline:
                self.complete = False
                break
        self._advance()

    def _advance(self) -> None:
        while self.frames:
            frame = self.frames[-1]
            frame.sleep[frame.chosen] = frame.accesses
            for key in frame.alternatives:
                if key not in frame.sleep:
                    frame.chosen = key
                    return
            self.frames.pop()
        self.finished = True

    def explored_share(self) -> float:
        """Estimate of the share of the search tree that is done, after Knuth (1975): alternatives count alike."""
        share, weight = 0.0, 1.0
        for frame in self.frames:
            known = len(frame.alternatives)
            done = sum(1 for key in frame.alternatives if key in frame.sleep and key != frame.chosen)
            weight /= known
            share += weight * done
        return 1.0 if self.finished else share


class _Path:
    """A strategy for one execution: down the frames, then on by the wakeup sequence, then in stock order."""

    def __init__(self, reduction: Reduction) -> None:
        self._reduction = reduction
        self.order: HappensBefore | None = None
        self.redundant = False
        self.unfair = False
        self._depth = 0
        self._sequence: tuple[str, ...] = ()
        self._sleep: dict[str, Accesses] = {}
        self._frame_at: _Frame | None = None

    def choose(self, options: Options, run: Run) -> int:
        self.catch_up(run)
        frames = self._reduction.frames
        keys = [handle.proc.key for handle in options if handle is not None]
        if self._depth < len(frames):
            frame = frames[self._depth]
            if self._depth == len(frames) - 1:
                self._sequence = frame.alternatives[frame.chosen]
        else:
            chosen = self._pick(keys)
            frame = _Frame(run.count, [handle for handle in options if handle is not None], chosen, dict(self._sleep))
            frames.append(frame)
        self._depth += 1
        self._frame_at = frame
        if frame.chosen not in keys or frame.index != run.count:
            raise LoopStopped("diverged", f"step {run.count}: {frame.chosen} cannot run, although it could before")
        return keys.index(frame.chosen)

    def _pick(self, keys: list[str]) -> str:
        while self._sequence:
            wanted, self._sequence = self._sequence[0], self._sequence[1:]
            if wanted in keys:
                if wanted not in self._sleep:
                    return wanted
                self._sequence = ()
        for key in keys:
            if key not in self._sleep:
                return key
        self.redundant = True
        raise LoopStopped("pruned", "every enabled step was explored from an equivalent state")

    def catch_up(self, run: Run) -> None:
        """Order the steps since the last choice, and let them wake what sleeps."""
        order = self.order
        if order is None:
            order = self.order = HappensBefore(run, fifo=False)
        for step in run.steps[len(order.past) :]:
            index = len(order.past)
            accesses = order.add(step)
            frame = self._frame_at
            if frame is not None and frame.index == index:
                frame.accesses = accesses
                self._sleep = frame.sleep
            if self._sleep:
                self._sleep = {
                    key: theirs
                    for key, theirs in self._sleep.items()
                    if key != step.proc.key and not wakes(accesses, theirs)
                }
            if self._sequence and self._sequence[0] == step.proc.key and (frame is None or frame.index != index):
                self._sequence = self._sequence[1:]  # it ran where there was no choice
            if not self.unfair and run.judging and _is_unfair(order, run, index, self._reduction.bound):
                self.unfair = True
                raise LoopStopped("pruned", "a ready handle would be passed over too often")


def _is_unfair(order: HappensBefore, run: Run, index: int, bound: int) -> bool:
    """Whether more than `bound` steps of younger handles come before step `index` in every equivalent order."""
    creator = run.links[index][0]
    between = order.past[index] >> (creator + 1)
    if creator < 0 or between.bit_count() <= bound:
        return False
    count = 0
    for step in range(creator + 1, index):
        if order.past[index] >> step & 1:
            made_by = run.links[step][0]
            count += made_by > creator and bool(order.past[made_by] >> creator & 1)
    return count > bound


def _fire_first(frame: _Frame, killed: Handle, late: float) -> None:
    """`killed` could have arrived before the frame's step cancelled it; or what it has to wait for first."""
    key = killed.proc.key
    if key in frame.options:
        candidates = [key]
    else:
        anchor, seconds = killed.clock
        clocks = zip(frame.options, frame.clocks, strict=True)
        candidates = [other for other, (a, at) in clocks if a == anchor and at + late < seconds]
        candidates += [other.proc.key for other in killed.before if other.proc.key in frame.options]
    for candidate in candidates:
        if candidate not in frame.alternatives and candidate not in frame.sleep:
            frame.alternatives[candidate] = (key,) if candidate != key else _NO_SEQUENCE


def _reverse(frame: _Frame, order: HappensBefore, first: int, second: int) -> None:
    """Make sure that an execution from `frame` runs `second` before `first`."""
    past, procs = order.past, order.procs
    sequence = [k for k in range(first + 1, second) if not past[k] >> first & 1] + [second]
    initial = [procs[k] for k in _initials(sequence, past)]
    known = frame.alternatives.keys() | frame.sleep.keys()
    last = procs[second]
    if not initial or any(key != last and key in known for key in initial):
        return
    if last in initial and last in known:
        # What `second` does without `first` is known only if it was explored from here; starting with it covers this
        # reversal unless that conflicts with something in the rest of this run.
        sequence = [k for k in range(first + 1, len(past)) if k != second and not past[k] >> first & 1]
        theirs = frame.sleep.get(last)
        if theirs is None or not any(conflict(theirs, order.accesses[k]) for k in sequence):
            return
        if any(procs[k] in known for k in _initials(sequence, past)):
            return
    start = procs[sequence[0]]
    if start in frame.options:
        frame.alternatives[start] = tuple(procs[k] for k in sequence[1:])


def _initials(sequence: list[int], past: list[int]) -> list[int]:
    """The steps of `sequence` that no other of it precedes."""
    found, members = [], 0
    for k in sequence:
        if not past[k] & members:
            found.append(k)
        members |= 1 << k
    return found
