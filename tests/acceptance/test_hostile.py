"""Subjects that hang, exit, outgrow their limits or flood their output: each ends with its own clear outcome."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.support import Run, command, environment, run

Program = Callable[[str, str], Path]

SPINS = """import asyncio


async def scenario():
    await asyncio.sleep(0)
    while True:
        pass
"""
QUITS = """import asyncio
import os


async def scenario():
    await asyncio.sleep(0)
    os._exit(3)
"""
GROWS = """import asyncio


async def scenario():
    kept = []
    while True:
        kept.append(bytearray(1 << 20))
        await asyncio.sleep(0)
"""
FLOODS = """import asyncio
import os
import sys


async def scenario():
    await asyncio.sleep(0)
    for _ in range(10):
        sys.stdout.write('{"schema": "chaossloth/1"}\\n' * 40_000)
    os.write(1, b"\\x1b[31m straight to the descriptor")
    sys.stderr.write("\\x1b[31m" + "x" * 1000)
"""


def assert_inconclusive(result: Run) -> None:
    assert result.returncode == 3
    assert result.stderr == ""
    assert result.result["outcome"] == "inconclusive"
    assert result.result["verdict"]["word"] == "inconclusive"
    assert result.result["findings"] == []
    assert result.result["cause"] in result.words
    assert "nothing is claimed" in result.words
    assert "Traceback" not in result.stdout


def test_step_that_never_ends(program: Program, tmp_path: Path) -> None:
    program("spins.py", SPINS)
    result = run("spins.py::scenario", "--step-limit", "2", cwd=tmp_path)
    assert_inconclusive(result)
    assert "did not end within 2 s" in result.result["cause"]
    (entry,) = result.result["starvation"]
    assert (Path(entry["file"]).name, entry["function"]) == ("spins.py", "scenario")
    assert entry["line"] in (6, 7)
    assert "spins.py:6" in result.words or "spins.py:7" in result.words


def test_phases_of_a_lost_subject_say_what_was_tried(program: Program, tmp_path: Path) -> None:
    """The first natural run was made and did not end: that is something else than not attempted."""
    program("quits.py", QUITS)
    result = run("quits.py::scenario", cwd=tmp_path)
    assert "1 sample not attempted" not in result.words


def test_no_figures_without_an_execution(program: Program, tmp_path: Path) -> None:
    program("quits.py", QUITS)
    result = run("quits.py::scenario", cwd=tmp_path)
    assert result.result["verdict"]["executions"] == 0
    assert result.result["verdict"]["bounds"]["seeds"] == 0
    assert "drawn per task from seeds" not in result.words


def test_exit_of_the_process(program: Program, tmp_path: Path) -> None:
    program("quits.py", QUITS)
    result = run("quits.py::scenario", cwd=tmp_path)
    assert_inconclusive(result)
    assert "exit code 3" in result.result["cause"]


def test_endless_allocation(program: Program, tmp_path: Path) -> None:
    program("grows.py", GROWS)
    result = run("grows.py::scenario", "--memory", "256", cwd=tmp_path)
    assert_inconclusive(result)
    assert "256 MB" in result.result["cause"]
    assert "--memory" in result.result["cause"]


def test_endless_allocation_under_control_only(program: Program, tmp_path: Path) -> None:
    """Without natural runs the controlled loop meets the limit first: the same end."""
    program("grows.py", GROWS)
    result = run("grows.py::scenario", "--memory", "256", "--runs", "0", cwd=tmp_path)
    assert_inconclusive(result)
    assert "256 MB" in result.result["cause"]


def test_ten_megabytes_of_output_leave_one_json_document(program: Program, tmp_path: Path) -> None:
    program("floods.py", FLOODS)
    words = command("floods.py::scenario", "--json", "-", "--runs", "2", "--budget", "3", "--needs", "stock")
    done = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, timeout=180)
    document = json.loads(done.stdout)  # one document: anything before or after it is an error
    assert done.returncode == 0
    assert document["outcome"] == "clean"
    assert b"\x1b" not in done.stdout
    assert done.stderr == b""
    (note,) = [note for note in document["notes"] if "printed" in note]
    printed = int("".join(filter(str.isdigit, note)))
    once = 10 * 40_000 * len('{"schema": "chaossloth/1"}\n')
    assert printed > 2 * once > 20_000_000


def test_lone_deterministic_execution_may_be_called_exhaustive(program: Program, tmp_path: Path) -> None:
    program("lone.py", "import asyncio\n\n\nasync def scenario():\n    await asyncio.sleep(0.01)\n")
    result = run("lone.py::scenario", "--runs", "2", "--budget", "3", "--needs", "stock", cwd=tmp_path)
    assert (result.result["outcome"], result.returncode) == ("clean", 0)
    assert result.result["verdict"]["word"] == "proven"
    assert result.result["verdict"]["bounds"]["labels"] == ["stock"]
    assert "PROVEN" in result.words


def test_what_was_learnt_before_the_exit_is_kept(program: Program, tmp_path: Path) -> None:
    """Natural runs pass; only a late order ends the process. The sample is reported, nothing more is claimed."""
    source = """import asyncio
import os


async def scenario():
    seen = []

    async def note(name, turns):
        for _ in range(turns):
            await asyncio.sleep(0)
        seen.append(name)
        if seen == ["b"]:
            os._exit(5)

    await asyncio.gather(note("a", 1), note("b", 2))
"""
    program("sometimes.py", source)
    result = run("sometimes.py::scenario", "--runs", "5", "--budget", "4", cwd=tmp_path)
    assert result.returncode == 3
    assert result.result["outcome"] == "inconclusive"
    assert "exit code 5" in result.result["cause"]
    natural = result.result["natural"]
    assert (natural["runs"], natural["failures"]) == (5, 0)
    assert "0/5 natural runs fail" in result.words


@pytest.mark.parametrize("ending", ["sys.exit(4)", "raise KeyboardInterrupt"])
def test_base_exceptions_of_the_subject_are_its_own(program: Program, tmp_path: Path, ending: str) -> None:
    source = f"import asyncio\nimport sys\n\n\nasync def scenario():\n    await asyncio.sleep(0)\n    {ending}\n"
    program("leaves.py", source)
    result = run("leaves.py::scenario", "--runs", "3", "--budget", "3", cwd=tmp_path)
    assert result.result["outcome"] == "not-a-race", result.result["cause"]
    assert result.returncode == 1
    assert result.result["interrupted"] is False
    name = "SystemExit" if "exit" in ending else "KeyboardInterrupt"
    assert name in result.result["cause"]
