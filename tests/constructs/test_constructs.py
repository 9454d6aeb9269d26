"""Correct, realistic programs: nothing is reported, under any label, and the verdict says no more than was done.

The command runs on each subject with a small budget. Which of "proven" and "bounded" comes out depends on how far the
search gets within it, except where "proven" would be wrong: where random numbers are drawn or real threads, processes
or sockets take part, no search is exhaustive.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.support import run

SUBJECTS = Path(__file__).parent / "subjects"
NAMES = sorted(path.stem for path in SUBJECTS.glob("*.py"))
LABELS = {"stock", "latency", "reorder"}
QUICK = ("--runs", "3", "--budget", "3", "--no-repair")
NEEDS = {"aiohttp_round_trip": "aiohttp", "aiosqlite_store": "aiosqlite"}
NEVER_PROVEN = {
    "retry_backoff",  # random pauses
    "to_thread",
    "executor_pool",
    "subprocess_output",
    "loopback_echo",
    "aiohttp_round_trip",
    "aiosqlite_store",
}


def investigated(name: str, directory: Path) -> dict[str, Any]:
    target = "test_runner" if name == "runner" else "scenario"
    (directory / f"{name}.py").write_bytes((SUBJECTS / f"{name}.py").read_bytes())
    return run(f"{name}.py::{target}", *QUICK, cwd=directory).result


def test_there_are_enough() -> None:
    assert len(NAMES) >= 25


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_reported(name: str, tmp_path: Path) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    document = investigated(name, tmp_path)
    verdict = document["verdict"]
    assert document["findings"] == []
    assert document["outcome"] == "clean"
    assert set(verdict["executions_by_label"]) == LABELS
    assert all(verdict["executions_by_label"].values())
    if verdict["word"] == "unobservable":
        assert name in NEEDS, verdict["unobservable"]  # an installed package takes part that is not recorded
    else:
        assert verdict["word"] in ({"bounded"} if name in NEVER_PROVEN else {"proven", "bounded"})
