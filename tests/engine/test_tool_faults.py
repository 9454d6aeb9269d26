"""A fault of the loop that shows up inside the subject is the tool's, not the subject's."""

from __future__ import annotations

import asyncio

import pytest

from chaossloth.errors import ToolError
from chaossloth.explore.strategy import StockOrder
from tests.engine.support import executor_of


def test_a_fault_of_the_loop_is_not_blamed_on_the_subject(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        await asyncio.sleep(1)

    executor = executor_of(main)
    monkeypatch.setattr("chaossloth.loop.scheduling.heapq", None)
    with pytest.raises(ToolError, match="AttributeError in the controlled loop"):
        executor.execute(StockOrder(), executor.model("stock"), seed=0)


def test_what_the_loop_raises_on_purpose_is_the_subjects_affair() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_later(None, print)  # type: ignore[arg-type]

    executor = executor_of(main)
    execution = executor.execute(StockOrder(), executor.model("stock"), seed=0)
    assert execution.outcome.exception == "TypeError"
