"""What is written and when: --apply, --no-repair, files that change or cannot be written, installed packages."""

from __future__ import annotations

import os
import stat
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.support import SUBJECTS, Run, command, environment, run

Program = Callable[[str, str], Path]
Investigate = Callable[..., Run]
QUICK = ("--budget", "5", "--runs", "4")
SOURCE = (SUBJECTS / "lost_update.py").read_text(encoding="utf-8")


def test_apply_writes_the_shown_patch_and_nothing_else(tmp_path: Path) -> None:
    """A file with CRLF ends, a comment and a mode of its own: all three are kept, and its result is clean."""
    path = tmp_path / "room.py"
    path.write_bytes(SOURCE.replace("\n", "\r\n").encode())
    path.chmod(0o640)
    before = path.read_bytes()
    result = run("room.py::scenario", "--apply", *QUICK, cwd=tmp_path)
    assert result.returncode == 1
    assert result.result["outcome"] == "repaired"
    assert result.finding["repair"]["applied"] is True
    after = path.read_bytes()
    assert after != before
    assert after.count(b"\n") == after.count(b"\r\n") > before.count(b"\r\n")
    assert b"# the delivery note is checked elsewhere\r\n" in after
    assert b"async with self._shelf_lock:\r\n" in after
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(entry.name for entry in tmp_path.iterdir() if entry.name != "__pycache__") == [
        "result.json",
        "room.py",
    ]
    removed = {line[1:].strip() for line in result.finding["repair"]["diff"].splitlines() if line.startswith("-")}
    gone = set(before.decode().splitlines()) - set(after.decode().splitlines())
    assert {line.strip() for line in gone} <= removed
    again = run("room.py::scenario", *QUICK, cwd=tmp_path)
    assert (again.result["outcome"], again.returncode) == ("clean", 0)
    assert path.read_bytes() == after


def test_no_repair(investigated: Investigate) -> None:
    result = investigated("lost_update", "::scenario", "--no-repair")
    assert (result.result["outcome"], result.returncode) == ("found", 1)
    assert result.finding["repair"] is None
    assert result.finding["pattern"] == "lost-update"
    assert "\n+++ " not in result.stdout
    assert "7 repair not attempted: --no-repair" in result.words


def test_apply_without_repair_is_refused(program: Program, tmp_path: Path) -> None:
    program("room.py", SOURCE)
    result = run("room.py::scenario", "--apply", "--no-repair", cwd=tmp_path)
    assert result.returncode == 2
    assert "--apply" in result.stderr and "--no-repair" in result.stderr


