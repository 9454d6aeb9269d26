"""Runs the command on every case below a directory, one after the other, and prints what came out as tables.

    python benchmark/cases.py DIR [--only WORD]... [--budget 20] [--runs 25] [--no-repair] [--json FILE]

A case is a directory with `buggy.py`, `fixed.py` and `case.json`, which names its scenario and what is expected
("repairable", "report-only" or "control"). Both files are investigated under all labels. Nothing is known here about
any particular case, and nothing is judged: the tables say what the command said, the last lines count it.

    found      outcome; the label that the failure needs; its least lateness in µs; executions within that label's
               search; runs that failed of those that forced it, on the controlled and on the stock loop
    repair     the intent of the patch that the command verified
    fixed.py   outcome, verdict word, executions by label; a finding there is a false alarm or a wrong fix

Exit code: 0 when every command gave a result, 1 when one did not (its message is printed), 2 when there is no case.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmark"))

from tables import table  # noqa: E402

__all__ = ["Case", "Result", "cases_in", "main", "report", "run"]

GRACE_S = 240.0  # beyond the budget, before a command counts as hanging
NONE = "-"


@dataclass(frozen=True)
class Case:
    directory: Path
    name: str
    expected: str
    scenario: str


@dataclass(frozen=True)
class Result:
    """One run of the command. document: its JSON result, None when there was none; fault: why."""

    seconds: float
    document: dict[str, Any] | None
    fault: str = ""

    @property
    def finding(self) -> dict[str, Any]:
        """The first finding, empty when there is none."""
        findings = self.document["findings"] if self.document is not None else []
        return dict(findings[0]) if findings else {}


@dataclass
class Rows:
    """Everything that was run so far."""

    buggy: dict[Case, Result] = field(default_factory=dict)
    fixed: dict[Case, Result] = field(default_factory=dict)


def cases_in(directory: Path, only: Sequence[str] = ()) -> list[Case]:
    """Every case below `directory`, by name; those of which `only` holds a part, if it holds any."""
    found = []
    for path in sorted(directory.rglob("case.json")):
        about = json.loads(path.read_text(encoding="utf-8"))
        name = str(about.get("id", path.parent.name))
        if not only or any(word in name for word in only):
            found.append(
                Case(path.parent, name, str(about.get("expected", "?")), str(about.get("scenario", "scenario")))
            )
    return found


def run(case: Case, file: str, options: Sequence[str], budget: float) -> Result:
    """The command on one file of the case, in the case's directory."""
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch) / "result.json"
        words = [sys.executable, "-m", "chaossloth", f"{file}::{case.scenario}", "--json", str(target), *options]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        started = perf_counter()
        try:
            done = subprocess.run(
                words, cwd=case.directory, env=environment, capture_output=True, timeout=budget + GRACE_S
            )
        except subprocess.TimeoutExpired:
            return Result(perf_counter() - started, None, f"no result after {budget + GRACE_S:g} s")
        seconds = perf_counter() - started
        if not target.exists():
            return Result(seconds, None, f"exit code {done.returncode}: {done.stderr.decode().strip()[-200:]}")
        return Result(seconds, json.loads(target.read_bytes()))


# --- tables -------------------------------------------------------------------------------------------------------


def report(rows: Rows) -> str:
    head = ["buggy.py", "expected", "outcome", "failure", "label", "late µs", "found in", "controlled", "stock"]
    parts = [table([*head, "repair", "s"], [_buggy(case, result) for case, result in rows.buggy.items()])]
    if rows.fixed:
        head = ["fixed.py", "outcome", "verdict", "stock", "latency", "reorder", "finding", "s"]
        parts += ["", table(head, [_fixed(case, result) for case, result in rows.fixed.items()])]
    return "\n".join([*parts, "", *_counts(rows)])


