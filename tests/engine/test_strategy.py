"""Strategies by themselves: PCT's priorities and change points, on hand-made choice points and on a program."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from chaossloth.explore.search import SearchResult, pct_floor
from chaossloth.explore.strategy import PCT, Sequential
from chaossloth.loop.run import Model, Run
from tests.engine.support import executor_of

NAMES = "abcd"


def option(name: str) -> Any:
    """A handle as far as PCT looks at it; "-" is "deliver nothing"."""
    return None if name == "-" else SimpleNamespace(proc=SimpleNamespace(key=name))


def winners(pct: PCT, rounds: list[str]) -> list[str]:
    """Which of each round's options is chosen; the choice points are numbered as in an execution."""
    run = Run(Model("reorder"), pct)
    return [names[run.decide([option(name) for name in names])] for names in rounds]


@pytest.mark.parametrize("seed", range(8))
def test_without_change_points_one_order_of_priorities_decides_every_choice(seed: int) -> None:
    names = NAMES + "-"
    subsets = ["".join(s) for size in (2, 3, 5) for s in itertools.permutations(names, size)]
    chosen = winners(PCT(seed, 1, 10), [names, *subsets])
    beaten = {(winner, other) for winner, subset in zip(chosen, [names, *subsets], strict=True) for other in subset}
    ranking = sorted(names, key=lambda name: -sum((name, other) in beaten for other in names))
    assert chosen == [min(subset, key=ranking.index) for subset in [names, *subsets]]


def test_priorities_are_random_and_a_seed_s_own() -> None:
    first = [winners(PCT(seed, 1, 10), [NAMES])[0] for seed in range(60)]
    assert first == [winners(PCT(seed, 1, 10), [NAMES])[0] for seed in range(60)]
    assert set(first) == set(NAMES)


@pytest.mark.parametrize("depth", [2, 3, 4])
@pytest.mark.parametrize("seed", range(10))
def test_at_each_change_point_only_the_running_one_falls_lowest(seed: int, depth: int) -> None:
    steps = 12
    chosen = winners(PCT(seed, depth, steps), [NAMES] * steps)
    order = initial_order(seed, depth, steps)
    led = [name for name, _ in itertools.groupby(chosen)]
    assert led in (order[:depth], order[1:depth])  # the latter when the first point is the first choice


def initial_order(seed: int, depth: int, steps: int) -> list[str]:
    """The names by priority before any change: asked at choice points beyond all change points."""
    pct = PCT(seed, depth, steps)
    run = Run(Model("reorder"), pct, taken=[0] * 1000)
    left, order = NAMES, []
    pct.choose([option(name) for name in NAMES], run)  # draws the priorities, in this order
    while left:
        order.append(left[pct.choose([option(name) for name in left], run)])
        left = left.replace(order[-1], "")
    return order


@pytest.mark.parametrize("seed", range(8))
def test_who_fell_loses_against_everybody_and_runs_when_nobody_else_can(seed: int) -> None:
    steps = 6
    order = initial_order(seed, 2, steps)
    fallen, last = order[0], order[-1]
    assert winners(PCT(seed, 2, steps), [NAMES] * steps + [fallen + last, last + fallen, fallen + fallen])[steps:] == [
        last,
        last,
        fallen,
    ]


def test_a_bug_that_needs_one_change_is_met_by_depth_two_at_least_as_often_as_the_floor_says() -> None:
    async def main() -> None:
        x = 0

        async def add() -> None:
            nonlocal x
            seen = x
            await asyncio.sleep(0)
            x = seen + 1

        await asyncio.gather(add(), add())
        assert x == 2, x

    executor = executor_of(main)
    result = SearchResult("reorder")
    runs = 120
    for seed in range(runs):
        result.add(executor.execute(PCT(seed, 2, 3), executor.model("reorder"), 0))
    result.pct_runs = 3  # one run of depth 2
    assert result.failures / runs >= pct_floor(result, 2) > 0


def test_floor_grows_with_runs_and_falls_with_depth() -> None:
    result = SearchResult("reorder", max_procs=3, max_choices=10, pct_runs=30)
    assert pct_floor(result, 1) == pytest.approx(1 - (2 / 3) ** 10)
    assert pct_floor(result, 2) == pytest.approx(1 - (29 / 30) ** 10)
    assert pct_floor(result, 2) > pct_floor(result, 3) > 0
    result.pct_runs = 300
    assert pct_floor(result, 2) == pytest.approx(1 - (29 / 30) ** 100)


def test_sequential_is_a_permutation_of_the_calls_whatever_they_start_themselves() -> None:
    async def main() -> list[str]:
        log: list[str] = []

        async def helper(name: str) -> None:
            await asyncio.sleep(0.001)
            log.append(name)

        async def call(name: str) -> None:
            log.append(name)
            await asyncio.gather(helper(name), asyncio.sleep(0))
            log.append(name)

        await asyncio.gather(call("a"), call("b"))
        return log

    executor = executor_of(main)
    for descending, expected in ((False, "aaabbb"), (True, "bbbaaa")):
        executor.execute(Sequential(descending), executor.model("reorder"), 0)
        assert "".join(executor.last_result) == expected
