"""The cancellation sweep: one cancel at each suspension of each victim, under the orders that matter.

Where a victim can be cancelled is not known beforehand: runs show it (`Victims.places`). The run without a cancellation
comes first, and its orders are searched beside the others; any run may add places. For each place and each way of
arriving (`loop.cancelling`) there is one `Search` over the orders of the other events. They take turns, cheap breadth
first: every place in stock order, then two executions each, then four, ... so that a fault that needs no particular
order is met before many orders are tried at one place. Labels come in the order of the main search.

With `double`, a victim that is suspended again after its cancellation (in its `finally`, in an `except`) is cancelled
there a second time. Two different victims are never cancelled in one execution.

With `every_failure` a failure ends nothing but what it is the failure of: kinds of failure are kept, per landing line.
One without a cancellation still ends the sweep, which would show it everywhere.

Timeouts count as cancellations: where one surrounds the body of a victim, or of a task that a victim started, it fires
while the body is suspended there, however short the body takes in virtual time.

The sweep is exhausted when each of its searches is, and no run has shown another place. Compared with brute force on
random programs the reduction loses nothing where the place alone says when a cancellation arrives (x under the FIFO
labels) and under `reorder`; where the search has to find the round (z under the FIFO labels) it missed an outcome in 2
of 200 (`stock`) and 3 of 100 (`latency`). So a search of that kind that had a choice is never said to be exhausted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple

from chaossloth.evidence import Label
from chaossloth.explore.execute import Execution, Executor
from chaossloth.explore.search import Limits, Search, SearchResult
from chaossloth.loop.cancelling import LATER, TIMEOUTS, Cancel, Victims
from chaossloth.plural import count

__all__ = ["Sweep", "SweepResult", "fields", "words"]

_KEPT = 2  # passing executions of each search
_KINDS: dict[Label, str] = {"stock": "xtzu", "latency": "xtzu", "reorder": "zu"}

Plan = tuple[Cancel, ...]


@dataclass(slots=True)
class SweepResult:
    """results: per label, over all placements. placements: how many plans were executed, per label.

    tasks: names of the victims met. suspensions, timeouts, doubles: places at which they were cancelled.
    base: failing execution without a cancellation, which ends the sweep: it has nothing to add to that.
    """

    results: dict[Label, SearchResult] = field(default_factory=dict)
    placements: Counter[Label] = field(default_factory=Counter)
    tasks: tuple[str, ...] = ()
    suspensions: int = 0
    timeouts: int = 0
    doubles: int = 0
    landed: int = 0
    base: Execution | None = None

    @property
    def failure(self) -> Execution | None:
        return next((result.failure for result in self.results.values() if result.failure is not None), None)


class _Label:
    """One label's searches, in the order in which their plans were met."""

    def __init__(self) -> None:
        self.searches: dict[Plan, Search] = {}
        self.done: set[Plan] = set()
        self.level = 1


