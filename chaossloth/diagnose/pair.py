"""Which two accesses decide: every race of the failing run is turned round until one reversal passes.

Only executions count: a pair is *critical* when the run that differs from the failing one in this pair alone passes,
and both orders, forced again `times` times, keep their outcomes. The passing run is then the nearest passing
interleaving. Where no single reversal passes, any passing order of the same draws tells a race from a bug that no order
avoids; where only other draws pass, it is the randomness and not the schedule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter
from typing import Literal

from chaossloth.causality import Race, races
from chaossloth.evidence import Trace
from chaossloth.explore.execute import Execution, Executor
from chaossloth.explore.search import Limits, Search, SearchResult
from chaossloth.explore.strategy import Deviate, Guided
from chaossloth.explore.trace import to_trace

__all__ = ["Kind", "RaceDiagnosis", "diagnose"]

Kind = Literal["race", "collected", "always-fails", "random", "undecided"]
_MAX_PAIRS = 60
_PASSING_SEARCH = 400
_OTHER_SEEDS = 40


@dataclass(frozen=True, slots=True)
class RaceDiagnosis:
    """kind: race | collected (of a task that nobody holds) | always-fails (no order passes)
    | random (the draws decide, not the order) | undecided (the time ended before that was known).

    race: the critical pair, None where no single reversal flips the outcome. passing: nearest passing run, if any.
    reversals: executions spent. verified: sentence on what forcing both orders showed.
    """

    kind: Kind
    failing: Trace
    passing: Trace | None
    race: Race | None
    verified: str | None
    executions: int


def diagnose(executor: Executor, failure: Execution, deadline: float, times: int = 20) -> RaceDiagnosis:
    """Diagnose a failing execution within `deadline` (perf_counter seconds)."""
    detailed = executor.replay(failure.schedule, detail=True, strict=True)
    failing = to_trace(detailed, executor.is_subject)
    spent = 1
    if failure.schedule.collect and (collected := _collected(executor, failure, failing, times)) is not None:
        return collected
    best: tuple[float, Race] | None = None
    waited_for = _resources(failure)
    for race in _candidates(failing, waited_for):
        if spent > _MAX_PAIRS or perf_counter() > deadline:
            break
        trial = _reverse(executor, failure, failing, race)
        spent += 1
        if trial is None or trial.failed or trial.truncated:
            continue
        distance = _rank(race, waited_for) + _distance(detailed, trial) * 1e-3
        if best is None or distance < best[0]:
            best = (distance, race)
    if best is None:
        return _without_pair(executor, failure, failing, spent, deadline)
    race = best[1]
    sentence, more = _force_both(executor, failure, failing, race, times)
    passing = _detailed(executor, failure, failing, race)
    return RaceDiagnosis("race", failing, passing, race, sentence, spent + more)


def _collected(executor: Executor, failure: Execution, failing: Trace, times: int) -> RaceDiagnosis | None:
    """The same order with and without collections; None where it fails without them too."""
    kept = replace(failure.schedule, collect=False)
    passing = executor.replay(kept, detail=True)
    if passing.failed or passing.truncated:
        return None
    fails = sum(executor.replay(failure.schedule).failed for _ in range(times))
    passes = sum(not executor.replay(kept).failed for _ in range(times))
    sentence = f"with a collection before each step it fails {fails}/{times}; without, {passes}/{times} pass"
    trace = to_trace(passing, executor.is_subject)
    return RaceDiagnosis("collected", failing, trace, None, sentence, 2 + 2 * times)


def _resources(failure: Execution) -> tuple[str, ...]:
    """What the tasks of a deadlock wait for."""
    report = failure.run.deadlock
    return tuple(edge.resource for edge in report.cycle) if report is not None else ()


def _candidates(failing: Trace, waited_for: tuple[str, ...]) -> list[Race]:
    sync = failing.outcome.failure in ("deadlock", "livelock")
    found = races(failing.steps, sync=sync)
    if not found and not sync:
        found = races(failing.steps, sync=True)
    return sorted(found, key=lambda race: _rank(race, waited_for))


def _rank(race: Race, waited_for: tuple[str, ...]) -> float:
    """A read that a later write makes stale explains more than two writes; primitives' operations explain least.

    Except of a deadlock, which what is waited for explains best.
    """
    if any(race.first.name.startswith(f"{resource}.") for resource in waited_for):
        return -1.0
    return (2.0 if race.first.sync else 0.0) + (0.0 if race.first.mode == "read" else 0.5 if race.read_write else 1.0)


def _hold(failing: Trace, race: Race) -> dict[tuple[str, int], tuple[str, int]]:
    first, second = failing.steps[race.first_step], failing.steps[race.second_step]
    return {(first.proc, first.ordinal): (second.proc, second.ordinal)}


def _reverse(
    executor: Executor, failure: Execution, failing: Trace, race: Race, detail: bool = False
) -> Execution | None:
    """The failing order with `race.first`'s step held until `race.second`'s has run; None when that cannot be had."""
    guided = Guided(failure.run.order, failure.run.extended, _hold(failing, race))
    trial = executor.execute(guided, executor.model("reorder"), failure.schedule.seed, detail)
    first, second = failing.steps[race.first_step], failing.steps[race.second_step]
    position: dict[tuple[str, int], int] = {}
    counts: dict[str, int] = {}
    for index, (key, _) in enumerate(trial.run.order):
        counts[key] = counts.get(key, 0) + 1
        position[key, counts[key]] = index
    a, b = position.get((first.proc, first.ordinal)), position.get((second.proc, second.ordinal))
    return trial if b is not None and (a is None or b < a) else None


def _detailed(executor: Executor, failure: Execution, failing: Trace, race: Race) -> Trace | None:
    trial = _reverse(executor, failure, failing, race, detail=True)
    return None if trial is None else to_trace(trial, executor.is_subject)


def _distance(failing: Execution, passing: Execution) -> int:
    """Number of steps that do not stand at the same place."""
    return sum(a != b for a, b in zip(failing.run.order, passing.run.order, strict=False))


def _force_both(executor: Executor, failure: Execution, failing: Trace, race: Race, times: int) -> tuple[str, int]:
    fails = sum(executor.replay(failure.schedule).failed for _ in range(times))
    passes = 0
    for _ in range(times):
        trial = _reverse(executor, failure, failing, race)
        passes += trial is not None and not trial.failed
    sentence = f"in this order it fails {fails}/{times}"
    sentence += f"; with these two steps the other way round, {passes}/{times} pass"
    if fails != times or passes != times:
        sentence = f"not confirmed: {sentence}"
    return sentence, 2 * times


def _without_pair(executor: Executor, failure: Execution, failing: Trace, spent: int, deadline: float) -> RaceDiagnosis:
    """No single reversal passes: does any order of the same draws, or only other draws?"""
    search = Search(executor, "reorder", failure.schedule.seed)
    search.fixed_seed = True
    result = search.run(Limits(_PASSING_SEARCH, deadline), stop=_has_passed)
    spent += result.executions
    if result.passed:
        nearest = min(result.passed, key=lambda execution: _distance(failure, execution))
        replayed = executor.replay(nearest.schedule, detail=True)
        return RaceDiagnosis("race", failing, to_trace(replayed, executor.is_subject), None, None, spent)
    if failure.draws:
        for offset in range(1, _OTHER_SEEDS):
            trial = executor.execute(Deviate({}), executor.model("stock"), failure.schedule.seed + offset)
            spent += 1
            if not trial.failed:
                trace = to_trace(executor.replay(trial.schedule, detail=True), executor.is_subject)
                return RaceDiagnosis("random", failing, trace, None, None, spent)
    enough = result.exhausted or result.executions >= _PASSING_SEARCH or perf_counter() < deadline
    return RaceDiagnosis("always-fails" if enough else "undecided", failing, None, None, None, spent)


def _has_passed(result: SearchResult) -> bool:
    return bool(result.passed)
