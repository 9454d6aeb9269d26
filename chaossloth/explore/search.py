"""The search for a failing schedule under one label: reduction first, sampling beside it where the space is large.

A portfolio, because each part loses badly somewhere (Thomson, Donaldson, Betts, "Concurrency testing using schedule
bounding", PPoPP 2014):

* reduction: one execution per class of equivalent interleavings, or close to it; source-DPOR for `reorder`
  (`explore.dpor`), reversals by difference constraints for the FIFO models (`explore.fifo`). It starts with stock order
  and has the first `REDUCTION_FIRST` executions to itself;
* other draws: stock order with another seed, where the program draws random numbers;
* random walks of several temperaments, PCT of depth 1 to 3 with its guarantee (`pct_floor`), and POS (partial order
  sampling), all under the fairness bound.

The verdict may say "exhausted" only when the reduction ran empty and nothing was drawn, clocked by the machine or real.
A failing order of `reorder` is executed again as the equivalent order closest to FIFO; if that still passes a ready
handle over more often than the bound, it is unfair and no finding, and the search is no longer exhaustive.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from chaossloth.causality import signature
from chaossloth.evidence import Label, LockOrderEdge
from chaossloth.explore.dpor import Reduction
from chaossloth.explore.execute import Execution, Executor
from chaossloth.explore.fifo import FifoReduction
from chaossloth.explore.happens_before import HappensBefore
from chaossloth.explore.lateness import least_lateness
from chaossloth.explore.strategy import PCT, POS, Deviate, Equivalent, Fair, RandomWalk
from chaossloth.loop.run import Chooser

__all__ = ["MOST_KINDS", "REDUCTION_FIRST", "Limits", "Search", "SearchResult", "kind_of", "pct_floor"]

REDUCTION_FIRST = 64
MOST_KINDS = 20  # kinds of failure of which one execution is kept
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")
_COLLECTED = "collection before every step"
BEYOND_REDUCTION = 120  # where something takes part whose accesses are not seen: orders at random


@dataclass(frozen=True, slots=True)
class Limits:
    """executions: at most this many; deadline: real monotonic seconds (perf_counter) at which the search stops."""

    executions: int
    deadline: float


def kind_of(execution: Execution) -> tuple[Any, ...]:
    """Equal for failing executions that look alike: outcome and failing line; where there is no line, the message
    without its numbers; of a deadlock also who waits where; the lines at which cancellations landed. What looks
    different may still have one cause.
    """
    outcome, deadlock = execution.outcome, execution.run.deadlock
    waits = () if deadlock is None else tuple(sorted((str(e.at), e.resource) for e in deadlock.cycle))
    words = "" if outcome.where is not None or waits else _NUMBER.sub("#", outcome.message)
    return (*outcome.key(), waits, words, execution.landed)


@dataclass(slots=True)
class SearchResult:
    """What was seen so far.

    failure: the first failing execution. kinds: the first of each kind (`kind_of`), and the number of the execution;
    of at most MOST_KINDS, `more_kinds` are the others. exhausted: every class within the bounds was executed. passed: a
    few that passed. redundant: executions that the reduction could have done without. unfair: failing orders beyond
    the fairness bound. impossible: failing orders that no clock can show. coverage: estimated share of the space
    (Knuth 1975), None where nothing is known. seconds: spent searching.
    """

    label: Label
    executions: int = 0
    failures: int = 0
    truncated: int = 0
    failure: Execution | None = None
    executions_to_find: int = 0
    kinds: dict[tuple[Any, ...], tuple[Execution, int]] = field(default_factory=dict)
    more_kinds: set[tuple[Any, ...]] = field(default_factory=set)
    exhausted: bool = False
    signatures: set[int] = field(default_factory=set)
    passed: list[Execution] = field(default_factory=list)
    lock_order: set[LockOrderEdge] = field(default_factory=set)
    max_steps: int = 0
    max_procs: int = 0
    max_choices: int = 0
    draws: int = 0
    touched: set[str] = field(default_factory=set)
    pct_runs: int = 0
    strategies: dict[str, int] = field(default_factory=dict)  # name -> executions
    left: dict[str, int] = field(default_factory=dict)  # what was left behind at the end -> in how many executions
    locks: int = 0  # locks, semaphores and conditions seen in one execution, at most
    seeds: set[int] = field(default_factory=set)
    redundant: int = 0
    unfair: int = 0
    impossible: int = 0
    capped: bool = False
    pushed: bool = False
    coverage: float | None = None
    seconds: float = 0.0

    @property
    def rate(self) -> float | None:
        """Executions per second."""
        return self.executions / self.seconds if self.seconds > 0 else None

    def add(self, execution: Execution) -> None:
        self.executions += 1
        run = execution.run
        self.max_steps = max(self.max_steps, run.count)
        self.max_procs = max(self.max_procs, len([proc for proc in run.procs if proc.is_task]))
        self.max_choices = max(self.max_choices, len(run.taken))
        self.draws = max(self.draws, execution.draws)
        self.touched |= execution.touched
        self.capped = self.capped or run.capped
        self.seeds.add(execution.seed)
        self.signatures.add(signature(run.steps))
        self.lock_order.update(execution.lock_order)
        self.locks = max(self.locks, execution.locks)
        for each in execution.left:
            self.left[each] = self.left.get(each, 0) + 1
        self.pushed = self.pushed or run.pushed
        if execution.pruned:
            return
        if execution.truncated:
            self.truncated += 1
        elif execution.failed:
            self.failures += 1
            if self.failure is None:
                self.failure, self.executions_to_find = execution, self.executions
            self.remember(kind_of(execution), execution, self.executions)
        elif len(self.passed) < 8:
            self.passed.append(execution)

    def remember(self, kind: tuple[Any, ...], execution: Execution, executions: int) -> None:
        """Keep a failing execution if it is the first of its kind; executions: its number."""
        if kind in self.kinds:
            return
        if len(self.kinds) < MOST_KINDS:
            self.kinds[kind] = (execution, executions)
        else:
            self.more_kinds.add(kind)


class Search:
    """One label's search. `run()` goes on until a stop condition; it can be called again to go on."""

    def __init__(self, executor: Executor, label: Label, seed: int) -> None:
        self._executor = executor
        self._label = label
        self._model = executor.model(label)
        self._seed = seed
        self._reduction: Reduction | FifoReduction = self._new_reduction()
        self._accesses: dict[tuple[str, int], dict[object, int]] = {}
        self._turn = 0
        self._most = 0  # executions, of the limits at hand
        self._uncollected = False  # an order whose second outcome was left out, for the limit
        self._beyond = 0  # turns after the reduction's end
        self.fixed_seed = False  # True: the same draws in every execution, only the order varies
        self.result = SearchResult(label)

    def _new_reduction(self) -> Reduction | FifoReduction:
        return Reduction(self._model.bypass_bound) if self._label == "reorder" else FifoReduction()

    def run(
        self,
        limits: Limits,
        stop: Callable[[SearchResult], bool] = lambda result: result.failure is not None,
        on_progress: Callable[[SearchResult], None] | None = None,
    ) -> SearchResult:
        result = self.result
        started, before = perf_counter(), result.seconds
        self._reduction.deadline = limits.deadline
        self._most = limits.executions
        for step in self._steps():
            step()
            result.seconds = before + perf_counter() - started
            if on_progress is not None:
                result.coverage = self._share()
                on_progress(result)
            if stop(result) or result.executions >= limits.executions or perf_counter() > limits.deadline:
                break
        result.exhausted = self._is_exhaustive()
        result.redundant = self._reduction.redundant
        result.coverage = 1.0 if result.exhausted else self._share()
        result.seconds = before + perf_counter() - started
        return result

    def _is_exhaustive(self) -> bool:
        result = self.result
        cut = result.draws or result.truncated or result.unfair or result.impossible or result.capped or result.pushed
        return (
            self._reduction.finished
            and self._reduction.complete
            and not (cut or self._uncollected or self._executor.real_io)
        )

    def _is_blind(self) -> bool:
        """Something took part that the recorder does not see: classes are larger than its accesses say."""
        return bool(self._executor.unobservable or self._executor.real_io)

    def _share(self) -> float | None:
        """None where other things than the order vary: their space has no size."""
        if self.result.draws or self._executor.real_io:
            return None
        return self._reduction.explored_share()

    def _steps(self) -> Iterator[Callable[[], None]]:
        """The turns of the portfolio; ends when nothing is left that could be new."""
        result, reduction = self.result, self._reduction
        while True:
            drawing = result.draws > 0 and not self.fixed_seed
            if reduction.finished and not drawing and (reduction.complete or not result.max_choices):
                self._beyond += 1
                if not self._is_blind() or not result.max_choices or self._beyond > BEYOND_REDUCTION:
                    return
            self._turn += 1
            if drawing and result.executions and self._turn % 2:
                yield self._seed_turn
            elif not reduction.finished and (result.executions < REDUCTION_FIRST or self._turn // 2 % 2):
                yield self._reduction_turn
            elif not result.max_choices:
                yield self._seed_turn
            else:
                yield (self._random_turn, self._pct_turn, self._pos_turn)[self._turn // 4 % 3]

    def _do(self, strategy: str, chooser: Chooser, seed: int) -> Execution:
        self.result.strategies[strategy] = self.result.strategies.get(strategy, 0) + 1
        execution = self._executor.execute(chooser, self._model, seed)
        self._take(execution)
        return execution

    def _take(self, execution: Execution) -> None:
        if execution.failed and execution.run.bypass > self._model.bypass_bound:
            execution = self._fairer(execution)
            if execution.failed and execution.run.bypass > self._model.bypass_bound:
                self.result.unfair += 1
                self.result.executions += 1
                return
        if execution.failed and self._label != "reorder" and not self._is_legal(execution):
            self.result.impossible += 1
            self.result.executions += 1
            return
        self.result.add(execution)
        if self._may_collect(execution):
            self._collected_turn(execution)

    def _may_collect(self, execution: Execution) -> bool:
        """Whether the same order has a second outcome, see `loop.collecting`; without cancellations only."""
        run = execution.run
        passed = not (execution.failed or execution.pruned or execution.truncated)
        return passed and bool(run.ends.pending) and not run.collect and run.cancels is None

    def _collected_turn(self, execution: Execution) -> None:
        if self.result.executions >= self._most:
            self._uncollected = True
            return
        with self._executor.like(collect=True):
            self._do(_COLLECTED, Deviate(dict(execution.schedule.deviations)), execution.seed)

    def _is_legal(self, failed: Execution) -> bool:
        """Whether times exist at which a stock loop delivers what this execution delivered."""
        if failed.run.lateness == 0.0 and not failed.run.stalls:
            return True  # every delivery came when it was due and the loop idle
        again = self._executor.replay(failed.schedule, detail=True)
        return least_lateness(again.run) is not None

    def _fairer(self, failed: Execution) -> Execution:
        """An equivalent order that passes ready handles over less often, if one is found."""
        order = HappensBefore(failed.run, fifo=False)
        for step in failed.run.steps:
            order.add(step)
        best = failed
        for bound in (None, self._model.bypass_bound):
            chooser = Equivalent(failed.run.steps, order.past, bound)
            again = self._executor.execute(chooser, self._model, failed.schedule.seed)
            same = again.failed and again.outcome.key() == failed.outcome.key()
            if same and again.run.bypass < best.run.bypass:
                best = again
            if best.run.bypass <= self._model.bypass_bound:
                break
        return best

    def _reduction_turn(self) -> None:
        path = self._reduction.next()
        name = "source-DPOR" if self._label == "reorder" else "round constraints"
        name = name if self.result.executions else "stock order"
        self.result.strategies[name] = self.result.strategies.get(name, 0) + 1
        execution = self._executor.execute(path, self._model, self._seed)
        self._reduction.learn(path, execution.run)  # type: ignore[arg-type]  # each learns from its own kind
        self._take(execution)

    def _seed_turn(self) -> None:
        self._do("other draws", Deviate({}), self._seed + self._turn)

    def _fair(self, chooser: Chooser) -> Chooser:
        return Fair(chooser, self._model.bypass_bound) if self._label == "reorder" else chooser

    def _random_turn(self) -> None:
        stay = (0.0, 0.5, 0.8, 0.95)[self._turn // 12 % 4]
        self._do("random", self._fair(RandomWalk(self._turn * 7919 + self._seed, stay)), self._draw_seed())

    def _pct_turn(self) -> None:
        depth = 1 + self._turn // 12 % 3
        self.result.pct_runs += 1
        chooser = PCT(self._turn * 104729 + self._seed, depth, max(self.result.max_choices, 1))
        self._do("PCT", self._fair(chooser), self._draw_seed())

    def _pos_turn(self) -> None:
        chooser = POS(self._turn * 15485863 + self._seed, self._accesses)
        execution = self._do("POS", self._fair(chooser), self._draw_seed())
        chooser.remember(execution.run)

    def _draw_seed(self) -> int:
        return self._seed + self._turn if self.result.draws and not self.fixed_seed else self._seed


def pct_floor(result: SearchResult, depth: int = 2) -> float:
    """Floor on the chance that the PCT runs found a bug of `depth`.

    1-(1-1/(n k^(d-1)))^runs, with n tasks and k choice points (Burckhardt et al., ASPLOS 2010).
    """
    n, k = max(result.max_procs, 1), max(result.max_choices, 1)
    runs = result.pct_runs // 3  # a third of them has each depth
    return float(1.0 - (1.0 - 1.0 / (n * k ** (depth - 1))) ** runs)
