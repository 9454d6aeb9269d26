"""Variants of the subject on trial, on the worker's side: each candidate patch is loaded in memory and executed.

Cheap first, and the first rung that fails ends it: the failing order once, the calls one after another, duplicate work,
the failing order many times, exploration under every label.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

from chaossloth.errors import ToolError
from chaossloth.evidence import Label
from chaossloth.explore.cancellation import Sweep
from chaossloth.explore.execute import Executor
from chaossloth.explore.search import Limits, SearchResult
from chaossloth.explore.trace import to_trace
from chaossloth.prove import Original, duplicate_work, explore_patched, forced_after, makespan, sequential, work
from chaossloth.session import Session

__all__ = ["Trials"]

_MAKESPAN_SEEDS = 10


class Trials(Session):
    """A session that also judges variants against the original's failing execution."""

    def __init__(self, subject: Any) -> None:
        super().__init__(subject)
        self._original: Original | None = None
        self._shared: frozenset[str] = frozenset()

    def remember(self) -> dict[str, Any]:
        """Run the original one call after another, before the first candidate."""
        executor = self._controlled()
        runs = sequential(executor, self._subject.show)
        failure = self._known_failure()
        failing = to_trace(executor.replay(failure.schedule, detail=True), executor.is_subject)
        self._original = Original(failure, work(failing), runs, executor.program)
        self._shared = self._subject.shared_primitives()
        return {
            "runs": len(runs),
            "failing": sum(not run.ok for run in runs),
            "makespan_s": makespan(executor, _MAKESPAN_SEEDS),
        }

    def candidate(
        self,
        overrides: Mapping[str, str],
        patched: Sequence[str],
        labels: Sequence[Label],
        executions: Mapping[Label, int],
        seconds: float,
        seed: int,
        times: int,
    ) -> dict[str, Any]:
        """Judge a variant: forced replay, sequential comparison, exploration. The first rung that fails ends it."""
        if self._original is None:
            raise ToolError("candidate() before remember()")
        self._use(overrides)
        try:
            return self._judge_candidate(self._original, patched, labels, executions, seconds, seed, times)
        finally:
            self._use({})

    def _behaviour_changed(self, original: Original, executor: Executor, after: Sequence[Any]) -> str:
        changed = self._subject.behaviour_changed(original.program, executor.program)
        return changed or _changes(original.sequential, after)

    def _judge_candidate(
        self,
        original: Original,
        patched: Sequence[str],
        labels: Sequence[Label],
        executions: Mapping[Label, int],
        seconds: float,
        seed: int,
        times: int,
    ) -> dict[str, Any]:
        executor = self._controlled()
        with executor.like(original.failure.schedule.cancels, original.failure.schedule.collect):
            failures, message = forced_after(executor, original.failure, 1)
        if failures:
            return {"refuted_by": "replay", "detail": message}
        after = sequential(executor, self._subject.show)
        changed = self._behaviour_changed(original, executor, after)
        if changed:
            return {"refuted_by": "sequential", "detail": changed}
        duplicated = ""
        if not original.failure.schedule.cancels:  # who was cancelled has worked less, not as often as in a failing run
            duplicated = duplicate_work(executor, original, after, [*patched, self._subject.choice.name])
        if duplicated:
            return {"refuted_by": "duplicate work", "detail": duplicated}
        with executor.like(original.failure.schedule.cancels, original.failure.schedule.collect):
            failures, message = forced_after(executor, original.failure, times)
        if failures:
            return {"refuted_by": "replay", "detail": message}
        results = explore_patched(executor, labels, seed, executions, seconds, self._tell_search)
        if original.failure.schedule.cancels and results[-1].failure is None:
            results += self._sweep_patched(executor, labels, seed, executions, seconds)
        failed = results[-1].failure
        answer: dict[str, Any] = {
            "refuted_by": "exploration" if failed is not None else None,
            "detail": failed.outcome.message if failed is not None else "",
            "token": failed.schedule.token if failed is not None else None,
            "searches": [self._figures(result) for result in results],
            "sequential_runs": len(after),
            "forced_runs": times * 2,
        }
        if failed is None:
            answer["makespan_s"] = makespan(executor, _MAKESPAN_SEEDS)
        return answer

    def _sweep_patched(
        self,
        executor: Executor,
        labels: Sequence[Label],
        seed: int,
        executions: Mapping[Label, int],
        seconds: float,
    ) -> list[SearchResult]:
        """The sweep that found the failure, over the variant; ends at the first failure."""
        pattern, double = self._swept or (None, len(self._known_failure().schedule.cancels) > 1)
        sweep = Sweep(executor, self._victims(pattern), seed, double)
        end, results = perf_counter() + seconds, []
        for position, label in enumerate(labels):
            now = perf_counter()
            limits = Limits(executions[label], now + max(0.1, (end - now) / (len(labels) - position)))
            results.append(sweep.run(label, limits, self._tell_search))
            if results[-1].failure is not None:
                break
        return results

    def sample_candidate(self, overrides: Mapping[str, str], runs: int, step_limit_s: float) -> dict[str, Any]:
        """Natural cycles of a variant, each with fresh modules; and what would not survive a second event loop."""
        self._use(overrides)
        try:
            answer = self.sample(runs, step_limit_s)
            answer["two_loops"] = self._two_loops()
            return answer
        finally:
            self._use({})

    def _two_loops(self) -> str | None:
        """Primitives of asyncio that the variant keeps on a module or a class, and the original does not.

        One bound to the first event loop that contends for it breaks the next loop in the process, as in a test suite.
        """
        added = self._subject.shared_primitives() - self._shared
        if not added:
            return None
        return f"{', '.join(sorted(added))} would bind to the first event loop that contends for it"

    def force_candidate(self, overrides: Mapping[str, str], times: int) -> dict[str, Any]:
        self._use(overrides)
        try:
            return self.force(times)
        finally:
            self._use({})

    def _use(self, overrides: Mapping[str, str]) -> None:
        self._overrides = {path: text.removeprefix("\ufeff") for path, text in overrides.items()}  # no mark in a str
        self._executor = None

    def operations(self) -> dict[str, Callable[..., Any]]:
        judged = (self.remember, self.candidate, self.sample_candidate, self.force_candidate)
        return super().operations() | {operation.__name__: operation for operation in judged}


def _changes(before: Sequence[Any], after: Sequence[Any]) -> str:
    """What a patch changed where nothing is concurrent; empty when nothing."""
    for old, new in zip(before, after, strict=True):
        if not old.ok:
            continue  # that order of the calls is itself a failing interleaving
        if not new.ok:
            return f"one after another it fails: {new.failure}"
        if old.result != new.result:
            return f"one after another the result is {new.result:.80}, it was {old.result:.80}"
        for name, value in old.writes.items():
            if new.writes.get(name, value) != value:
                return f"one after another {name} ends as {new.writes[name]:.80}; it was {value:.80}"
    return ""
