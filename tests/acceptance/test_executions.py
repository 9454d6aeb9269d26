"""`--executions N`: where it ends the search the verdict is `bounded` and says so; a space that fits is `proven`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.support import Run, refused, run

Write = Callable[[str, str], Path]

# Both tasks wait for the lock's owner before they count: no order fails, and there are several.
_SAFE = """
import asyncio


async def scenario():
    lock, counts = asyncio.Lock(), {"n": 0}

    async def add(delay):
        await asyncio.sleep(delay)
        async with lock:
            seen = counts["n"]
            await asyncio.sleep(0.001)
            counts["n"] = seen + 1

    await asyncio.gather(add(0.001), add(0.002))
    assert counts["n"] == 2
"""

# Fails only where the second task's completion comes late: stock order passes.
_LATE = """
import asyncio


async def scenario():
    counts = {"n": 0}

    async def first():
        await asyncio.sleep(0.010)
        seen = counts["n"]
        await asyncio.sleep(0.010)
        counts["n"] = seen + 1

    async def second():
        await asyncio.sleep(0.001)
        counts["n"] += 1

    await asyncio.gather(first(), second())
    assert counts["n"] == 2
"""


def _investigated(path: Path, *options: str) -> Run:
    return run(f"{path.name}::scenario", "--runs", "0", "--no-repair", *options, cwd=path.parent)


def test_one_execution_per_label_is_bounded_and_said(program: Write) -> None:
    result = _investigated(program("safe.py", _SAFE), "--executions", "1")
    verdict = result.result["verdict"]
    assert result.returncode == 0
    assert verdict["word"] == "bounded"
    assert verdict["executions_by_label"] == {"stock": 1, "latency": 1, "reorder": 1}
    assert verdict["bounds"]["executions"] == 1
    assert "BOUNDED: 3 executions" in result.words
    assert "search ≤ 1 execution per label" in result.words
    assert "--executions 1" in result.result["reproduce"]


def test_space_that_fits_is_proven(program: Write) -> None:
    path = program("safe.py", _SAFE)
    unlimited = _investigated(path).result["verdict"]
    assert unlimited["word"] == "proven"
    assert unlimited["bounds"]["executions"] is None
    most = max(unlimited["executions_by_label"].values())
    assert most > 1
    limited = _investigated(path, "--executions", str(most + 1)).result["verdict"]
    assert limited["word"] == "proven"
    assert limited["executions_by_label"] == unlimited["executions_by_label"]
    assert limited["bounds"]["executions"] == most + 1


def test_failure_beyond_the_limit_is_not_found(program: Write) -> None:
    path = program("late.py", _LATE)
    found = _investigated(path)
    assert found.returncode == 1
    assert found.finding["label"] == "stock"
    needed = found.finding["executions_to_find"]
    assert needed > 1
    fewer = _investigated(path, "--needs", "stock", "--executions", str(needed - 1))
    assert (fewer.returncode, fewer.result["verdict"]["word"]) == (0, "bounded")
    enough = _investigated(path, "--needs", "stock", "--executions", str(needed))
    assert enough.finding["executions_to_find"] == needed


def test_limit_from_the_table(program: Write) -> None:
    path = program("safe.py", _SAFE)
    program("pyproject.toml", "[tool.chaossloth]\nexecutions = 2\n")
    verdict = _investigated(path, "--needs", "stock").result["verdict"]
    assert verdict["bounds"]["executions"] == 2


def test_sweep_has_the_limit_too(program: Write) -> None:
    path = program("safe.py", _SAFE)
    verdict = _investigated(path, "--needs", "stock", "--cancel", "--executions", "2").result["verdict"]
    assert verdict["word"] == "bounded"
    assert verdict["executions_by_label"]["stock"] <= 4


@pytest.mark.parametrize("number", ["0", "-3"])
def test_limit_below_one_is_refused(program: Write, number: str) -> None:
    sentence = refused(_investigated(program("safe.py", _SAFE), "--executions", number))
    assert f"'--executions': {number} is not in the range x>=1" in sentence
