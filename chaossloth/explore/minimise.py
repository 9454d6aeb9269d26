"""Fewer deviations, same failure. Greedy delta debugging over a schedule's deviations (Zeller, Hildebrandt, TSE 2002).

Dropping a deviation moves the ordinals of later choice points, so a shorter list is a different schedule that has to be
executed; it is kept when it fails in the same way (`Outcome.key`). The result's deviations are those actually taken.
Where the program draws, other draws in plain stock order are tried first: such a failure has no deviation and no
lateness.
"""

from __future__ import annotations

from time import perf_counter

from chaossloth.explore.execute import Execution, Executor
from chaossloth.explore.strategy import Deviate

__all__ = ["minimise"]

_OTHER_SEEDS = 64


def minimise(executor: Executor, found: Execution, deadline: float, max_executions: int = 400) -> tuple[Execution, int]:
    """The smallest failing execution met, and how many executions that took.

    deadline: perf_counter seconds at which it stops.
    """
    model = executor.model(found.schedule.label)
    best, spent = found, 0
    if found.draws and found.schedule.deviations:
        for seed in range(_OTHER_SEEDS):
            if perf_counter() > deadline:
                return best, spent
            trial = executor.execute(Deviate({}), model, seed)
            spent += 1
            if trial.failed and trial.outcome.key() == best.outcome.key():
                return trial, spent
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
            if trial.failed and smaller and trial.outcome.key() == best.outcome.key():
                best, shrunk = trial, True
            else:
                start += size
        if size == 1 and not shrunk:
            break
        size = max(1, size // 2)
    return best, spent
