"""A program for the engine made from an async function, without the import system around it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import Any

from chaossloth.evidence import Label, Outcome
from chaossloth.explore.execute import Executor
from chaossloth.explore.search import Limits, Search, SearchResult
from chaossloth.loop import virtual


class FromFunction:
    """`make` is the async function itself; any exception is a failure; results are remembered in `results`."""

    kind = "async"

    def __init__(self, function: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.make = function
        self.results: list[Any] = []

    def call(self) -> Any:
        raise NotImplementedError("an async program")

    def judge(self, result: Any, error: BaseException | None) -> Outcome:
        if error is None:
            self.results.append(result)
            return Outcome(True)
        failure = "assertion" if isinstance(error, AssertionError) else "exception"
        return Outcome(False, failure, type(error).__name__, str(error))


class FromSync(FromFunction):
    kind = "sync"

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__(function)
        self.call = function  # type: ignore[method-assign]


def executor_of(function: Callable[[], Any], *, sync: bool = False, max_steps: int = 5_000) -> Executor:
    virtual.install()
    program = FromSync(function) if sync else FromFunction(function)
    return Executor(program, lambda: program, lambda file: file == function.__code__.co_filename, max_steps)


def explored(
    function: Callable[[], Any], label: Label, executions: int = 2_000, *, stop_at_failure: bool = False, seed: int = 0
) -> SearchResult:
    limits = Limits(executions, perf_counter() + 60)
    search = Search(executor_of(function), label, seed)
    return search.run(limits, stop=lambda result: stop_at_failure and result.failure is not None)
