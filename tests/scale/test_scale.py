"""A subject of 200 tasks with 50 awaits each, through the command: the verdict, its worker's memory, Ctrl-C."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from benchmark import scale
from chaossloth.pipeline import verdicts

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads memory from /proc")
OPTIONS = ("--no-repair", "--runs", "2")
PEAK_MB = 1024


def test_a_budget_ends_the_search_as_bounded_within_the_memory() -> None:
    found = scale.measure(scale.SUBJECT, 12, None, OPTIONS)
    assert found.document is not None, found.stderr
    assert (found.returncode, found.document["outcome"]) == (0, "clean")
    verdict = found.document["verdict"]
    assert verdict["word"] == "bounded"
    assert set(verdict["executions_by_label"]) == {"stock", "latency", "reorder"}
    assert "search not finished" in found.stdout
    assert 0 < found.peak_mb < PEAK_MB


def test_an_interrupt_prints_what_is_known() -> None:
    found = scale.measure(scale.SUBJECT, 60, 9, OPTIONS)
    assert found.document is not None, found.stderr
    assert found.document["interrupted"] is True
    assert (found.returncode, found.document["outcome"]) == (3, "inconclusive")
    assert found.document["verdict"]["word"] in ("bounded", "inconclusive")
    assert any(note.startswith("interrupted: ") for note in found.document["notes"])
    words = " ".join(found.stdout.split())
    assert "outcome interrupted, this is what is known so far" in words
    assert "reproduce chaossloth " in words
    assert "Traceback" not in found.stderr


FIGURES: dict[str, Any] = {
    "label": "stock",
    "executions": 1,
    "failures": 0,
    "exhausted": True,
    "distinct": 1,
    "coverage": 1.0,
    "draws": 0,
    "seeds": 1,
    "pct": None,
    "strategies": {"stock order": 1},
    "unobservable": [],
    "real_io": [],
    "bypass_bound": 8,
    "stall_s": 0.1,
}


@pytest.mark.parametrize(("finished", "word"), [(True, "proven"), (False, "bounded")])
def test_nothing_is_proven_while_labels_that_were_asked_for_are_missing(finished: bool, word: str) -> None:
    assert verdicts.of_search([FIGURES], None, finished=finished).word == word
