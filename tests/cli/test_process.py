"""The command as a process: pipes, terminals, colours, imports. The pipeline is replaced inside that process."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DRIVER = """
import sys, types
from chaossloth.report.terminal import phase_lines
from tests.report import samples

def investigate(options, observer):
    result = samples.repaired()
    for number, lines in phase_lines(result).items():
        observer.phase_started(number, "phase")
        observer.progress("working", 1, 2)
        if number < 9:
            observer.phase_done(number, "phase", lines)
    return result

fake = types.ModuleType("chaossloth.pipeline")
fake.investigate = investigate
sys.modules["chaossloth.pipeline"] = fake
from chaossloth.cli import main
main()
"""


def environment(**changes: str) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    return {**plain, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **changes}


def command(*args: str) -> list[str]:
    return [sys.executable, "-c", DRIVER, *args]


def run(*args: str, cwd: Path, **changes: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command(*args), cwd=cwd, env=environment(**changes), capture_output=True, timeout=60)


@pytest.mark.parametrize("changes", [{}, {"FORCE_COLOR": "1"}, {"NO_COLOR": "1"}, {"CLICOLOR_FORCE": "1"}])
def test_no_escape_code_reaches_a_pipe(tmp_path: Path, changes: dict[str, str]) -> None:
    result = run(cwd=tmp_path, **changes)
    assert result.returncode == 1
    assert b"\x1b" not in result.stdout
    assert result.stderr == b""
    lines = result.stdout.decode().splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[-1] == " reproduce  chaossloth store.py --cls Store --method update --replay 2k:A3-Bx"


def test_columns_is_honoured(tmp_path: Path) -> None:
    lines = run(cwd=tmp_path, COLUMNS="70").stdout.decode().splitlines()
    assert max(len(line) for line in lines if not line.startswith(" reproduce")) <= 70


def test_ascii_stdout(tmp_path: Path) -> None:
    result = run(cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert result.returncode == 1
    assert b"chaossloth 0.1.0 - store.py - Store.update x 2" in result.stdout.splitlines()[0]


def test_json_on_stdout_is_the_only_output(tmp_path: Path) -> None:
    result = run("--json", "-", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert json.loads(result.stdout.decode("utf-8"))["schema"] == "chaossloth/1"
    assert result.stderr == b""


def closed_reader(*args: str, cwd: Path) -> tuple[int, bytes]:
    """Run with a stdout whose reader has left already."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        result = subprocess.run(
            command(*args), cwd=cwd, env=environment(), stdout=writer, stderr=subprocess.PIPE, timeout=60
        )
    finally:
        os.close(writer)
    return result.returncode, result.stderr


def test_reader_that_left_ends_the_work_quietly(tmp_path: Path) -> None:
    assert closed_reader(cwd=tmp_path) == (141, b"")
    assert closed_reader("-q", cwd=tmp_path) == (141, b"")
    assert closed_reader("--json", "-", cwd=tmp_path) == (141, b"")


def test_reader_that_left_does_not_cost_the_document(tmp_path: Path) -> None:
    assert closed_reader("--json", "out.json", cwd=tmp_path) == (1, b"")
    assert json.loads((tmp_path / "out.json").read_text())["outcome"] == "repaired"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("args", [(), ("-q",), ("--json", "-")])
def test_full_disk_is_said(tmp_path: Path, args: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:
        result = subprocess.run(
            command(*args), cwd=tmp_path, env=environment(), stdout=full, stderr=subprocess.PIPE, timeout=60
        )
    assert result.returncode == 70
    assert result.stderr == b"chaossloth: the report cannot be written to stdout: No space left on device\n"


def test_without_a_stdout(tmp_path: Path) -> None:
    shell = 'exec "$@" >&-'
    words = ["sh", "-c", shell, "sh", *command("--json", "out.json")]
    result = subprocess.run(words, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, timeout=60)
    assert (result.returncode, result.stderr) == (1, b"")
    assert json.loads((tmp_path / "out.json").read_text())["outcome"] == "repaired"


def on_terminal(cwd: Path, *args: str, **changes: str) -> str:
    """Everything that a terminal on stdout and stderr receives."""
    master, slave = pty.openpty()
    process = subprocess.Popen(command(*args), cwd=cwd, env=environment(**changes), stdout=slave, stderr=slave)
    os.close(slave)
    received = b""
    try:
        while select.select([master], [], [], 60)[0]:
            try:
                chunk = os.read(master, 65536)
            except OSError:  # Linux: the other side is closed
                break
            if not chunk:
                break
            received += chunk
        assert process.wait(60) == 1
    finally:
        os.close(master)
    return received.decode()


def test_terminal_has_colour_and_progress(tmp_path: Path) -> None:
    text = on_terminal(tmp_path)
    assert "\x1b[32m+        current" in text
    assert "working" in text


def test_terminal_with_no_color_gets_no_escape_code(tmp_path: Path) -> None:
    text = on_terminal(tmp_path, NO_COLOR="1")
    assert "\x1b" not in text
    assert "working" not in text


def imported(*args: str) -> set[str]:
    """Top-level packages that the command has imported by its end."""
    code = """
import atexit, sys
atexit.register(lambda: print("", *{name.partition(".")[0] for name in sys.modules}, file=sys.stderr))
from chaossloth.cli import main
main()
"""
    words = [sys.executable, "-c", code, *args]
    result = subprocess.run(words, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=60)
    return set(result.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("args", [("--help",), ("--version",), ("--cls", "A"), ("--no-such-option",)])
def test_help_and_usage_errors_import_nothing_heavy(args: tuple[str, ...]) -> None:
    modules = imported(*args)
    assert "click" in modules
    assert not modules & {"rich", "pydantic", "networkx", "numpy", "sklearn", "ollama", "hypothesis", "asyncio"}


def test_module_is_the_command() -> None:
    words = [sys.executable, "-m", "chaossloth", "--version"]
    result = subprocess.run(words, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=60)
    assert result.stdout == "chaossloth 0.1.0\n"