def test_file_that_changes_during_the_analysis_is_not_written(program: Program, tmp_path: Path) -> None:
    path = program("room.py", SOURCE)
    words = command("room.py::scenario", "--apply", *QUICK)
    child = subprocess.Popen(words, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    head = b""
    while b"\n 1 sample" not in head:  # printed when the natural runs are over, long before the repair
        line = child.stdout.readline()
        assert line, head
        head += line
    edited = SOURCE + "\n# edited meanwhile\n"
    path.write_text(edited, encoding="utf-8")
    rest, errors = child.communicate(timeout=180)
    assert path.read_text(encoding="utf-8") == edited
    assert child.returncode in (1, 2)
    told = " ".join((head + rest + errors).decode().split())
    assert "Traceback" not in told
    assert "changed" in told and "room.py" in told
    assert "patch written" not in told
    assert "lost update of StockRoom.shelf['bolts']" in told  # what was found is not lost with the patch
    assert [entry.name for entry in tmp_path.iterdir() if entry.name != "__pycache__"] == ["room.py"]


@pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")
def test_read_only_file(program: Program, tmp_path: Path) -> None:
    """Investigated like any other; --apply leaves it as it is and says why (the mode is the user's word)."""
    path = program("room.py", SOURCE)
    path.chmod(0o444)
    result = run("room.py::scenario", "--apply", *QUICK, cwd=tmp_path)
    assert path.read_text(encoding="utf-8") == SOURCE
    assert "Traceback" not in result.stdout + result.stderr
    told = " ".join((result.stdout + result.stderr).split())
    assert "room.py" in told and ("read-only" in told or "not writable" in told or "cannot be written" in told)
    assert "lost update of StockRoom.shelf['bolts']" in told
    assert stat.S_IMODE(path.stat().st_mode) == 0o444


PARCELS = """
    import asyncio


    class Depot:
        def __init__(self):
            self.parcels = 0

        async def take_in(self, number):
            seen = self.parcels
            await asyncio.sleep(0.001)
            self.parcels = seen + number
"""
USES_PARCELS = """
    import asyncio

    from parcels import Depot


    async def scenario():
        depot = Depot()
        await asyncio.gather(depot.take_in(2), depot.take_in(3))
        assert depot.parcels == 5, depot.parcels
"""
USES_PARCELS_LATER = USES_PARCELS.replace("depot.take_in(3))", "later())").replace(
    "        await asyncio.gather",
    """
        async def later():
            await asyncio.sleep(0.0015)
            await depot.take_in(3)

        await asyncio.gather""",
)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A package in a directory named site-packages; put on PYTHONPATH it is imported like an installed one."""
    package = tmp_path / "venv" / "lib" / "site-packages" / "parcels"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from .depot import Depot\n", encoding="utf-8")
    (package / "depot.py").write_text(textwrap.dedent(PARCELS).lstrip(), encoding="utf-8")
    return package


def run_with(package: Path, *args: str, cwd: Path) -> Run:
    path = os.pathsep.join((environment()["PYTHONPATH"], str(package.parent)))
    return run(*args, cwd=cwd, PYTHONPATH=path)


def test_installed_package_is_explored_and_its_diff_never_applied(
    program: Program, installed: Path, tmp_path: Path
) -> None:
    program("work/uses.py", textwrap.dedent(USES_PARCELS_LATER).lstrip())
    depot = installed / "depot.py"
    before = depot.read_bytes()
    words = ("uses.py::scenario", "--include", "parcels", "--apply", *QUICK)
    result = run_with(installed, *words, cwd=tmp_path / "work")
    assert result.returncode == 1
    finding = result.finding
    assert finding["pattern"] == "lost-update"
    assert {access["file"] for access in finding["critical_pair"]} == {str(depot)}
    assert {access["line"] for access in finding["critical_pair"]} == {9, 11}
    assert finding["repair"]["verified"] is True
    assert "parcels/depot.py" in finding["repair"]["diff"]
    assert "\n+++ " in result.stdout
    assert finding["repair"]["applied"] is False
    assert depot.read_bytes() == before
    assert "installed code: shown, never applied" in result.words
    assert "--apply writes" not in result.words  # it would not


def test_installed_package_shows_which_task_is_which(program: Program, installed: Path, tmp_path: Path) -> None:
    """Files with their names in the rows leave less room; the number that tells two tasks apart stays."""
    program("work/uses.py", textwrap.dedent(USES_PARCELS).lstrip())
    words = ("uses.py::scenario", "--include", "parcels", "--no-repair", *QUICK)
    result = run_with(installed, *words, cwd=tmp_path / "work")
    assert {access["task"] for access in result.finding["critical_pair"]} == {"Depot.take_in #1", "Depot.take_in #2"}
    rows = [row.partition("│")[0] for row in result.stdout.splitlines() if row[:4] in ("  ① ", "  ② ")]
    assert len(rows) == 2
    assert {number for row in rows for number in ("#1", "#2") if number in row} == {"#1", "#2"}


def test_code_that_is_not_seen_is_named_and_nothing_is_proven(
    program: Program, installed: Path, tmp_path: Path
) -> None:
    """Interleavings are counted by recorded accesses; those of a package that is not included are not recorded."""
    program(
        "work/uses.py",
        textwrap.dedent(USES_PARCELS).lstrip().replace("depot.take_in(3)", "asyncio.sleep(0)").replace("5", "2"),
    )
    words = ("uses.py::scenario", "--needs", "stock", *QUICK)
    result = run_with(installed, *words, cwd=tmp_path / "work")
    assert result.result["outcome"] == "clean"
    verdict = result.result["verdict"]
    assert verdict["word"] == "unobservable"
    assert any("parcels" in what for what in verdict["unobservable"])
    assert "PROVEN" not in result.stdout


def test_installed_package_that_is_not_included_is_not_instrumented(
    program: Program, installed: Path, tmp_path: Path
) -> None:
    program("work/uses.py", textwrap.dedent(USES_PARCELS).lstrip())
    result = run_with(installed, "uses.py::scenario", *QUICK, cwd=tmp_path / "work")
    assert result.result["verdict"]["word"] != "proven"
    assert all(str(installed) not in access["file"] for f in result.result["findings"] for access in f["critical_pair"])
    assert "\n+++ " not in result.stdout
    assert "--include parcels" in result.words  # the remedy where the pair is out of sight
