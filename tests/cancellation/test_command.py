"""The options, from the command line to the document; concurrent calls with one of them cancelled."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.acceptance.support import FORCED, Run, pair_lines, refused, run
from tests.cancellation.programs import PROGRAMS, line_of

QUICK = ("--runs", "2", "--budget", "8", "--needs", "stock")

TRANSFER = '''
import asyncio

class Accounts:
    """Two accounts; money moves."""

    def __init__(self):
        self.a, self.b = 10, 0
        self.lock = asyncio.Lock()

    async def halves(self):
        async with self.lock:
            self.a -= 1  # here
            await asyncio.sleep(0.001)
            self.b += 1

    async def whole(self):
        async with self.lock:
            await asyncio.sleep(0.001)
            self.a -= 1
            self.b += 1
            await asyncio.sleep(0.001)

    async def keeps(self):
        await self.lock.acquire()
        await asyncio.sleep(0.001)
        self.lock.release()

    async def other(self):
        try:
            await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            raise OSError("broken") from None
'''


@pytest.fixture
def accounts(tmp_path: Path) -> Path:
    path = tmp_path / "accounts.py"
    path.write_text(TRANSFER, encoding="utf-8")
    return path


def calls(path: Path, method: str, *options: str) -> Run:
    return run(path.name, "--cls", "Accounts", "--method", method, "--cancel", *QUICK, *options, cwd=path.parent)


def test_a_call_that_is_cancelled_half_way_is_found(accounts: Path) -> None:
    done = calls(accounts, "halves")
    finding = done.finding
    assert done.returncode == 1
    assert finding["failure"] == "not-serializable"
    assert finding["needs_cancellation"] is True
    assert finding["pattern"] == "partial-effect"
    assert finding["cancellations"][0]["at"]["line"] == line_of(TRANSFER) + 1
    assert finding["forced"]["controlled"] == {"runs": FORCED, "failures": FORCED, "how": "virtual time"}
    assert finding["forced"]["stock"]["failures"] == FORCED
    assert finding["repair"] is None
    assert "+0." in finding["token"]


def test_a_call_may_have_taken_effect_or_not(accounts: Path) -> None:
    done = calls(accounts, "whole")
    assert done.returncode == 0
    assert done.result["outcome"] == "clean"
    bound = done.result["verdict"]["bounds"]["cancellation"]
    assert bound.startswith("one per execution, at ")
    assert "of 2 tasks (the calls under test: A, B)" in bound


def test_a_lock_that_a_cancelled_call_keeps(accounts: Path) -> None:
    finding = calls(accounts, "keeps").finding
    assert finding["failure"] in ("deadlock", "leak")
    assert finding["cancellations"][0]["task"] == "A"


def test_another_exception_than_the_cancellation_is_a_failure(accounts: Path) -> None:
    finding = calls(accounts, "other").finding
    assert "raises OSError" in finding["message"]


def test_nothing_is_cancelled_unless_asked(accounts: Path) -> None:
    done = run(accounts.name, "--cls", "Accounts", "--method", "halves", *QUICK, cwd=accounts.parent)
    assert done.result["outcome"] == "clean"
    assert done.result["verdict"]["bounds"]["cancellation"] == "none"


def test_the_reproduce_line_shows_the_same_failure(accounts: Path) -> None:
    first = calls(accounts, "halves")
    words = shlex.split(first.result["reproduce"])
    again = run(*words[1:], cwd=accounts.parent)
    assert again.finding["token"] == first.finding["token"]
    assert again.finding["failure"] == first.finding["failure"]
    assert again.finding["needs_cancellation"] is True


def scenario(tmp_path: Path, name: str, *options: str) -> Run:
    path = tmp_path / "subject.py"
    path.write_text(PROGRAMS[name].buggy, encoding="utf-8")
    return run("subject.py::main", *QUICK, *options, cwd=tmp_path)


def test_victims_by_pattern(tmp_path: Path) -> None:
    found = scenario(tmp_path, "waiter stranded", "--cancel", "--victims", "sec*")
    assert found.finding["cancellations"][0]["task"] == "second"
    assert found.finding["failure"] == "deadlock"
    assert found.finding["pattern"] == "stranded-waiter"
    assert ("subject.py", line_of(PROGRAMS["waiter stranded"].buggy) - 2) in pair_lines(found.finding)
    nobody = scenario(tmp_path, "waiter stranded", "--cancel", "--victims", "nobody")
    assert nobody.result["outcome"] == "clean"
    assert any("no task matches --victims nobody" in note for note in nobody.result["notes"])


def test_twice(tmp_path: Path) -> None:
    name = "cancelled again in its clean-up"
    assert scenario(tmp_path, name, "--cancel").result["outcome"] == "clean"
    found = scenario(tmp_path, name, "--cancel", "--double-cancel")
    assert len(found.finding["cancellations"]) == 2
    assert "needs 2 cancellations" in found.words


def test_a_failure_that_needs_none_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "subject.py"
    path.write_text(
        "import asyncio\nasync def main():\n    await asyncio.create_task(asyncio.sleep(0))\n    assert False\n",
        encoding="utf-8",
    )
    done = run("subject.py::main", *QUICK, "--cancel", cwd=tmp_path)
    assert done.result["outcome"] == "not-a-race"
    assert any("no cancellation was tried" in note for note in done.result["notes"])


@pytest.mark.parametrize(("flag", "value"), [("--victims", "x*"), ("--double-cancel", "")])
def test_how_to_cancel_without_cancel(tmp_path: Path, flag: str, value: str) -> None:
    done = scenario(tmp_path, "waiter stranded", *filter(None, (flag, value)))
    assert refused(done) == (f"{f'{flag} {value}'.strip()} says how to cancel, and nothing is cancelled; add --cancel")


def test_settings_of_a_project(tmp_path: Path) -> None:
    table = '[tool.chaossloth]\ncancel = true\nvictims = "second"\ndouble-cancel = false\n'
    (tmp_path / "pyproject.toml").write_text(table, encoding="utf-8")
    found = scenario(tmp_path, "waiter stranded")
    assert found.finding["needs_cancellation"] is True
