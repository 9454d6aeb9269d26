"""`--all`: every distinct failure, merged by critical pair; without it, the first one and the search ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.acceptance.support import FORCED, Run, marked, pair_lines, run

Write = Callable[[str, str], Path]

_TWO_RACES = """
import asyncio


class Store:
    def __init__(self):
        self.left = 0
        self.right = 0

    async def add(self):
        left = self.left  # left: read
        await asyncio.sleep(0.001)
        self.left = left + 1  # left: write
        await asyncio.sleep(0.001)
        right = self.right  # right: read
        await asyncio.sleep(0.001)
        self.right = right + 1  # right: write
"""

# The lost one decides how it fails: an exception, or an assertion at another line.
_TWO_WAYS = """
import asyncio


async def scenario():
    counts = {"n": 0}

    async def add(amount, delay):
        await asyncio.sleep(delay)
        seen = counts["n"]  # read
        await asyncio.sleep(0.001)
        counts["n"] = seen + amount  # write

    await asyncio.gather(add(1, 0.001), add(2, 0.005))
    if counts["n"] == 1:
        raise ValueError("the second is lost")
    assert counts["n"] == 3
"""

# One failure needs no order at all; the other is a race.
_ONE_IS_NO_RACE = """
import asyncio
import random


async def scenario():
    if random.random() < 0.5:
        raise ValueError("drawn")
    counts = {"n": 0}

    async def add():
        seen = counts["n"]
        await asyncio.sleep(0.001)
        counts["n"] = seen + 1

    await asyncio.gather(add(), add())
    assert counts["n"] == 2
"""

# One lost update that shows at any of thirty lines; a draw decides at which.
_MANY = (
    "import asyncio\nimport random\n\n\nasync def scenario():\n    line, counts = random.randrange(30), {'n': 0}\n\n"
    "    async def add():\n        seen = counts['n']\n        await asyncio.sleep(0.001)\n"
    "        counts['n'] = seen + 1\n\n    await asyncio.gather(add(), add())\n    lost = counts['n'] != 2\n"
    + "".join(f"    if lost and line == {n}:\n        raise ValueError('lost')\n" for n in range(30))
)


def _investigated(path: Path, selector: str, *options: str) -> Run:
    return run(path.name + selector, "--runs", "0", "--no-repair", "--budget", "10", *options, cwd=path.parent)


def test_two_races_of_one_class_are_two_findings(program: Write) -> None:
    path = program("two.py", _TWO_RACES)
    result = _investigated(path, "", "--cls", "Store", "--method", "add", "--all")
    findings = result.result["findings"]
    assert result.returncode == 1
    assert result.result["outcome"] == "found"
    expected = [
        {(path.name, marked(path, f"{side}: {mode}")) for mode in ("read", "write")} for side in ("left", "right")
    ]
    assert sorted(map(sorted, map(pair_lines, findings))) == sorted(map(sorted, expected))
    assert len({finding["token"] for finding in findings}) == 2
    for finding in findings:
        assert finding["pattern"] == "lost-update"
        assert finding["executions_to_find"] >= 1
        assert finding["forced"]["controlled"]["failures"] == FORCED
        assert (finding["forced"]["stock"] is None) == (finding["label"] == "reorder")
        assert {"failing", "passing"} == set(finding["trace"])
        assert finding["token"] in result.words
    assert "finding 2 of 2" in result.words
    # Both at once is what the search meets first; it is said, with its token, and is no third finding.
    (note,) = [note for note in result.result["notes"] if "several of the findings" in note]
    assert "Store.left" in note and "Store.right" in note


def test_token_of_a_further_finding_replays(program: Write) -> None:
    path = program("two.py", _TWO_RACES)
    words = ("--cls", "Store", "--method", "add")
    second = _investigated(path, "", *words, "--all").result["findings"][1]
    replayed = _investigated(path, "", *words, "--replay", second["token"])
    assert replayed.finding["message"] == second["message"]
    assert pair_lines(replayed.finding) == pair_lines(second)


def test_one_race_that_fails_in_two_ways_is_one_finding(program: Write) -> None:
    path = program("one.py", _TWO_WAYS)
    result = _investigated(path, "::scenario", "--all")
    assert pair_lines(result.finding) == {(path.name, marked(path, "read")), (path.name, marked(path, "write"))}
    assert len(result.result["verdict"]["executions_by_label"]) == 3
    assert result.result["verdict"]["failures"] > 1


def test_without_it_the_first_failure_ends_the_search(program: Write) -> None:
    path = program("one.py", _TWO_WAYS)
    result = _investigated(path, "::scenario")
    assert result.result["verdict"]["failures"] == 1
    assert list(result.result["verdict"]["executions_by_label"]) == ["stock"]
    assert result.finding["executions_to_find"] == result.result["verdict"]["executions"]


def test_repair_is_for_the_first_and_that_is_said(program: Write) -> None:
    path = program("two.py", _TWO_RACES)
    words = ("--cls", "Store", "--method", "add", "--all", "--runs", "0", "--budget", "12")
    result = run(path.name, *words, cwd=path.parent)
    first, second = result.result["findings"]
    assert first["repair"] is not None
    assert second["repair"] is None
    assert second["no_repair_reason"].startswith("not attempted: of several findings only the first is repaired")
    assert second["no_repair_reason"] in result.words


def test_what_is_no_race_is_a_note_beside_the_race(program: Write) -> None:
    result = _investigated(program("drawn.py", _ONE_IS_NO_RACE), "::scenario", "--all")
    assert result.returncode == 1
    assert result.finding["failure"] == "assertion"
    assert any("no race" in note and "drawn" in note for note in result.result["notes"])


def test_what_is_beyond_the_number_kept_is_counted(program: Write) -> None:
    result = _investigated(program("many.py", _MANY), "::scenario", "--all", "--needs", "stock")
    assert result.finding["pattern"] == "lost-update"
    (note,) = [note for note in result.result["notes"] if "seen and not kept" in note]
    assert note.startswith("at least 10 more kinds of failure")


def test_clean_program_stays_proven(program: Write) -> None:
    fixed = _TWO_WAYS.replace("        await asyncio.sleep(0.001)\n", "")
    plain = _investigated(program("fixed.py", fixed), "::scenario").result["verdict"]
    every = _investigated(program("fixed.py", fixed), "::scenario", "--all").result["verdict"]
    assert plain["word"] == every["word"] == "proven"
    assert plain["executions_by_label"] == every["executions_by_label"]


def test_key_of_the_table(program: Write) -> None:
    program("pyproject.toml", "[tool.chaossloth]\nall = true\n")
    result = _investigated(program("two.py", _TWO_RACES), "", "--cls", "Store", "--method", "add")
    assert len(result.result["findings"]) == 2
