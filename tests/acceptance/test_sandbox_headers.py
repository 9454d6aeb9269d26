"""What the header of a sandbox program says the tool prints is what the tool says, line numbers included."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = sorted((ROOT / "sandbox").glob("*.py"))


def entry(path: Path, name: str) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    found = re.search(rf"^{name}:\s+(.*(?:\n {{2,}}.*)*)", text, re.MULTILINE)
    assert found, f"{path.name} has no entry {name}"
    return " ".join(found.group(1).split())


def summary(document: dict[str, Any]) -> str:
    """Outcome, cause, label and repair in one line."""
    outcome = document["outcome"].replace("-", " ")
    if not document["findings"]:
        return f"{outcome}: {document['cause']}"
    (finding,) = document["findings"]
    if finding["deadlock"]:
        text = f"{outcome}: {finding['deadlock']['kind']}: {finding['deadlock']['sentence']}"
    else:
        text = f"{outcome}: {finding['pattern'].replace('-', ' ')} of {finding['critical_pair'][0]['object']}"
    text += f" · label {finding['label']}"
    if finding["repair"] and finding["repair"]["verified"]:
        text += f" · {finding['repair']['intent']['kind']} in {finding['repair']['intent']['target']}"
    return text


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_the_header_says_what_the_tool_prints(path: Path) -> None:
    words = shlex.split(entry(path, "Run"))[1:]
    command = [sys.executable, "-m", "chaossloth", *words, "--runs", "5", "--json", "-"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, 1), done.stderr
    assert entry(path, "Prints") == summary(json.loads(done.stdout))
