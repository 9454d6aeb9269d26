"""ChaosSloth under the label `reorder`, which is the model of the other tools: any ready handle may run.

The subject is loaded, instrumented and searched as the command does it, without the worker process around it.
By default the package leaves out orders that pass a ready handle over more often than a bound (they are unfair); the
other tools have no such bound, so that it is lifted here except where the default is asked for.
Everything that this file knows of the package's search is in `_load` and `_search`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

from harness import ENOUGH, Claim, Exhausted, Subject, main

from chaossloth.config import VERSION
from chaossloth.explore.execute import Executor
from chaossloth.explore.search import Limits, Search
from chaossloth.loop import virtual
from chaossloth.loop.run import Model
from chaossloth.subject.locate import locate
from chaossloth.worker import Subject as Loaded

PROGRAMS = Path(__file__).resolve().parents[1] / "programs.py"


@dataclass(frozen=True)
class Searched:
    """executions_to_find: 0 when there was no failure; failure: its kind."""

    executions: int
    executions_to_find: int
    exhausted: bool
    failure: str | None


class _Unbounded(Executor):
    def model(self, label: str) -> Model:
        return replace(super().model(label), bypass_bound=ENOUGH)


def _load(name: str, bounded: bool) -> Executor:
    virtual.install()
    sys.modules.pop("programs", None)  # the plain one, of the other tools; here it is loaded instrumented
    loaded = Loaded()
    loaded.open([], None, 2, [], **locate(PROGRAMS, f"scenario_{name}").to_json())
    program = loaded.program(instrumented=True, overrides={})
    return (Executor if bounded else _Unbounded)(program, loaded.refresh, loaded.is_subject)


def _search(executor: Executor, deadline: float, executions: int = ENOUGH, seed: int = 0) -> Searched:
    """A new search up to its first failure, its end, `executions` or `deadline` (perf_counter), whatever is first."""
    result = Search(executor, "reorder", seed).run(Limits(executions, deadline))
    failure = result.failure.outcome.failure if result.failure is not None else None
    return Searched(result.executions, result.executions_to_find, result.exhausted, failure)


class ChaosSloth:
    version = VERSION
    strategies = {"search": True, "search, default bypass bound": True}

    def __init__(self) -> None:
        self._executor: Executor | None = None

    def _of(self, subject: Subject, bounded: bool = False) -> Executor:
        """One executor for all searches of this process, which are of one program, as in a session."""
        if self._executor is None:
            self._executor = _load(subject.program.name, bounded)
            subject.started = perf_counter()
        return self._executor

    def find(self, subject: Subject, strategy: str, seed: int) -> int | None:
        result = _search(self._of(subject, bounded="default" in strategy), subject.deadline, seed=seed)
        subject.broken = result.failure == "assertion"  # it loads its own, instrumented copy of the program
        return result.executions_to_find or None

    def exhaust(self, subject: Subject) -> Exhausted:
        result = _search(self._of(subject), subject.deadline)
        return Exhausted(result.executions, result.exhausted, result.executions_to_find > 0)

    def default(self, subject: Subject) -> Claim:
        return self._claim(subject, ENOUGH)

    def stopped(self, subject: Subject) -> Claim:
        return self._claim(subject, 1)

    def _claim(self, subject: Subject, executions: int) -> Claim:
        result = _search(self._of(subject, bounded=True), subject.deadline, executions)
        failed = result.executions_to_find > 0
        return Claim(result.exhausted and not failed, repr(result), failed, result.executions)

    def explore(self, subject: Subject) -> int:
        return _search(self._of(subject), float("inf"), 100).executions


main(ChaosSloth())
