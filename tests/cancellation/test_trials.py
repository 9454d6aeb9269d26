"""A variant of the subject on trial for a failure that needs a cancellation: replayed and swept like the original."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaossloth.subject.isolate import Limits, Worker
from chaossloth.subject.locate import locate
from tests.cancellation.programs import PROGRAMS

SUBJECT = PROGRAMS["waiter stranded"]
COUNTS = {"stock": 100, "latency": 100, "reorder": 100}


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Any]:
    """trial(new source): what the worker says of the variant, after the original has failed under a cancellation."""
    path = tmp_path / "subject.py"
    path.write_text(SUBJECT.buggy, encoding="utf-8")
    located = locate(str(path), "main", None, ())
    worker = Worker(Limits(10.0, 1 << 31, 100.0)).start()
    opened = {"include": [], "setup": None, "calls": 2, "args": [], "cancellation": True}
    worker.call("open", {**located.to_json(), **opened})
    worker.call("describe", {})
    swept = worker.call(
        "sweep",
        {"label": "stock", "victims": SUBJECT.victims, "double": False, "executions": 400, "seconds": 20, "seed": 0},
    )
    assert swept["outcome"]["failure"] == "deadlock"
    worker.call("reduce", {"seconds": 2, "times": 2})
    worker.call("remember", {})

    def judge(source: str) -> dict[str, Any]:
        return worker.call(
            "candidate",
            {
                "overrides": {str(path): source},
                "patched": ["Turns.give"],
                "labels": ["stock"],
                "executions": COUNTS,
                "seconds": 20,
                "seed": 0,
                "times": 2,
            },
        )

    yield judge
    worker.close()


def test_the_fault_is_still_there(trial: Any) -> None:
    assert trial(SUBJECT.buggy + "\n# nothing changed\n")["refuted_by"] == "replay"


def test_a_repair_passes(trial: Any) -> None:
    answer = trial(SUBJECT.correct)
    assert answer["refuted_by"] is None
    assert sum(search["executions"] for search in answer["searches"] if "cancellation sweep" in search["strategies"])


def test_a_repair_that_another_cancellation_breaks_is_refuted(trial: Any) -> None:
    half = SUBJECT.correct.replace("if turn.done() and not turn.cancelled():\n                self.give()", "pass")
    assert half != SUBJECT.correct
    answer = trial(half)
    assert answer["refuted_by"] == "exploration"
    assert "+0.2z1" in answer["token"]
