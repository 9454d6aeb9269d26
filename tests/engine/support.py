"""Programs for the engine made from an async function or from a text, without the import system around them."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import sys
import textwrap
import types
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import Any

from chaossloth.evidence import Label, Outcome
from chaossloth.explore.execute import Execution, Executor
from chaossloth.explore.search import Limits, Search, SearchResult
from chaossloth.loop import virtual
from chaossloth.subject import record
from chaossloth.subject.instrument import instrument
from chaossloth.subject.primitives import watch

_numbers = itertools.count(1)


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


async def late_lost_update() -> None:
    """A lost update whose second task starts four yields late, so that FIFO order passes."""
    x = 0

    async def add(wait: int) -> None:
        nonlocal x
        for _ in range(wait):
            await asyncio.sleep(0)
        seen = x
        await asyncio.sleep(0)
        x = seen + 1

    await asyncio.gather(add(0), add(4))
    assert x == 2, x


def executor_of(function: Callable[[], Any], *, sync: bool = False, max_steps: int = 5_000) -> Executor:
    """An executor of `function`, instrumented: its source is compiled anew with its module's and closure's names."""
    virtual.install()
    watch.recorder = record.recorder
    made = _instrumented(function)
    program = FromSync(made) if sync else FromFunction(made)
    return Executor(program, lambda: program, lambda file: file == function.__code__.co_filename, max_steps)


def _instrumented(function: Callable[[], Any]) -> Callable[[], Any]:
    lines, first = inspect.getsourcelines(function)
    source = "\n" * (first - 1) + textwrap.dedent("".join(lines))
    module = types.ModuleType(f"engine_function{next(_numbers)}")
    module.__dict__.update(function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        module.__dict__[name] = cell.cell_contents
    module.__dict__["__chaossloth__"] = record.hooks
    sys.modules[module.__name__] = module
    made = instrument(source, function.__code__.co_filename, module.__name__)
    assert made.skipped == ()
    exec(made.code, module.__dict__)
    result: Callable[[], Any] = module.__dict__[function.__name__]
    return result


def explored(
    function: Callable[[], Any], label: Label, executions: int = 2_000, *, stop_at_failure: bool = False, seed: int = 0
) -> SearchResult:
    limits = Limits(executions, perf_counter() + 60)
    search = Search(executor_of(function), label, seed)
    return search.run(limits, stop=lambda result: stop_at_failure and result.failure is not None)


class FromSource(FromFunction):
    """The coroutine function `main` of a module made from `source`, instrumented, so that its accesses are recorded."""

    def __init__(self, name: str, source: str) -> None:
        module = types.ModuleType(name)
        module.__file__ = f"/{name}.py"
        module.__dict__["__chaossloth__"] = record.hooks
        sys.modules[name] = module
        made = instrument(source, module.__file__, name)
        assert made.skipped == ()
        exec(made.code, module.__dict__)
        super().__init__(module.main)


def executor_of_source(source: str) -> tuple[Executor, list[FromSource]]:
    """An executor of an instrumented module, and the programs made so far: the first, and one for each refresh."""
    virtual.install()
    watch.recorder = record.recorder
    name = f"engine_subject{next(_numbers)}"
    made = [FromSource(name, source)]

    def refresh() -> FromSource:
        made.append(FromSource(name, source))
        return made[-1]

    return Executor(made[0], refresh, lambda file: file == f"/{name}.py"), made


def failing(executor: Executor, label: Label, executions: int = 500) -> Execution:
    """The first failing execution that a search meets."""
    found = Search(executor, label, 0).run(Limits(executions, perf_counter() + 60)).failure
    assert found is not None
    return found
