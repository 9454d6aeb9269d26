"""The search of one model's orders for a failure: a portfolio, because each strategy alone loses badly somewhere.

  bounded   every schedule with one deviation from stock order, then two, ... (delay bounding: Emmi, Qadeer, Rakamaric,
            POPL 2011). Finds shallow bugs in few executions and with minimal schedules, and if its queue runs empty
            then every interleaving within the bounds *was* executed.
  seeds     stock order with other draws (only where the program draws at all)
  random    random walk, other draws each time
  pct       PCT with depth 1 to 3, whose guarantee is printed as a floor (see `pct_floor`)

They take turns. The verdict may say "exhausted" only when the bounded search ran empty and nothing was drawn, clocked
or real.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter

from chaossloth.causality import signature
from chaossloth.evidence import Label, LockOrderEdge
from chaossloth.explore.execute import Execution, Executor
from chaossloth.explore.strategy import PCT, Deviate, RandomWalk
from chaossloth.loop.run import Chooser

__all__ = ["Limits", "Search", "SearchResult", "pct_floor"]

MAX_QUEUE = 200_000
MAX_DEVIATIONS_QUEUED = 6


@dataclass(frozen=True, slots=True)
class Limits:
    """executions: at most this many; deadline: real monotonic seconds (perf_counter) at which the search stops."""

    executions: int
    deadline: float


@dataclass(slots=True)
class SearchResult:
    """What was seen so far.

    failure: the first failing execution. exhausted: every schedule within the bounds was executed.
    passed: a few that passed.
    """

    label: Label
    executions: int = 0
    failures: int = 0
    truncated: int = 0
    failure: Execution | None = None
    executions_to_find: int = 0
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
    capped: int = 0  # executions whose left-over tasks were not followed to their end
    left: dict[str, int] = field(default_factory=dict)  # what was left behind at the end -> in how many executions
    locks: int = 0  # locks, semaphores and conditions seen in one execution, at most
    seeds: set[int] = field(default_factory=set)

    def add(self, execution: Execution) -> None:
        self.executions += 1
        run = execution.run
        self.max_steps = max(self.max_steps, run.count)
        self.max_procs = max(self.max_procs, len([proc for proc in run.procs if proc.is_task]))
        self.max_choices = max(self.max_choices, len(run.taken))
        self.draws = max(self.draws, execution.draws)
        self.touched |= execution.touched
        self.seeds.add(execution.schedule.seed)
        self.signatures.add(signature(run.steps))
        self.lock_order.update(execution.lock_order)
        self.locks = max(self.locks, execution.locks)
        self.capped += execution.capped
        for each in execution.left:
            self.left[each] = self.left.get(each, 0) + 1
        if execution.truncated:
            self.truncated += 1
        elif execution.failed:
            self.failures += 1
            if self.failure is None:
                self.failure, self.executions_to_find = execution, self.executions
        elif len(self.passed) < 8:
            self.passed.append(execution)


class Search:
    """One label's search. `run()` goes on until a stop condition; it can be called again to go on."""

    def __init__(self, executor: Executor, label: Label, seed: int) -> None:
        self._executor = executor
        self._label = label
        self._model = executor.model(label)
        self._seed = seed
        self._queue: deque[tuple[tuple[int, int], ...]] = deque([()])
        self._dropped = False
        self._turn = 0
        self.fixed_seed = False  # True: the same draws in every execution, only the order varies
        self.result = SearchResult(label)

    def run(
        self,
        limits: Limits,
        stop: Callable[[SearchResult], bool] = lambda result: result.failure is not None,
        on_progress: Callable[[SearchResult], None] | None = None,
    ) -> SearchResult:
        result = self.result
        for step in self._steps():
            step()
            if on_progress is not None:
                on_progress(result)
            if stop(result) or result.executions >= limits.executions or perf_counter() > limits.deadline:
                break
        else:
            result.exhausted = self._is_exhaustive()
        return result

    def _is_exhaustive(self) -> bool:
        result = self.result
        return not (self._dropped or result.draws or result.truncated or result.capped or self._executor.real_io)

    def _steps(self) -> Iterator[Callable[[], None]]:
        """The turns of the portfolio; ends when nothing is left that could be new."""
        if self._queue:
            yield self._bounded_turn
        while True:
            drawing = self.result.draws > 0 and not self.fixed_seed
            choosing = self.result.max_choices > 0
            if not self._queue and not drawing:
                return
            if not drawing and not choosing:
                return
            self._turn += 1
            turn = self._turn
            if drawing and turn % 4 in (1, 3) or not choosing:
                yield self._seed_turn
            elif self._queue and turn % 2 == 0:
                yield self._bounded_turn
            elif turn % 3 == 0 and self.result.max_procs > 1:
                yield self._pct_turn
            elif choosing:
                yield self._random_turn

    def _do(self, strategy: str, chooser: Chooser, seed: int) -> Execution:
        self.result.strategies[strategy] = self.result.strategies.get(strategy, 0) + 1
        execution = self._executor.execute(chooser, self._model, seed)
        self.result.add(execution)
        return execution

    def _bounded_turn(self) -> None:
        prefix = self._queue.popleft()
        strategy = "bounded deviations" if prefix else "stock order"
        execution = self._do(strategy, Deviate(dict(prefix)), self._seed)
        start = prefix[-1][0] + 1 if prefix else 0
        for at in range(start, len(execution.run.options)):
            for option in range(1, execution.run.options[at]):
                if len(self._queue) >= MAX_QUEUE:
                    self._dropped = True
                    return
                self._queue.append((*prefix, (at, option)))

    def _seed_turn(self) -> None:
        self._do("other draws", Deviate({}), self._seed + self._turn)

    def _random_turn(self) -> None:
        stay = (0.0, 0.5, 0.8, 0.95)[self._turn // 2 % 4]
        self._do("random", RandomWalk(self._turn * 7919 + self._seed, stay), self._draw_seed())

    def _pct_turn(self) -> None:
        depth = 1 + self._turn // 3 % 3
        self.result.pct_runs += 1
        self._do(
            "PCT", PCT(self._turn * 104729 + self._seed, depth, max(self.result.max_choices, 1)), self._draw_seed()
        )

    def _draw_seed(self) -> int:
        return self._seed + self._turn if self.result.draws and not self.fixed_seed else self._seed


def pct_floor(result: SearchResult, depth: int = 2) -> float:
    """Floor on the chance that the PCT runs found a bug of `depth`.

    1-(1-1/(n k^(d-1)))^runs, with n tasks and k choice points (Burckhardt et al., ASPLOS 2010).
    """
    n, k = max(result.max_procs, 1), max(result.max_choices, 1)
    runs = result.pct_runs // 3  # a third of them has each depth
    return float(1.0 - (1.0 - 1.0 / (n * k ** (depth - 1))) ** runs)
