"""Recorder level: one execution in stock order, which passes, holds the two conflicting accesses (or names them)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from chaossloth.explore.execute import Execution, Executor
from chaossloth.explore.strategy import StockOrder
from chaossloth.subject.primitives import watch
from chaossloth.subject.record import SITES, WRITE, recorder
from tests.blind_spots.programs import SPOTS, Spot, source_of
from tests.engine.support import FromSource, failing

_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def watched_primitives() -> Iterator[None]:
    before = watch.recorder
    watch.recorder = recorder
    watch.install()
    yield
    watch.uninstall()
    watch.recorder = before


def executor_of(spot: Spot) -> tuple[Executor, set[tuple[str, int]]]:
    """The instrumented program, and the places marked `# here` (file, line)."""
    number = next(_numbers)
    source, marked = source_of(spot), set[tuple[str, int]]()
    for name, text in spot.modules:
        other = f"blind_spot_{name.lower()}{number}"
        source = source.replace(name, other)
        FromSource(other, text + "\nasync def main(): pass\n")
        marked |= marks(f"/{other}.py", text)
    name = f"blind_spot{number}"
    program = FromSource(name, source)
    marked |= marks(f"/{name}.py", source)
    return Executor(program, lambda: program, lambda file: file == f"/{name}.py"), marked


def marks(file: str, source: str) -> set[tuple[str, int]]:
    return {(file, number) for number, line in enumerate(source.split("\n"), 1) if line.endswith("# here")}


def conflicts(execution: Execution, marked: set[tuple[str, int]]) -> list[Any]:
    """Accesses of two tasks (not the main one) to one location, one of them a write, at two different marked lines."""
    held: dict[Any, list[Any]] = {}
    found = []
    main = next(proc.key for proc in execution.run.procs if proc.is_task)
    for step in execution.run.steps:
        for access in step.accesses:
            number, key, mode, site = access[:4]
            place = SITES[site].file, SITES[site].line
            if step.proc.key == main or place not in marked:
                continue
            for other, other_mode, other_place in held.get((number, key), ()):
                if other != step.proc.key and (mode | other_mode) & WRITE and (place != other_place or len(marked) == 1):
                    found.append((other, step.proc.key, key))
            held.setdefault((number, key), []).append((step.proc.key, mode, place))
    return found


def stock(executor: Executor) -> Execution:
    return executor.execute(StockOrder(), executor.model("reorder"), 0)


@pytest.mark.parametrize("title", SPOTS)
def test_one_passing_execution_holds_the_conflict(title: str) -> None:
    executor, marked = executor_of(SPOTS[title])
    execution = stock(executor)
    assert execution.outcome.ok, execution.outcome
    found = conflicts(execution, marked)
    if SPOTS[title].named:
        assert any(SPOTS[title].named in what for what in recorder.unobservable)
    else:
        assert found and not recorder.unobservable


@pytest.mark.parametrize("title", SPOTS)
def test_some_order_fails(title: str) -> None:
    executor, _marked = executor_of(SPOTS[title])
    assert failing(executor, "reorder").failed
