"""What is claimed is only what was seen: hidden state, surviving state, real files, and the user's own files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import textwrap
import time
from pathlib import Path

import pytest

from tests.acceptance.support import command, environment, refused, run

CALL = ("--cls", "C", "--method", "m")
QUICK = ("--runs", "4", "--budget", "8", "--no-repair")


def write(directory: Path, source: str, name: str = "subject.py", encoding: str = "utf-8") -> Path:
    path = directory / name
    path.write_text(textwrap.dedent(source).lstrip(), encoding=encoding)
    return path


@pytest.mark.parametrize(
    ("make", "read", "write_back"),
    [
        ("array.array('i', [0])", "self.b[0]", "self.b[0] = v + 1"),
        ("io.StringIO('0')", "int(self.b.getvalue())", "self.b.seek(0); self.b.write(str(v + 1))"),
    ],
    ids=["array", "stringio"],
)
def test_state_in_c_objects_is_compared(tmp_path: Path, make: str, read: str, write_back: str) -> None:
    source = f"""
        import array, asyncio, io


        class C:
            def __init__(self):
                self.b = {make}

            async def m(self):
                v = {read}
                await asyncio.sleep(0.001)
                {write_back}
    """
    write(tmp_path, source)
    assert run("subject.py", *CALL, *QUICK, cwd=tmp_path).finding["failure"] == "not-serializable"


def test_state_that_cannot_be_looked_at_is_named(tmp_path: Path) -> None:
    source = """
        import asyncio, sqlite3


        class C:
            def __init__(self):
                self.b = sqlite3.connect(":memory:", check_same_thread=False)
                self.b.execute("create table t (n)")
                self.b.execute("insert into t values (0)")

            async def m(self):
                (n,) = self.b.execute("select n from t").fetchone()
                await asyncio.sleep(0.001)
                self.b.execute("update t set n = ?", (n + 1,))
    """
    write(tmp_path, source)
    verdict = run("subject.py", *CALL, *QUICK, cwd=tmp_path).result["verdict"]
    assert verdict["word"] == "unobservable"
    assert any("sqlite3.Connection" in what for what in verdict["unobservable"])
    assert "sqlite3" in verdict["bounds"]["real_io"]


def test_nothing_is_proven_where_files_take_part(tmp_path: Path) -> None:
    source = """
        import asyncio, pathlib


        async def scenario():
            file = pathlib.Path(__file__).with_suffix(".txt")
            file.write_text("0")
            await asyncio.sleep(0)
            assert file.read_text() == "0"
    """
    write(tmp_path, source)
    verdict = run("subject.py::scenario", *QUICK, cwd=tmp_path).result["verdict"]
    assert verdict["word"] == "bounded"
    assert verdict["bounds"]["real_io"] == ["files"]


@pytest.mark.parametrize("kind", ["module", "class"])
def test_state_of_modules_and_classes_does_not_survive_an_execution(tmp_path: Path, kind: str) -> None:
    """A correct counter outside the object: its value must be that of a fresh process in every execution."""
    change = {
        "module": "global N\n                N += 1\n                return N",
        "class": "C.N += 1\n                return C.N",
    }
    source = f"""
        import asyncio

        N = 0


        class C:
            N = 0

            async def m(self):
                await asyncio.sleep(0.001)
                {change[kind]}
    """
    write(tmp_path, source)
    assert run("subject.py", *CALL, *QUICK, cwd=tmp_path).result["outcome"] == "clean"


def test_the_document_is_not_written_over_the_subject(tmp_path: Path) -> None:
    path = write(tmp_path, "async def scenario():\n    pass\n")
    link = tmp_path / "link.json"
    link.symlink_to(path)
    before = path.read_bytes()
    for target in ("subject.py", "link.json"):
        result = run("subject.py::scenario", "--json", target, cwd=tmp_path)
        assert "name another file" in refused(result)
    assert path.read_bytes() == before


def test_a_generator_is_not_taken_for_a_scenario_that_passes(tmp_path: Path) -> None:
    write(tmp_path, "async def scenario():\n    yield 1\n    assert False\n")
    assert "asynchronous generator" in refused(run("subject.py::scenario", cwd=tmp_path))


def test_a_file_with_a_byte_order_mark_is_repaired(tmp_path: Path) -> None:
    source = """
        import asyncio


        class C:
            def __init__(self):
                self.n = 0

            async def m(self):
                v = self.n
                await asyncio.sleep(0.001)
                self.n = v + 1
    """
    path = write(tmp_path, source, encoding="utf-8-sig")
    result = run("subject.py", *CALL, "--runs", "4", "--budget", "10", "--apply", cwd=tmp_path)
    assert result.result["outcome"] == "repaired"
    assert path.read_bytes().startswith(b"\xef\xbb\xbfimport asyncio")


def test_many_equal_calls_need_no_factorial(tmp_path: Path) -> None:
    source = """
        import asyncio


        class C:
            n = 0

            async def m(self):
                await asyncio.sleep(0)
                self.n += 1
    """
    write(tmp_path, source)
    result = run("subject.py", *CALL, "--calls", "26", "--runs", "2", "--budget", "4", cwd=tmp_path)
    assert result.result["outcome"] == "clean"


def test_termination_reports_what_is_known_and_leaves_no_process(tmp_path: Path) -> None:
    write(
        tmp_path,
        "import asyncio\n\n\nasync def scenario():\n    await asyncio.sleep(0)\n    while True:\n        pass\n",
    )
    words = command("subject.py::scenario", "--step-limit", "60", "--json", "out.json")
    process = subprocess.Popen(words, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(3)
    workers = children(process.pid)
    assert workers
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert json.loads((tmp_path / "out.json").read_text())["interrupted"] is True
    assert gone(workers)


def test_a_killed_command_leaves_no_spinning_worker(tmp_path: Path) -> None:
    write(
        tmp_path,
        "import asyncio\n\n\nasync def scenario():\n    await asyncio.sleep(0)\n    while True:\n        pass\n",
    )
    words = command("subject.py::scenario", "--step-limit", "60")
    process = subprocess.Popen(words, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(3)
    workers = children(process.pid)
    assert workers
    process.kill()
    process.communicate(timeout=30)
    assert gone(workers)


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children")
    if not text.exists():
        pytest.skip("needs /proc/PID/task/TID/children")
    return [int(word) for word in text.read_text().split()]


def gone(pids: list[int]) -> bool:
    for _ in range(100):
        alive = [pid for pid in pids if os.path.exists(f"/proc/{pid}/stat") and not is_zombie(pid)]
        if not alive:
            return True
        time.sleep(0.1)
    return False


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
