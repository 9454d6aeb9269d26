"""A test that asserts an order which nothing promises: the cause is its expectation, not the code under test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.acceptance.support import run

Write = Callable[[str, str], Path]

SOURCE = """\
import asyncio


class Depot:
    def __init__(self):
        self.log = []

    async def fetch(self, part, seconds):
        await asyncio.sleep(seconds)
        NOTE
        return part


async def scenario():
    depot = Depot()
    tasks = [asyncio.create_task(depot.fetch("bolt", 0.001)), asyncio.create_task(depot.fetch("nut", 0.002))]
    seen = [await task for task in asyncio.as_completed(tasks)]
    assert EXPECTED
"""


def _finding(program: Write, note: str, expected: str) -> tuple[dict[str, object], str]:
    path = program("depot.py", SOURCE.replace("NOTE", note).replace("EXPECTED", expected))
    found = run(f"{path.name}::scenario", "--budget", "5", "--runs", "3", cwd=path.parent, path=path)
    assert found.returncode == 1
    return found.finding, found.words


def test_the_order_of_completion_is_nobodys_promise(program: Write) -> None:
    finding, words = _finding(program, "pass", "seen == ['bolt', 'nut']")
    assert finding["pattern"] == "test-expectation"
    assert "depot.py:18 (scenario) asserts what the order decides" in str(finding["explanation"])
    assert "the expectation has to change, not the code" in str(finding["no_repair_reason"])
    assert "test expectation" in words


def test_state_that_the_tasks_share_is_no_mere_expectation(program: Write) -> None:
    finding, _ = _finding(program, "self.log.append(part)", "depot.log == ['bolt', 'nut']")
    assert finding["pattern"] == "order-violation"
    assert {access["line"] for access in finding["critical_pair"]} == {10}  # type: ignore[attr-defined]


def test_an_assertion_of_the_code_under_test_is_no_expectation_of_the_test(program: Write) -> None:
    note = "assert part == 'bolt' or self.log; self.log = [*self.log, part]"
    finding, _ = _finding(program, note, "seen")
    assert finding["pattern"] != "test-expectation"
