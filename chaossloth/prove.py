"""What a patched program has to show, measured in the worker: the rungs of the ladder that execute it.

Cheap first. `forced_after` replays the failing order once: almost every wrong candidate ends there. What survives is
compared with the original where nothing is concurrent (`sequential`), then explored under every label. A patched
program has other steps than the original, so the failing schedule is followed as an order of steps (`Guided`), and
replayed as it is; both have to pass. Nothing here says "proven" unless the search ran empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from chaossloth.evidence import Label, Trace
from chaossloth.explore.execute import Execution, Executor
from chaossloth.explore.search import Limits, Search, SearchResult
from chaossloth.explore.strategy import Deviate, Guided, Sequential
from chaossloth.explore.trace import to_trace

__all__ = [
    "Original",
    "SequentialRun",
    "duplicate_work",
    "explore_patched",
    "forced_after",
    "makespan",
    "sequential",
    "work",
]


@dataclass(frozen=True, slots=True)
class SequentialRun:
    """One run of the calls one after another.

    ok, failure, result: how it ended. writes: the last value written to each named location.
    work: function -> how often it wrote or waited (`work`).
    """

    ok: bool
    failure: str
    result: str
    writes: Mapping[str, str]
    work: Counter[str]


@dataclass(frozen=True, slots=True)
class Original:
    """What is kept of the unpatched program: its failing execution, what that did, its sequential runs, and itself."""

    failure: Execution
    work: Counter[str]
    sequential: tuple[SequentialRun, ...]
    program: Any


def forced_after(executor: Executor, failure: Execution, times: int) -> tuple[int, str]:
    """Failures among 2 * `times` runs that force the old order on the program at hand, and the first one's message."""
    failures, message = 0, ""
    schedule, run = failure.schedule, failure.run
    for _ in range(times):
        guided = Guided(run.order, run.extended)
        model = executor.model(schedule.label)
        for chooser in (guided, Deviate(dict(schedule.deviations))):
            execution = executor.execute(chooser, model, schedule.seed)
            if execution.failed:
                failures += 1
                message = message or execution.outcome.message
    return failures, message


def sequential(
    executor: Executor, show: Callable[[Any], str], seeds: Sequence[int] = (0, 1)
) -> tuple[SequentialRun, ...]:
    """The calls one after another in both orders, for each seed. show: canonical text of a result."""
    runs = []
    for seed in seeds:
        for descending in (False, True):
            execution = executor.execute(Sequential(descending), executor.model("reorder"), seed, detail=True)
            runs.append(_sequential_run(executor, execution, show))
    return tuple(runs)


def _sequential_run(executor: Executor, execution: Execution, show: Callable[[Any], str]) -> SequentialRun:
    trace = to_trace(execution, executor.is_subject)
    writes: dict[str, str] = {}
    for step in trace.steps:
        for access in step.accesses:
            if access.mode != "read" and not access.sync and access.value is not None:
                writes[access.name] = access.value
    outcome = execution.outcome
    failure = "" if outcome.ok else f"{outcome.failure} {outcome.exception}: {outcome.message}"
    return SequentialRun(outcome.ok, failure, show(executor.last_result), writes, work(trace))


def work(trace: Trace) -> Counter[str]:
    """Function -> number of writes made in it plus times that a task was suspended in it (a remote call, a query)."""
    made: Counter[str] = Counter()
    for step in trace.steps:
        for access in step.accesses:
            if access.mode != "read" and not access.sync and access.stack:
                made[access.stack[0].function] += 1
        if step.suspended_at is not None:
            made[step.suspended_at.function] += 1
    return made


def duplicate_work(
    executor: Executor, original: Original, sequential_runs: Sequence[SequentialRun], own: Sequence[str]
) -> str:
    """A sentence when the patched program, in the old failing order, does others' work as often as the failing run did,
    and more often than any sequential run does: a second connection opened and thrown away passes an assertion, and a
    card charged twice does, and both are still wrong.

    own: the patched functions and the scenario; what these do themselves is their own affair. Empty: none.
    """
    failure = original.failure
    guided = Guided(failure.run.order, failure.run.extended)
    execution = executor.execute(guided, executor.model(failure.schedule.label), failure.schedule.seed, detail=True)
    for function, count in work(to_trace(execution, executor.is_subject)).items():
        if function in own or function.partition(".")[0] in own:
            continue
        usual = max((run.work[function] for run in sequential_runs), default=0)
        if usual < count and original.work[function] <= count:
            return (
                f"{function} works {count} times, as in the failing run; one call after another at most {usual} times"
            )
    return ""


def explore_patched(
    executor: Executor,
    labels: Sequence[Label],
    seed: int,
    executions: Mapping[Label, int],
    seconds: float,
    on_progress: Callable[[SearchResult], None] | None = None,
) -> list[SearchResult]:
    """Search the patched program under each label, each with its share of the time; stops at the first failure."""
    results = []
    end = perf_counter() + seconds
    for position, label in enumerate(labels):
        now = perf_counter()
        limits = Limits(executions[label], now + max(0.1, (end - now) / (len(labels) - position)))
        result = Search(executor, label, seed).run(limits, on_progress=on_progress)
        results.append(result)
        if result.failure is not None:
            break
    return results


def makespan(executor: Executor, seeds: int) -> float:
    """Mean virtual time (seconds) at the end of stock-order runs with `seeds` different draws."""
    total = 0.0
    for seed in range(seeds):
        total += executor.execute(Deviate({}), executor.model("stock"), seed, record=False).run.now
    return total / seeds
