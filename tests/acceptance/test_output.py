"""Streams: one JSON document, no escape codes in a pipe, -q, an interrupted run, a big file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.support import SUBJECTS, Run, command, environment, run

Program = Callable[[str, str], Path]
Investigate = Callable[..., Run]
QUICK = ("--budget", "5", "--runs", "4")


def test_no_escape_codes_in_a_pipe(investigated: Investigate) -> None:
    for subject in ("lost_update", "lock_order", "always_fails", "lost_update_fixed"):
        result = investigated(subject)
        assert "\x1b" not in result.stdout + result.stderr
        assert "\r" not in result.stdout
        assert max(map(len, result.stdout.split("\n --")[0].splitlines()[:-1])) <= 100


def test_json_on_stdout_equals_json_in_a_file(investigated: Investigate) -> None:
    """The same document but for times, paths of the command and measured natural figures."""
    written = investigated("lost_update", "::scenario", "--no-repair")
    words = command("lost_update.py::scenario", "--budget", "6", "--runs", "8", "--no-repair", "--json", "-")
    done = subprocess.run(words, cwd=written.path.parent, env=environment(), capture_output=True, timeout=180)
    printed = json.loads(done.stdout)
    assert done.returncode == written.returncode == 1
    assert done.stderr == b""
    assert set(printed) == set(written.result)
    for name in ("outcome", "cause", "target", "fingerprint", "verdict", "findings", "liveness", "reproduce"):
        assert printed[name] == written.result[name], name


CONTRACT = {
    "schema", "version", "command", "target", "fingerprint", "outcome", "verdict", "natural", "boundary", "findings",
    "liveness", "starvation", "timings_s", "reproduce",
}  # fmt: skip


@pytest.mark.parametrize("subject", ["lost_update", "always_fails", "lost_update_fixed", "lock_order"])
def test_contract_fields(investigated: Investigate, subject: str) -> None:
    document = investigated(subject).result
    assert set(document) >= CONTRACT
    assert set(document["target"]) >= {"path", "cls", "methods", "test"}
    assert set(document["fingerprint"]) >= {
        "commit",
        "python",
        "platform",
        "lock_sha256",
        "env_sha256",
        "source_sha256",
    }
    assert set(document["verdict"]) >= {
        "word",
        "bounds",
        "executions",
        "executions_by_label",
        "coverage",
        "unobservable",
    }
    for finding in document["findings"]:
        assert set(finding) >= {
            "failure", "label", "needs_cancellation", "lateness_us", "pattern", "token", "deviations", "bypass",
            "executions_to_find", "critical_pair", "trace", "forced", "explanation", "model", "repair",
        }  # fmt: skip
        assert set(finding["trace"]) == {"failing", "passing"}
        assert finding["trace"]["failing"]
    assert {"sample", "force"} <= set(document["timings_s"])


def test_quiet(program: Program, tmp_path: Path) -> None:
    """Outcome, diff and the command to repeat; no phases."""
    program("room.py", (SUBJECTS / "lost_update.py").read_text(encoding="utf-8"))
    result = run("room.py::scenario", "-q", *QUICK, cwd=tmp_path)
    assert result.returncode == 1
    assert result.stderr == ""
    assert result.finding["repair"]["diff"].strip() in result.stdout
    lines = result.stdout.splitlines()
    assert lines[-1] == f" reproduce  {result.result['reproduce']}"
    assert any(line.startswith(" outcome    repaired: lost update") for line in lines)
    for phase in (" 1 sample", " 3 force", " 6 cause", " 8 verify"):
        assert phase not in result.stdout


def test_quiet_and_clean(program: Program, tmp_path: Path) -> None:
    program("lone.py", "import asyncio\n\n\nasync def scenario():\n    await asyncio.sleep(0.01)\n")
    result = run("lone.py::scenario", "-q", "--runs", "2", "--budget", "2", cwd=tmp_path)
    assert result.returncode == 0
    assert len(result.stdout.splitlines()) <= 8
    assert "clean" in result.stdout


SLOW = """import asyncio
import random


