"""A big subject: 200 tasks of 50 awaits each. What the command says of it in time, and how much memory that takes.

    python benchmark/scale.py [--budget 20] [--interrupt SECONDS] [--limit-mb 1024] [--subject FILE::NAME]

The command runs as a user would start it. Several times a second the resident memory of its worker, the process that
executes the subject, is read from /proc (this script needs Linux). Flat means: the worker's peak in the last quarter of
its life is at most a quarter, or 64 MB, above its peak in the quarter before. With --interrupt the command gets SIGINT
after so many seconds, as by Ctrl-C, and has to print what is known by then.

Exit code: 0 when verdict, time and memory are as they should be, 1 when not, 2 when nothing was measured.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

__all__ = ["Measured", "complaints", "main", "measure"]

ROOT = Path(__file__).resolve().parents[1]
SUBJECT = f"{ROOT / 'benchmark' / 'subjects' / 'many_tasks.py'}::scenario"
EVERY_S = 0.2
GRACE_S = 30.0  # beyond the budget: start, natural runs, one execution that is under way
GROWTH = 1.25
SLACK_MB = 64.0
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 1e6


@dataclass(frozen=True)
class Measured:
    """worker_mb: resident memory of the worker, one figure every EVERY_S seconds. document: None when none came."""

    returncode: int
    seconds: float
    worker_mb: tuple[float, ...]
    stdout: str
    stderr: str
    document: dict[str, Any] | None

    @property
    def peak_mb(self) -> float:
        return max(self.worker_mb, default=0.0)

    @property
    def quarters_mb(self) -> tuple[float, float]:
        """Peaks in the last but one and the last quarter of the worker's life."""
        quarter = max(1, len(self.worker_mb) // 4)
        return max(self.worker_mb[-2 * quarter : -quarter], default=0.0), max(self.worker_mb[-quarter:], default=0.0)


def measure(subject: str, budget: float, interrupt: float | None, options: tuple[str, ...] = ()) -> Measured:
    """Run the command on `subject`, and sample its worker until it ends."""
    with tempfile.TemporaryDirectory() as directory:
        target = Path(directory) / "result.json"
        words = [sys.executable, "-m", "chaossloth", subject, "--budget", str(budget), "--json", str(target), *options]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        started = perf_counter()
        # Text goes to files: a pipe that nobody reads would stop the command.
        with open(Path(directory) / "out", "w+") as out, open(Path(directory) / "err", "w+") as err:
            process = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
            worker_mb = _watch(process, started, budget, interrupt)
            seconds = perf_counter() - started
            out.seek(0)
            err.seek(0)
            document = json.loads(target.read_bytes()) if target.exists() else None
            return Measured(process.returncode, seconds, tuple(worker_mb), out.read(), err.read(), document)


def _watch(process: subprocess.Popen[bytes], started: float, budget: float, interrupt: float | None) -> list[float]:
    worker_mb: list[float] = []
    while True:
        try:
            process.wait(EVERY_S)
            return worker_mb
        except subprocess.TimeoutExpired:
            worker_mb += [max(sizes)] if (sizes := [_resident_mb(child) for child in _children(process.pid)]) else []
        elapsed = perf_counter() - started
        if interrupt is not None and elapsed >= interrupt:
            process.send_signal(signal.SIGINT)
            interrupt = None
        if elapsed > budget + 4 * GRACE_S:
            process.kill()


def _children(pid: int) -> list[int]:
    """Direct children: the worker is the command's only one."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _resident_mb(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_MB
    except (OSError, IndexError):
        return 0.0


def complaints(found: Measured, budget: float, limit_mb: float, interrupted: bool) -> list[str]:
    """One sentence for each thing that is not as it should be."""
    said = []
    document = found.document
    if document is None:
        return [f"no result was written; exit code {found.returncode}: {found.stderr[-300:]}"]
    verdict = document["verdict"]
    if document["findings"]:
        said.append(f"a correct program is reported: {document['findings'][0]['failure']}")
    if interrupted and not document.get("interrupted"):
        said.append("the interruption is not mentioned in the result")
    if not interrupted and (document["outcome"], verdict["word"]) != ("clean", "bounded"):
        said.append(f"outcome {document['outcome']}, verdict {verdict['word']}; clean and bounded were expected")
    if "verdict" not in found.stdout:
        said.append("no verdict was printed")
    if found.seconds > budget + GRACE_S:
        said.append(f"it took {found.seconds:.0f} s with a budget of {budget:g} s")
    if found.peak_mb > limit_mb:
        said.append(f"the worker grew to {found.peak_mb:.0f} MB, limit {limit_mb:g} MB")
    before, last = found.quarters_mb
    if not interrupted and last > max(before * GROWTH, before + SLACK_MB):
        said.append(f"the worker still grows: {before:.0f} MB in the third quarter, {last:.0f} MB in the last")
    return said


def report(found: Measured) -> str:
    before, last = found.quarters_mb
    lines = [f"{found.seconds:.1f} s, exit code {found.returncode}; worker at most {found.peak_mb:.0f} MB"]
    lines += [f"third quarter {before:.0f} MB, last quarter {last:.0f} MB, {len(found.worker_mb)} samples"]
    if found.document is not None:
        verdict = found.document["verdict"]
        counts = ", ".join(f"{label} {count}" for label, count in verdict["executions_by_label"].items())
        estimates = {name: verdict.get(name) for name in ("coverage", "pct_floor") if verdict.get(name) is not None}
        lines.append(
            f"{verdict['word']}: {verdict['executions']} executions ({counts}); estimates {estimates or 'none'}"
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="A big subject: verdict, time and memory.")
    parser.add_argument("--subject", default=SUBJECT, help="FILE::NAME (200 tasks of 50 awaits each)")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds (20)")
    parser.add_argument("--interrupt", type=float, metavar="SECONDS", help="send SIGINT after so long")
    parser.add_argument("--limit-mb", type=float, default=1024.0, help="of the worker's resident memory (1024)")
    options = parser.parse_args(arguments)
    if not Path("/proc/self/statm").exists():
        print("scale: not measured: this script reads /proc", file=sys.stderr)
        return 2
    found = measure(options.subject, options.budget, options.interrupt, ("--no-repair", "--runs", "3"))
    print(found.stdout)
    print(report(found))
    said = complaints(found, options.budget, options.limit_mb, options.interrupt is not None)
    print("\n".join(said) if said else "as it should be")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
