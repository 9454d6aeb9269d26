"""`benchmark/cases.py` on a directory with one case, and on one without any."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.acceptance.support import ROOT, SUBJECTS, environment


def cases(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmark" / "cases.py"), *words]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=180)


def test_a_case_is_run_with_its_correction(tmp_path: Path) -> None:
    case = tmp_path / "cases" / "1_deposit"
    case.mkdir(parents=True)
    for ours, theirs in (("lost_update", "buggy"), ("lost_update_fixed", "fixed")):
        (case / f"{theirs}.py").write_bytes((SUBJECTS / f"{ours}.py").read_bytes())
    (case / "case.json").write_text(json.dumps({"id": "1_deposit", "expected": "repairable", "scenario": "scenario"}))
    before = sorted(path.name for path in case.iterdir())
    out = tmp_path / "all.json"
    done = cases(str(tmp_path / "cases"), "--budget", "6", "--runs", "4", "--no-repair", "--json", str(out))
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in case.iterdir()) == before
    buggy, fixed = [line.split() for line in done.stdout.splitlines() if line.startswith("1_deposit")]
    assert buggy[1:5] == ["repairable", "found", "assertion", "stock"]
    assert "20/20" in buggy
    assert fixed[1] == "clean"
    assert fixed[2] in ("proven", "bounded")
    assert "repairable: 1 cases: found 1" in done.stdout
    written = json.loads(out.read_text())
    assert written["buggy.py"]["1_deposit"]["result"]["outcome"] == "found"


def test_a_directory_without_cases_is_an_error(tmp_path: Path) -> None:
    done = cases(str(tmp_path))
    assert done.returncode == 2
    assert "no case.json" in done.stderr
