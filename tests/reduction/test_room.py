"""What the reduction of the FIFO models leaves out for lack of room is remembered: nothing is exhausted then."""

from __future__ import annotations

from time import perf_counter

import pytest

from chaossloth.explore import fifo
from chaossloth.explore.search import Limits, Search
from tests.engine.support import executor_of_source

SOURCE = """
import asyncio


async def main():
    log = []

    async def note(number):
        await asyncio.sleep(0.01 * number)
        log.append(number)

    await asyncio.gather(*[note(number) for number in range(1, 4)])
"""


@pytest.mark.parametrize(("work", "exhausted"), [(400_000, True), (1, False)])
def test_a_search_that_left_something_out_is_not_exhaustive(
    work: int, exhausted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fifo, "_MAX_WORK", work)
    executor, _ = executor_of_source(SOURCE)
    result = Search(executor, "stock", 0).run(Limits(200, perf_counter() + 60))
    assert result.exhausted is exhausted
    assert result.failures == 0
