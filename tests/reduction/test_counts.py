"""Executions to the first failure and to exhaustion of small programs: counts, which no machine changes.

The programs are those of `benchmark/peers`, where other tools are asked the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import pytest

from chaossloth.explore.search import Limits, Search, SearchResult
from chaossloth.subject.primitives import watch
from tests.engine.support import executor_of_source

_PROGRAMS = (Path(__file__).parents[2] / "benchmark" / "peers" / "programs.py").read_text()


@pytest.fixture(autouse=True)
def watched() -> Iterator[None]:
    watch.install()
    yield
    watch.uninstall()


def searched(name: str, label: str) -> SearchResult:
    executor, _ = executor_of_source(f"{_PROGRAMS}\n\nasync def main():\n    await execute(PROGRAMS[{name!r}])\n")
    return Search(executor, label, 0).run(Limits(2_000, perf_counter() + 60))  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "most"), [("a2", 2), ("c", 10), ("g", 4), ("d", 2)])
def test_first_failure(name: str, most: int) -> None:
    result = searched(name, "reorder")
    assert result.failure is not None
    assert result.failure.outcome.failure == ("deadlock" if name == "d" else "assertion")
    assert 1 <= result.executions_to_find <= most
    assert result.failure.run.bypass <= 8


@pytest.mark.parametrize(("name", "executions"), [("e2", 2), ("e3", 6), ("e4", 24), ("f2", 1), ("f3", 1), ("f5", 1)])
def test_exhaustion_takes_one_execution_per_class(name: str, executions: int) -> None:
    result = searched(name, "reorder")
    assert (result.executions, result.exhausted, result.failures) == (executions, True, 0)
    assert (result.redundant, result.coverage) == (0, 1.0)


@pytest.mark.parametrize("name", ["a2", "c", "g", "d", "e2", "e3", "e4", "f2", "f3", "f5"])
def test_without_timers_one_execution_settles_stock(name: str) -> None:
    result = searched(name, "stock")
    assert (result.executions, result.exhausted) == (1, True)


def test_a_search_that_was_cut_short_is_not_exhaustive() -> None:
    executor, _ = executor_of_source(f"{_PROGRAMS}\n\nasync def main():\n    await execute(PROGRAMS['e4'])\n")
    result = Search(executor, "reorder", 0).run(Limits(5, perf_counter() + 60))
    assert not result.exhausted
    assert result.coverage is not None
    assert 0 < result.coverage < 1