async def scenario():
    async def worker():
        for _ in range(40):
            await asyncio.sleep(random.uniform(0, 0.001))

    await asyncio.gather(*(worker() for _ in range(60)))
"""


def test_interrupt_keeps_what_is_known(program: Program, tmp_path: Path) -> None:
    """Ctrl-C goes to the whole foreground group, the worker process included."""
    program("slow.py", SLOW)
    words = command("slow.py::scenario", "--runs", "2", "--budget", "100", "--json", "result.json")
    child = subprocess.Popen(
        words,
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdout is not None
    head = b""
    while b"\n 2 boundary" not in head:  # the search is what comes next
        line = child.stdout.readline()
        assert line, head
        head += line
    os.killpg(child.pid, signal.SIGINT)
    rest, errors = child.communicate(timeout=120)
    told = (head + rest).decode()
    document = json.loads((tmp_path / "result.json").read_bytes())
    assert errors.decode() == ""
    assert document["interrupted"] is True
    assert document["outcome"] == "inconclusive"
    assert child.returncode == 3
    assert (document["natural"]["runs"], document["natural"]["failures"]) == (2, 0)
    assert document["verdict"]["word"] in ("inconclusive", "sampled", "bounded")
    assert "0/2 natural runs fail" in told
    assert "interrupted" in told
    assert "Traceback" not in told
    assert told.splitlines()[-1].startswith(" reproduce  chaossloth slow.py::scenario")


def big_source(classes: int = 200, racy: int = 137) -> str:
    """About 15 lines a class; only one has an await between its read and its write."""
    parts = ["import asyncio\n"]
    for number in range(classes):
        pause = ("        seen = self.done\n", "        await asyncio.sleep(0)\n")
        first, second = pause if number == racy else pause[::-1]
        parts.append(
            f'''

class Part{number}:
    """Part {number} of a big file."""

    def __init__(self):
        self.done = 0
        self.names = []

    async def run(self, amount: int):
{first}{second}        self.done = seen + amount
        return amount

    def name(self):
        return "part {number}"
'''
        )
    return "".join(parts)


WRAPPER = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:])
_, status, usage = os.wait4(child.pid, 0)
print("\\nKIB", usage.ru_maxrss, flush=True)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss in KiB")
def test_big_file(program: Program, tmp_path: Path) -> None:
    """3,000 lines, 200 classes: counts and memory bounded; the racy one is found at its lines."""
    path = program("big.py", big_source())
    assert len(path.read_text(encoding="utf-8").splitlines()) >= 3000
    words = command("big.py", "--cls", "Part137", "--method", "run", *QUICK, "--json", "result.json")
    done = subprocess.run(
        [sys.executable, "-c", WRAPPER, *words], cwd=tmp_path, env=environment(), capture_output=True, timeout=180
    )
    document = json.loads((tmp_path / "result.json").read_bytes())
    assert done.returncode == 1
    assert document["outcome"] == "repaired", document["cause"]
    (finding,) = document["findings"]
    assert finding["executions_to_find"] <= 20
    assert document["verdict"]["executions"] <= 400
    assert sum(finding["repair"]["candidates"].values()) <= 2 * 20
    lines = path.read_text(encoding="utf-8").splitlines()
    first = lines.index("class Part137:") + 1
    assert all(first < access["line"] < first + 15 for access in finding["critical_pair"])
    kib = int(done.stdout.rpartition(b"KIB ")[2])
    assert kib < 500 * 1024


def test_big_file_without_a_class_named(program: Program, tmp_path: Path) -> None:
    """Of 200 choices only one reads before its await and writes after it: discovery finds that one, and says so."""
    program("big.py", big_source())
    result = run("big.py", *QUICK, "--no-repair", cwd=tmp_path)
    assert result.result["target"]["cls"] == "Part137", result.result["target"]["how_chosen"]
    assert (result.result["outcome"], result.returncode) == ("found", 1)
    assert "199 more" in result.words
    assert result.result["verdict"]["executions"] <= 400
