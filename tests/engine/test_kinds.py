"""What a search keeps of failures that look different, and a minimisation that stays with one of them."""

from __future__ import annotations

import asyncio
from time import perf_counter

import pytest

from chaossloth.explore import search as search_module
from chaossloth.explore.minimise import minimise
from chaossloth.explore.search import Limits, Search, kind_of
from tests.engine.support import executor_of, explored


async def names_the_last() -> None:
    order = []

    async def note(name: str, delay: float) -> None:
        await asyncio.sleep(delay)
        order.append(name)

    await asyncio.gather(note("a", 0.003), note("b", 0.002), note("c", 0.001))
    if order[-1] != "a":
        raise ValueError(f"last is {order[-1]}")
    if order[0] != "c":
        raise KeyError("order")


def test_search_goes_on_and_keeps_one_execution_of_each_kind() -> None:
    result = explored(names_the_last, "stock")
    messages = {execution.outcome.message for execution, _ in result.kinds.values()}
    assert messages == {"last is b", "last is c", "'order'"}
    assert result.exhausted
    assert result.failures > len(result.kinds)
    assert result.failure is next(iter(result.kinds.values()))[0]
    assert [number for _, number in result.kinds.values()] == sorted(number for _, number in result.kinds.values())
    assert result.more_kinds == set()


def test_kinds_beyond_the_number_kept_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "MOST_KINDS", 1)
    result = explored(names_the_last, "stock")
    assert (len(result.kinds), len(result.more_kinds)) == (1, 2)


def test_numbers_in_a_message_make_no_kind_of_their_own() -> None:
    async def counts() -> None:
        order = []

        async def note(number: int, delay: float) -> None:
            await asyncio.sleep(delay)
            order.append(number)

        await asyncio.gather(note(3, 0.003), note(2, 0.002), note(1, 0.001))
        if order != [1, 2, 3]:
            raise ValueError(f"last is {order[-1]} at 0x7f{order[0]}")

    result = explored(counts, "stock")
    assert result.failures > 1
    assert len(result.kinds) == 1


def test_minimised_failure_stays_of_its_kind() -> None:
    executor = executor_of(names_the_last)
    result = Search(executor, "stock", 0).run(Limits(2_000, perf_counter() + 60), stop=lambda _: False)
    for kind, (execution, _) in result.kinds.items():
        best, _ = minimise(executor, execution, perf_counter() + 30, kind=kind_of)
        assert kind_of(best) == kind
        assert len(best.schedule.deviations) <= len(execution.schedule.deviations)
