"""The real command in a real process, and what the tests read from it: exit code, streams, JSON document."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SUBJECTS = Path(__file__).parent / "subjects"
FORCED = 20


@dataclass(frozen=True)
class Run:
    """One run of the command. `document` is what --json wrote, None when it wrote nothing."""

    path: Path
    returncode: int
    stdout: str
    stderr: str
    document: dict[str, Any] | None

    @property
    def result(self) -> dict[str, Any]:
        assert self.document is not None, f"no JSON was written, exit code {self.returncode}: {self.stderr}"
        return self.document

    @property
    def finding(self) -> dict[str, Any]:
        findings: list[dict[str, Any]] = self.result["findings"]
        assert len(findings) == 1, (self.result["outcome"], self.result["cause"])
        return findings[0]

    @property
    def words(self) -> str:
        """The terminal text with its line breaks and indentation taken out."""
        return " ".join(self.stdout.split())


def environment(**changes: str) -> dict[str, str]:
    unset = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "PYTHONHASHSEED", "PYTHONIOENCODING")
    plain = {name: value for name, value in os.environ.items() if name not in unset}
    return {**plain, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **changes}


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "chaossloth", *args]


def run(*args: str, cwd: Path, path: Path | None = None, **changes: str) -> Run:
    """The command with `--json result.json`, unless `args` has its own --json; the time limit is for hangs only."""
    asked = "--json" in args
    target = cwd / "result.json"
    target.unlink(missing_ok=True)
    words = command(*args) if asked else command(*args, "--json", target.name)
    done = subprocess.run(words, cwd=cwd, env=environment(**changes), capture_output=True, timeout=180)
    document = json.loads(target.read_bytes()) if target.exists() else None
    return Run(
        path or cwd / args[0].partition("::")[0], done.returncode, done.stdout.decode(), done.stderr.decode(), document
    )


def marked(path: Path, mark: str) -> int:
    """The 1-based line of `path` that ends in the comment `# mark`."""
    lines = path.read_text(encoding="utf-8").splitlines()
    (line,) = [number for number, text in enumerate(lines, 1) if text.endswith(f"# {mark}")]
    return line


def pair_lines(finding: dict[str, Any]) -> set[tuple[str, int]]:
    return {(Path(access["file"]).name, access["line"]) for access in finding["critical_pair"]}


def apply_diff(diff: str, directory: Path) -> None:
    """Apply a report's diff as a user would: `git apply`, or `patch` where there is no git."""
    tool = ["git", "apply", "--whitespace=nowarn", "-"] if shutil.which("git") else ["patch", "-p1"]
    # A directory below some repository would make git look for the paths there.
    limits = {**os.environ, "GIT_CEILING_DIRECTORIES": str(directory.parent)}
    done = subprocess.run(tool, cwd=directory, input=diff.encode(), env=limits, capture_output=True)
    assert done.returncode == 0, done.stderr.decode() + diff


def refused(result: Run) -> str:
    """The sentence of a refusal: exit code 2, one line on stderr, at most the header on stdout, no JSON, no trace."""
    assert result.returncode == 2, (result.returncode, result.stdout, result.stderr)
    assert all(f"\n {number} " not in result.stdout for number in range(1, 10)), result.stdout
    assert "outcome" not in result.stdout
    assert result.document is None
    assert "Traceback" not in result.stderr
    assert result.stderr.startswith("chaossloth: ")
    assert len(result.stderr.splitlines()) == 1
    return result.stderr.removeprefix("chaossloth: ").strip()
