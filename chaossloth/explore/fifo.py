"""Reduction for the FIFO models (`stock`, `latency`): deliveries are the only choices, rounds their coordinates.

Every step follows from one delivery, its *root*, by a chain of handles that were each scheduled in one round and run in
the next: it runs in round R(root) + depth. Among steps of one round the deeper comes first (its root was delivered
earlier, so its handle stood in the queue already), at equal depth the one whose root was delivered first. "a before b"
is therefore one difference constraint between two roots; with x = depth(a) - depth(b):

    R(b) - R(a) >= x  if x > 0,     >= x + 1  if x < 0,     >= 0 and a delivered first  if x = 0.

To reverse a race (j, i): keep the steps before i that j did not cause and that do not follow j rigidly (same root),
keep the order of every conflict among them, put i before j, and solve (Bellman-Ford, least rounds first). What the
solution delivers is a schedule; it is executed, and its own races are reversed in turn. First all of that prefix is
kept; where that has no solution, only what i depends on; then also conflicts of i with what follows j rigidly may turn
round: they move together. Executions with equal happens-before are analysed once.

`latency` adds roots: a bare yield that takes time is delivered like a timer. Which yields those are is part of the
schedule; a reversal may extend, beside those of the execution at hand, one more on the chain that leads to j.

This is a search over constraints, not a stateless depth-first search, because FIFO order couples steps that no access
connects; sleep sets do not apply. Its completeness rests on the property tests against brute force, not on a proof.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from chaossloth.explore.happens_before import CONFLICTS, HappensBefore
from chaossloth.loop.run import Handle, Run
from chaossloth.subject.recorder import WRITE

__all__ = ["FifoReduction"]

Event = tuple[str, int]  # identity of a step: (proc key, ordinal); of a delivery: its first step
Schedule = tuple[tuple[float, Event], ...]
_FIRST = 1e-4  # delivered at the same boundary, but before
_MAX_WORK = 400_000  # steps looked at, times attempts: what is taken from one execution (4,000 races of 100 steps)
_MAX_WAITING = 100_000


@dataclass(frozen=True, slots=True)
class _Constraint:
    """round(after) >= round(before) + weight; weight `_FIRST`: the same round is enough, delivered in this order."""

    before: int
    after: int
    weight: float


@dataclass(frozen=True, slots=True)
class _Plan:
    """A schedule that should run `second` before `first`, and before it the steps of `kept` in that order."""

    schedule: Schedule = ()
    first: Event = ("", 0)
    second: Event = ("", 0)
    kept: frozenset[tuple[Event, Event]] = frozenset()

    @property
    def goal(self) -> int:
        return hash((self.kept, self.second, self.first))


class FifoReduction:
    """The search's state between executions: plans to execute, and what was seen.

    finished: none is left. complete: nothing was dropped for lack of room. redundant: executions equivalent to another.
    A goal is tried from several executions (other yields may be extended there) until one reaches it.
    """

    def __init__(self) -> None:
        self.finished = False
        self.complete = True
        self.deadline = math.inf  # of perf_counter; the analysis of a very long execution stops there, incomplete
        self.redundant = 0
        self._waiting: deque[_Plan] = deque([_Plan()])
        self._plan = _Plan()
        self._reached: set[int] = set()
        self._planned: set[int] = set()
        self._seen: set[int] = set()
        self._executed = 0

    def next(self) -> _Rounds:
        """The strategy of the next execution. Call `learn` with it afterwards."""
        self._plan = self._waiting.popleft()
        return _Rounds(self._plan.schedule)

    def learn(self, path: _Rounds, run: Run) -> None:
        """Take in an execution: reversals of its races become plans."""
        self._executed += 1
        trace = _Trace(run)
        if trace.has_turned(self._plan):
            self._reached.add(self._plan.goal)
        signature = trace.signature()
        if signature in self._seen:
            self.redundant += 1
        else:
            self._seen.add(signature)
            for plan in trace.reversals():
                self._add(plan)
                if perf_counter() > self.deadline:
                    self.complete = False
                    break
            self.complete = self.complete and trace.complete
        while self._waiting and self._waiting[0].goal in self._reached:
            self._waiting.popleft()
        self.finished = not self._waiting

    def _add(self, plan: _Plan) -> None:
        attempt = hash((plan.goal, plan.schedule))
        if plan.goal in self._reached or attempt in self._planned:
            return
        if len(self._waiting) >= _MAX_WAITING:
            self.complete = False
            return
        self._planned.add(attempt)
        self._waiting.append(plan)

    def explored_share(self) -> float:
        """Share of the plans known so far that were executed: an upper bound on the share of the space."""
        return self._executed / (self._executed + len(self._waiting))


class _Rounds:
    """A strategy: delivers what its schedule says in the rounds that it says; the rest when nothing else can run."""

    def __init__(self, schedule: Schedule) -> None:
        self._planned = {event: at for at, event in schedule}
        self._shift = -1.0  # the first round is number 0
        self._round = -1
        self._idle_at: float | None = None

    def choose(self, options: list[Handle | None], run: Run) -> int:
        handles = [handle for handle in options if handle is not None]
        if (
            len(options) == 2
            and options[0] is None
            and handles[0].cause == "yield"
            and handles[0] not in _free(handles)
        ):
            return int(_event(handles[0]) in self._planned)
        if run.rounds != self._round:
            self._round, self._idle_at = run.rounds, None
        now = run.rounds + self._shift
        may_wait = None in options
        pending = handles[0].loop.completions()
        due = sorted((self._planned[event], event) for h in pending if (event := _event(h)) in self._planned)
        if not may_wait and due and due[0][0] >= now + 1:
            self._shift += int(due[0][0]) - int(now)  # nothing can run until then: these rounds do not exist
            now = run.rounds + self._shift
        if due and due[0][0] < now + 1:
            return self._towards(due[0][1], pending, options)
        if may_wait:
            return self._with_same_deadline(options)
        first = min(
            handles, key=lambda h: (h.deadline if h.cause == "timer" else -1.0, h.seq if h.cause == "timer" else 0)
        )
        self._idle_at = first.deadline if first.cause == "timer" else None
        return options.index(first)

    def _with_same_deadline(self, options: list[Handle | None]) -> int:
        """Unplanned timers arrive when the loop is idle, all that are due by then together."""
        for index, handle in enumerate(options if self._idle_at is not None else ()):
            if handle is None or handle.cause != "timer" or _event(handle) in self._planned:
                continue
            if self._idle_at is not None and handle.deadline <= self._idle_at:
                return index
        return options.index(None)

    @staticmethod
    def _towards(event: Event, pending: list[Handle], options: list[Handle | None]) -> int:
        """The option that delivers `event`, or what has to come before it."""
        wanted = next(handle for handle in pending if _event(handle) == event)
        while wanted not in options:
            blocking = [other for other in wanted.before if not other.arrived and not other._cancelled]
            if not blocking:
                return 0  # a step or an earlier timer has to go first
            wanted = blocking[0]
        return options.index(wanted)


def _event(handle: Handle) -> Event:
    return handle.proc.key, handle.proc.steps + 1


def _free(handles: list[Handle]) -> list[Handle]:
    return handles[0].loop.completions()


class _Trace:
    """One execution, ready for the reversal of its races."""

    def __init__(self, run: Run) -> None:
        self.order = HappensBefore(run, fifo=True)
        for step in run.steps:
            self.order.add(step)
        self.run = run
        self.steps = run.steps
        self.complete = not any(step.creator < 0 for step in self.steps[1:])
        self._extended: tuple[int, ...] | None = None
        self._extend(())

    def _extend(self, extended: Collection[int]) -> None:
        """Roots and depths as they would be if the bare yields before the steps `extended` took time."""
        if self._extended == tuple(extended):
            return
        self._extended = tuple(extended)
        self.root: list[int] = []
        self.depth: list[float] = []
        for index, step in enumerate(self.steps):
            if self.run.links[index][2] == index or index in extended:
                self.root.append(index)
                self.depth.append(0)
            else:
                self.root.append(self.root[step.creator])
                # The end, and a cancellation at the end of its round, come after everything else in it.
                self.depth.append(self.depth[step.creator] + (0.5 if step.cause in ("end", "cancel") else 1))

    def _extensions(self, first: int, second: int) -> Iterator[tuple[int, ...]]:
        """Yields that may take time so that `first` comes later: none; each on its chain, last ones first; all."""
        yield ()
        if self.run.model.label != "latency":
            return
        chain = self.order.causal[first] | 1 << first
        chain &= ~self.order.causal[second]
        found = [k for k in range(first, -1, -1) if chain >> k & 1 and self.steps[k].cause == "yield"]
        yield from ((k,) for k in found)
        if len(found) > 1:
            yield tuple(found)

    def event(self, index: int) -> Event:
        step = self.steps[index]
        return step.proc.key, step.ordinal

    def signature(self) -> int:
        """Equal for executions that differ in the order of independent steps only."""
        edges = frozenset((self.event(first), self.event(second)) for first, second in self.order.races)
        made = frozenset(
            (self.event(index), self.event(step.creator) if step.creator >= 0 else None, step.cause)
            for index, step in enumerate(self.steps)
        )
        return hash((edges, made))

    # ------------------------------------------------------------------ reversals

    def has_turned(self, plan: _Plan) -> bool:
        """Whether this execution reaches what the plan is for."""
        at = {self.event(index): index for index in range(len(self.steps))}
        if plan.second not in at or at[plan.second] > at.get(plan.first, len(self.steps)):
            return False
        return all(a in at and b in at and at[a] < at[b] for a, b in plan.kept)

    def reversals(self) -> Iterator[_Plan]:
        """Plans for each race and each completion that was cancelled."""
        attempts = max(1, _MAX_WORK // max(1, len(self.steps)))
        for first, second, extended in self._attempts():
            if not attempts:
                self.complete = False
                break
            attempts -= 1
            self._extend(extended)
            yield from self._reversal(first, second, extended)
        self._extend(())
        for step, handle in self.run.killed:
            if handle.cause in ("timer", "external", "late yield") and 0 <= step < len(self.steps):
                yield from self._arrives_first(handle, step)

    def _attempts(self) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        for first, second in self.order.races:
            for extended in self._extensions(first, second):
                yield first, second, extended

    def _reversal(self, first: int, second: int, extended: tuple[int, ...]) -> Iterator[_Plan]:
        tried: set[int] = set()
        for through_conflicts in (True, False):
            follows = self._follows(first, second, through_conflicts)
            if follows in tried or follows >> second & 1:
                continue
            tried.add(follows)
            kept = [k for k in range(second) if not follows >> k & 1] + [second]
            needed = self.order.past[second] | self.order.past[first] | 1 << second
            least = [k for k in kept if needed >> k & 1]
            for steps, moved in ((kept, 0), (least, 0), (kept, 1), (least, 1), (kept, 2), (least, 2)):
                found = self._solve(steps, first, second, moved)
                if found is not None:
                    kept_order = self._order_of(steps, first, second)
                    yield _Plan(found, self.event(first), self.event(second), kept_order)
                    break

    def _follows(self, first: int, second: int, through_conflicts: bool) -> int:
        """Bit set: `first`, what it caused, what follows rigidly, and what depends on those."""
        follows = 1 << first
        root = self.root[first]
        for k in range(first + 1, second + 1):
            if (
                (self.root[k] == root and k != second)
                or self.order.causal[k] & follows
                or (through_conflicts and k != second and self.order.past[k] & follows)
            ):
                follows |= 1 << k
        return follows

    def _order_of(self, steps: list[int], first: int, second: int) -> frozenset[tuple[Event, Event]]:
        """The conflicts among `steps` in the order that a plan keeps; `second` comes last, `first` is left out."""
        pairs: set[tuple[Event, Event]] = set()
        history = _History()
        for k in [*(k for k in steps if k not in (first, second)), second]:
            for location, mode in (self.order.accesses[k] if k < len(self.order.accesses) else {}).items():
                pairs.update((self.event(other), self.event(k)) for other in history.conflicting(location, mode))
                history.add(location, mode, k)
        return frozenset(pairs)

    def _arrives_first(self, killed: Handle, step: int) -> Iterator[_Plan]:
        """`killed`, which step number `step` cancelled, could have arrived before."""
        if killed.creator >= step or killed.creator < 0:
            return
        index = len(self.steps)
        event = (killed.proc.key, killed.proc.steps + 1)
        self.steps = [*self.steps, _Ghost(killed.creator, event)]  # type: ignore[list-item]
        self.root.append(index)
        self.depth.append(0)
        before = {k for k in range(step) if self.steps[k].proc.key in {other.proc.key for other in killed.before}}
        try:
            for steps in ([*range(step)], [k for k in range(step) if self.order.past[step] >> k & 1 or k in before]):
                found = self._solve([*steps, index], step, index, 0, before)
                if found is not None:
                    yield _Plan(found, self.event(step), event, self._order_of(steps, step, step))
                    break
        finally:
            self.steps = self.steps[:-1]
            self.root.pop()
            self.depth.pop()

    # ------------------------------------------------------------------ constraints

    def _before(self, a: int, b: int) -> _Constraint | None:
        """The constraint that makes step a run before step b; None where their root is the same (nothing to choose)."""
        if self.root[a] == self.root[b]:
            return None
        x = self.depth[a] - self.depth[b]
        least = math.ceil(x) if x != int(x) else x if x > 0 else x + 1
        return _Constraint(self.root[a], self.root[b], least if x else _FIRST)

    def _solve(
        self, steps: list[int], first: int, second: int, moved: int, before: Iterable[int] = ()
    ) -> Schedule | None:
        """Rounds of all deliveries that `steps` need, with `second` before `first`.

        moved: which conflicts with steps that follow the same delivery as `first` may turn round, because they move
        with it: 0 none, 1 those of `second`, 2 all.
        """
        wanted = self._before(second, first)
        if wanted is None:
            return None
        constraints = [wanted, *(_Constraint(self.root[k], second, 1) for k in before if self.root[k] != second)]
        conflicts = self._conflicts(steps, first, second, moved)
        if conflicts is None:
            return None
        constraints += conflicts
        nodes = {self.root[k] for k in steps} | {self.root[first]}
        constraints += self._deliveries(nodes)
        rounds = _least(nodes, constraints)
        if rounds is None or rounds[self.root[0]] > 0:
            return None
        return tuple(sorted((at, self.event_of_root(node)) for node, at in rounds.items() if node != self.root[0]))

    def event_of_root(self, node: int) -> Event:
        step = self.steps[node]
        return step.event if isinstance(step, _Ghost) else self.event(node)

    def _conflicts(self, steps: list[int], first: int, second: int, moved: int) -> list[_Constraint] | None:
        """Keep the order of conflicting steps; `second` comes last among them, as in the execution."""
        constraints = []
        history = _History()
        for k in [*sorted(k for k in steps if k not in (first, second)), second, first]:
            if k >= len(self.order.accesses):
                continue
            for location, mode in self.order.accesses[k].items():
                for other in history.conflicting(location, mode):
                    if other == k or self.order.causal[k] >> other & 1:
                        continue
                    if self._moves(other, k, first, second, moved):
                        continue
                    made = self._before(other, k)
                    if made is not None:
                        constraints.append(made)
                    elif other > k:
                        return None
                history.add(location, mode, k)
        return constraints

    def _moves(self, a: int, b: int, first: int, second: int, moved: int) -> bool:
        """Whether the order of a and b is given up, because one of them moves with `first`."""
        root = self.root[first]
        return moved > 1 and root in (self.root[a], self.root[b]) or moved == 1 and b == second and self.root[a] == root

    def _deliveries(self, nodes: set[int]) -> list[_Constraint]:
        """A delivery comes in a round after its creation, and after what it has to wait for. Extends `nodes`."""
        constraints = []
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            step = self.steps[node]
            if step.creator < 0:
                continue
            made_by = self.root[step.creator]
            constraints.append(_Constraint(made_by, node, self.depth[step.creator] + 1))
            if made_by not in nodes:
                nodes.add(made_by)
                waiting.append(made_by)
        for node in nodes:
            for other in getattr(self.steps[node], "required", ()):
                if other in nodes and other != node:
                    constraints.append(_Constraint(other, node, _FIRST))
        return constraints


class _History:
    """Accesses of each location since its last write, by mode: where many only read, a read need not look at them."""

    def __init__(self) -> None:
        self._steps: dict[Any, dict[int, list[int]]] = {}

    def conflicting(self, location: Any, mode: int) -> Iterator[int]:
        """Earlier steps that a step with an access of `mode` may not be exchanged with."""
        mask = CONFLICTS[mode]
        for their, steps in self._steps.get(location, {}).items() if mask else ():
            if their & mask:
                yield from steps

    def add(self, location: Any, mode: int, step: int) -> None:
        if mode & WRITE:
            self._steps[location] = {mode: [step]}
        elif CONFLICTS[mode]:
            self._steps.setdefault(location, {}).setdefault(mode, []).append(step)


@dataclass(frozen=True, slots=True)
class _Ghost:
    """Stands for the step of a completion that never arrived."""

    creator: int
    event: Event


def _least(nodes: set[int], constraints: list[_Constraint]) -> dict[int, float] | None:
    """The least rounds that satisfy all constraints, None if there are none (a positive cycle)."""
    rounds = dict.fromkeys(nodes, 0.0)
    for _ in range(2 * len(nodes) + 4):
        changed = False
        for constraint in constraints:
            base = rounds[constraint.before]
            least = base + _FIRST if constraint.weight == _FIRST else int(base + 1e-9) + constraint.weight
            if least > rounds[constraint.after] + 1e-9:
                rounds[constraint.after] = least
                changed = True
        if not changed:
            return rounds
    return None
