"""Recorder level: one execution in stock order, which passes, holds the two conflicting accesses (or names them)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from chaossloth.explore.execute import Execution, Executor
from chaossloth.explore.happens_before import CONFLICTS
from chaossloth.explore.strategy import StockOrder
from chaossloth.subject.attributes import exposed_modules, module_attribute_stores
from chaossloth.subject.outside import contexts_shared
from chaossloth.subject.primitives import watch
from chaossloth.subject.record import SITES, SYNC, recorder
from tests.blind_spots.programs import SPOTS, Spot, source_of
from tests.engine.support import FromSource, failing

_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def worker_like() -> Iterator[None]:
    """As in a worker process of its own: primitives are watched, and no other subject's modules are known."""
    before = watch.recorder
    watch.recorder = recorder
    watch.install()
    contexts_shared.clear()
    exposed_modules.clear()
    module_attribute_stores.clear()
    yield
    watch.uninstall()
    watch.recorder = before


def executor_of(spot: Spot) -> tuple[Executor, set[tuple[str, int]]]:
    """The instrumented program, and the places marked `# here` (file, line)."""
    number = next(_numbers)
    source, name = source_of(spot), f"blind_spot{number}"
    texts = {}
    for other, text in spot.modules:
        source = source.replace(other, f"blind_spot_{other.lower()}{number}")
        texts[f"blind_spot_{other.lower()}{number}"] = text + "\nasync def main(): pass\n"
    texts[name] = source

    def make() -> FromSource:
        return [FromSource(each, text) for each, text in texts.items()][-1]

    marked = {place for each, text in texts.items() for place in marks(f"/{each}.py", text)}
    return Executor(make(), make, lambda file: file == f"/{name}.py"), marked


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
                if (
                    other != step.proc.key
                    and CONFLICTS[mode & ~SYNC] & other_mode
                    and (place != other_place or len(marked) == 1)
                ):
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


@pytest.mark.parametrize("title", [title for title, spot in SPOTS.items() if not spot.named])
def test_some_order_fails(title: str) -> None:
    executor, _marked = executor_of(SPOTS[title])
    assert failing(executor, "reorder").failed
