"""The programs of the comparison behave as they say, and this project's own adapter fits the search of the day."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest

from benchmark.peers.programs import BUGGY, CORRECT, PROGRAMS, execute
from tests.acceptance.support import ROOT, environment


def adapter(*words: str) -> dict[str, Any]:
    command = [sys.executable, str(ROOT / "benchmark" / "peers" / "adapters" / "chaossloth_adapter.py"), *words]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("name", [*BUGGY, *CORRECT])
def test_stock_order_passes(name: str) -> None:
    asyncio.run(asyncio.wait_for(execute(PROGRAMS[name]), 10))


@pytest.mark.parametrize("name", ["a2", "d"])
def test_the_shallow_failures_are_found(name: str) -> None:
    found = adapter("find", name, "--strategy", "search", "--seconds", "30")
    assert (found["found"], found["seeds"]) == (1, 1)


def test_a_small_correct_program_is_exhausted_without_a_failure() -> None:
    result = adapter("exhaust", "e2", "--seconds", "30")
    assert (result["finished"], result["failed"]) == (True, False)


def test_no_certificate_after_one_execution_of_a_faulty_program() -> None:
    claim = adapter("stopped", "a2", "--seconds", "30")
    assert (claim["certificate"], claim["failed"], claim["executions"]) == (False, False, 1)


def test_executions_are_counted() -> None:
    rate = adapter("rate", "e2", "--seconds", "0.2")
    assert rate["executions"] > 0
