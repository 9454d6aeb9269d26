"""Fewer deviations, same failure. Greedy delta debugging over a schedule's deviations (Zeller, Hildebrandt, TSE 2002).

Dropping a deviation moves the ordinals of later choice points, so a shorter list is a different schedule that has to be
executed; it is kept when it fails in the same way (`Outcome.key`). The result's deviations are those actually taken.
Where the program draws, other draws in plain stock order are tried first: such a failure has no deviation and no
lateness.

Among schedules with as few deviations, the one is wanted that needs the least of the machine: the least lateness
(`explore.lateness`), in `reorder` the least bypass. Hill climbing: one deviation at a time is moved to another option
or to a choice point nearby, and the first one that fails in the same way for less is gone on from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from time import perf_counter

from chaossloth.explore.execute import Execution, Executor
from chaossloth.explore.lateness import least_lateness
from chaossloth.explore.strategy import Deviate

__all__ = ["minimise"]

_OTHER_SEEDS = 64
_CLIMBING = 60  # executions
_NEARBY = (0, 1, -1, 2, -2)  # choice points from that of a deviation

Deviations = tuple[tuple[int, int], ...]
Kind = Callable[[Execution], object]


def _outcome(execution: Execution) -> object:
    return execution.outcome.key()


def minimise(
    executor: Executor, found: Execution, deadline: float, max_executions: int = 400, kind: Kind = _outcome
) -> tuple[Execution, int]:
    """The failing execution with the fewest deviations met, and of such the least late; how many executions that took.

    deadline: perf_counter seconds at which it stops. kind: equal for executions that fail in the same way.
    """
    best, spent = _other_draws(executor, found, deadline, kind)
    while True:
        best, more = _fewest(executor, best, deadline, max_executions - spent, kind)
        spent += more
        fewest = best
        best, more = _least_late(executor, best, deadline, min(_CLIMBING, max_executions - spent), kind)
        spent += more
        if best is fewest:
            return best, spent


def _other_draws(executor: Executor, found: Execution, deadline: float, kind: Kind) -> tuple[Execution, int]:
    if not found.draws or not found.schedule.deviations:
        return found, 0
    model = executor.model(found.schedule.label)
    for seed in range(_OTHER_SEEDS):
        if perf_counter() > deadline:
            return found, seed
        trial = executor.execute(Deviate({}), model, seed)
        if trial.failed and kind(trial) == kind(found):
            return trial, seed + 1
    return found, _OTHER_SEEDS


def _fewest(
    executor: Executor, found: Execution, deadline: float, max_executions: int, kind: Kind
) -> tuple[Execution, int]:
    model = executor.model(found.schedule.label)
    best, spent = found, 0
    size = max(1, len(best.schedule.deviations) // 2)
    while size >= 1 and best.schedule.deviations:
        start, shrunk = 0, False
        while start < len(best.schedule.deviations):
            if spent >= max_executions or perf_counter() > deadline:
                return best, spent
            kept = best.schedule.deviations[:start] + best.schedule.deviations[start + size :]
            trial = executor.execute(Deviate(dict(kept)), model, best.schedule.seed)
            spent += 1
            smaller = len(trial.schedule.deviations) < len(best.schedule.deviations)
            if trial.failed and smaller and kind(trial) == kind(best):
                best, shrunk = trial, True
            else:
                start += size
        if size == 1 and not shrunk:
            break
        size = max(1, size // 2)
    return best, spent


def _least_late(executor: Executor, found: Execution, deadline: float, most: int, kind: Kind) -> tuple[Execution, int]:
    schedule = found.schedule
    if not schedule.deviations or most < 2 or perf_counter() > deadline:
        return found, 0
    model, key = executor.model(schedule.label), kind(found)
    best = executor.replay(schedule, detail=True)
    price, spent, improved = _price(best), 1, True
    while improved and price > (0.0, 0.0):
        improved = False
        for deviations in _neighbours(best):
            if spent + 1 >= most or perf_counter() > deadline:
                break
            trial = executor.execute(Deviate(dict(deviations)), model, schedule.seed, detail=True)
            spent += 1
            few = len(trial.schedule.deviations) <= len(best.schedule.deviations)
            if few and trial.failed and kind(trial) == key and (less := _price(trial)) < price:
                best, price, improved = trial, less, True
                break
    if best.schedule.deviations == schedule.deviations:
        return found, spent
    return executor.replay(best.schedule), spent + 1  # without the detail, like what was found


def _price(execution: Execution) -> tuple[float, float]:
    """What the order asks of the machine; `execution` was made in detail."""
    run = execution.run
    if run.model.label == "reorder":
        return float(run.bypass), run.lateness
    late = least_lateness(run)
    return (inf if late is None else late), 0.0


def _neighbours(execution: Execution) -> Iterator[Deviations]:
    """One deviation moved: another option of the same choice point, or any of one nearby."""
    deviations, options = execution.schedule.deviations, execution.run.options
    for place, (at, taken) in enumerate(deviations):
        others = deviations[:place] + deviations[place + 1 :]
        for index in (at + offset for offset in _NEARBY):
            if not 0 <= index < len(options) or index in dict(others):
                continue
            for option in range(1, options[index]):
                if (index, option) != (at, taken):
                    yield tuple(sorted((*others, (index, option))))