def _buggy(case: Case, result: Result) -> list[str]:
    document, finding = result.document, result.finding
    if document is None:
        return [case.name, case.expected, "NO RESULT", *[NONE] * 7, f"{result.seconds:.0f}"]
    late = finding.get("lateness_us")
    forced = finding.get("forced") or {}
    return [
        case.name,
        case.expected,
        document["outcome"],
        finding.get("failure", NONE),
        finding.get("label", NONE) + ("+c" if finding.get("needs_cancellation") else ""),
        f"{late:.0f}" if late is not None else NONE,
        str(finding.get("executions_to_find", NONE)),
        _forced(forced.get("controlled")),
        _forced(forced.get("stock")),
        _repair(finding),
        f"{result.seconds:.0f}",
    ]


def _forced(runs: dict[str, Any] | None) -> str:
    return f"{runs['failures']}/{runs['runs']}" if runs else NONE


def _repair(finding: dict[str, Any]) -> str:
    repair = finding.get("repair")
    return str(repair["intent"]["kind"]) if repair and repair["verified"] else NONE


def _fixed(case: Case, result: Result) -> list[str]:
    document, finding = result.document, result.finding
    if document is None:
        return [case.name, "NO RESULT", *[NONE] * 5, f"{result.seconds:.0f}"]
    verdict = document["verdict"]
    counts = [str(verdict["executions_by_label"].get(label, NONE)) for label in ("stock", "latency", "reorder")]
    said = f"{finding['failure']} ({finding['label']})" if finding else NONE
    return [case.name, document["outcome"], verdict["word"], *counts, said, f"{result.seconds:.0f}"]


def _counts(rows: Rows) -> list[str]:
    lines = []
    for expected in dict.fromkeys(case.expected for case in rows.buggy):
        chosen = [result for case, result in rows.buggy.items() if case.expected == expected]
        lines.append(f"{expected}: {_outcomes(chosen)}")
    if rows.fixed:
        lines.append(f"fixed.py: {_outcomes(list(rows.fixed.values()))}")
    faults = [(case, r) for results in (rows.buggy, rows.fixed) for case, r in results.items() if r.document is None]
    return [*lines, *[f"{case.name}: {result.fault}" for case, result in faults]]


def _outcomes(results: Sequence[Result]) -> str:
    counted = Counter(r.document["outcome"] if r.document is not None else "no result" for r in results)
    return f"{len(results)} cases: " + ", ".join(f"{outcome} {count}" for outcome, count in sorted(counted.items()))


def _as_json(rows: Rows) -> dict[str, Any]:
    return {
        file: {case.name: {"seconds": r.seconds, "fault": r.fault, "result": r.document} for case, r in results.items()}
        for file, results in (("buggy.py", rows.buggy), ("fixed.py", rows.fixed))
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The command on every case below a directory.")
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--only", action="append", default=[], metavar="WORD", help="cases with WORD in their name")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds for each file (20)")
    parser.add_argument("--runs", type=int, default=25, help="natural runs of each file (25)")
    parser.add_argument("--no-repair", action="store_true", help="find and explain only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every result")
    options = parser.parse_args(arguments)
    cases = cases_in(options.directory, options.only)
    if not cases:
        print(f"cases: no case.json below {options.directory}", file=sys.stderr)
        return 2
    words = ["--budget", str(options.budget), "--runs", str(options.runs)]
    rows = Rows()
    for case in cases:
        print(f"{case.name} ...", file=sys.stderr, flush=True)
        repair = ["--no-repair"] if options.no_repair else []
        rows.buggy[case] = run(case, "buggy.py", [*words, *repair], options.budget)
        if (case.directory / "fixed.py").exists():
            rows.fixed[case] = run(case, "fixed.py", [*words, "--no-repair"], options.budget)
    print(report(rows))
    if options.json is not None:
        options.json.write_text(json.dumps(_as_json(rows), indent=1) + "\n", encoding="utf-8")
    return 1 if any(r.document is None for results in (rows.buggy, rows.fixed) for r in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