class Sweep:
    """One sweep over `victims`; `run` goes on until a failure (all the same with `every_failure`), the limits, or
    nothing is left.
    """

    def __init__(
        self, executor: Executor, victims: Victims, seed: int, double: bool = False, every_failure: bool = False
    ) -> None:
        self._executor = executor
        self._victims = victims
        self._seed = seed
        self._double = double
        self._every_failure = every_failure
        self._again: dict[Plan, None] = {}
        self._labels: dict[Label, _Label] = {}
        self.result = SweepResult()
        executor.victims = victims

    def run(
        self, label: Label, limits: Limits, on_progress: Callable[[SearchResult], None] | None = None
    ) -> SearchResult:
        """Sweep one label. Limits are for all its placements together."""
        state = self._labels.setdefault(label, _Label())
        total = self.result.results.setdefault(label, SearchResult(label))
        while self.result.base is None:
            waiting = [plan for plan in self._plans(label) if plan not in state.done]
            if not waiting:
                total.exhausted = all(_exhausted(label, plan, each.result) for plan, each in state.searches.items())
                break
            for plan in waiting:
                if self._is_decided(total) or total.executions >= limits.executions or _over(limits):
                    return self._told(label)
                self._turn(state, label, plan, limits, total)
                if on_progress is not None:
                    on_progress(total)
            if self._is_decided(total):
                break
            state.level *= 2
        return self._told(label)

    def _is_decided(self, result: SearchResult) -> bool:
        """Whether a failure, of the sweep or of one search of it, is all that is wanted."""
        return self.result.base is not None or (result.failure is not None and not self._every_failure)

    def _turn(self, state: _Label, label: Label, plan: Plan, limits: Limits, total: SearchResult) -> None:
        search = state.searches.get(plan)
        if search is None:
            search = state.searches[plan] = Search(self._executor, label, self._seed)
            self.result.placements[label] += 1
        before = _counted(search.result)
        allowed = before.executions + min(state.level, limits.executions - total.executions)
        with self._executor.like(plan):
            result = search.run(Limits(allowed, limits.deadline), self._stop)
        _add(total, result, before)
        if result.failure is not None and not plan:
            self.result.base = result.failure
        del result.passed[_KEPT:]
        if result.exhausted or (result.executions < allowed and not self._is_decided(result) and not _over(limits)):
            state.done.add(plan)

    def _stop(self, result: SearchResult) -> bool:
        """Asked after each execution: a good moment to see what it showed."""
        injector = self._executor.last_run.cancels if self._executor.last_run is not None else None
        if injector is not None and injector.landed:
            self.result.landed += 1
            if self._double and len(injector.plan) == 1:
                for place in injector.places_after:
                    self._again.setdefault((injector.plan[0], Cancel(place[0], place[1])))
        return self._is_decided(result)

    def _plans(self, label: Label) -> list[Plan]:
        victims = self._victims
        plans: list[Plan] = [()]
        for kind in _KINDS[label]:
            places: Iterable[tuple[str, int]] = victims.timeouts if kind in TIMEOUTS else victims.places
            plans += [(Cancel(key, step, kind),) for key, step in places]
        kind = "z" if label == "reorder" else "x"
        again = [plan for plan in self._again if plan[0].kind in _KINDS[label]]
        return plans + [(first, Cancel(second.victim, second.step, kind)) for first, second in again]

    def _told(self, label: Label) -> SearchResult:
        victims, result = self._victims, self.result
        keys = {key for key, _ in (*victims.places, *victims.timeouts)}
        result.tasks = tuple(dict.fromkeys(victims.names[key] for key in sorted(keys) if key in victims.names))
        result.suspensions, result.timeouts = len(victims.places), len(victims.timeouts)
        result.doubles = len(self._again)
        return result.results[label]


def _exhausted(label: Label, plan: Plan, result: SearchResult) -> bool:
    """See the module docstring about what is not claimed."""
    later = label != "reorder" and any(cancel.kind in LATER for cancel in plan)
    return result.exhausted and not (later and result.max_choices)


def _over(limits: Limits) -> bool:
    return perf_counter() > limits.deadline


class _Counted(NamedTuple):
    """What of a search is in the sum already."""

    executions: int
    truncated: int
    failures: int


def _counted(result: SearchResult) -> _Counted:
    return _Counted(result.executions, result.truncated, result.failures)


def _add(total: SearchResult, result: SearchResult, known: _Counted) -> None:
    """Add what a search's latest turn did to the sum."""
    made = result.executions - known.executions
    before = total.executions - known.executions  # that the other searches had made
    if result.failure is not None and total.failure is None:
        total.failure, total.executions_to_find = result.failure, before + result.executions_to_find
    for kind, (execution, executions) in result.kinds.items():
        total.remember(kind, execution, before + executions)
    total.more_kinds |= result.more_kinds - total.kinds.keys()
    total.executions += made
    total.failures += result.failures - known.failures
    total.truncated += result.truncated - known.truncated
    total.signatures |= {hash((id(result), each)) for each in result.signatures}
    total.lock_order |= result.lock_order
    total.touched |= result.touched
    total.seeds |= result.seeds
    total.draws = max(total.draws, result.draws)
    total.locks = max(total.locks, result.locks)
    for name in ("max_steps", "max_procs", "max_choices"):
        setattr(total, name, max(getattr(total, name), getattr(result, name)))
    total.passed += result.passed[: max(0, 4 - len(total.passed))]
    for strategy in result.strategies:
        total.strategies.setdefault(strategy, 0)
    total.strategies["cancellation sweep"] = total.strategies.get("cancellation sweep", 0) + made


def words(result: SweepResult, chosen: str, shown: int = 6) -> str:
    """The bound for the verdict: which victims, how many places, how many cancellations at once."""
    names = ", ".join(result.tasks[:shown]) + (f" and {len(result.tasks) - shown} more" if result.tasks[shown:] else "")
    once = "one" if not result.doubles else "one or two"
    text = f"{once} per execution, at {count(result.suspensions, 'suspension')} of {count(len(result.tasks), 'task')}"
    text += f" ({chosen}: {names or 'none'})"
    if result.timeouts:
        text += f", {count(result.timeouts, 'timeout placement')}"
    if result.doubles:
        text += f", {count(result.doubles, 'second cancel')}"
    return text


def fields(result: SweepResult) -> dict[str, Any]:
    """The counts as plain values."""
    return {
        "tasks": list(result.tasks),
        "suspensions": result.suspensions,
        "timeouts": result.timeouts,
        "doubles": result.doubles,
        "landed": result.landed,
        "placements": dict(result.placements),
    }
