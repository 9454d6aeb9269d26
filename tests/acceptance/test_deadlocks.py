"""Two deadlocks, told apart, with the tasks, locks and lines of the cycle."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.acceptance.support import FORCED, Run, marked

Investigate = Callable[..., Run]


@pytest.mark.parametrize("subject", ["lock_order", "self_deadlock"])
def test_deadlock_is_forced_and_not_repaired_here(investigated: Investigate, subject: str) -> None:
    run = investigated(subject)
    assert run.returncode == 1
    assert run.result["outcome"] == "no-repair"
    finding = run.finding
    assert (finding["failure"], finding["label"]) == ("deadlock", "stock")
    assert (finding["forced"]["controlled"]["runs"], finding["forced"]["controlled"]["failures"]) == (FORCED, FORCED)
    assert (finding["forced"]["stock"]["runs"], finding["forced"]["stock"]["failures"]) == (FORCED, FORCED)
    assert finding["repair"]["intent"]["kind"] == "NO_REPAIR"
    assert (finding["repair"]["verified"], finding["repair"]["diff"]) == (False, "")
    assert finding["no_repair_reason"] in run.words
    assert run.result["liveness"]["deadlocks"] == [finding["deadlock"]]


def test_cycle_of_two_locks(investigated: Investigate) -> None:
    run = investigated("lock_order")
    deadlock = run.finding["deadlock"]
    assert deadlock["kind"] == "cycle"
    assert run.finding["pattern"] == "deadlock-lock-order"
    edges = {edge["resource"]: edge for edge in deadlock["cycle"]}
    assert set(edges) == {"Library._desk", "Library._books['Emma']"}
    desk, book = edges["Library._desk"], edges["Library._books['Emma']"]
    assert desk["at"]["line"] == marked(run.path, "cycle: waits for desk")
    assert desk["held_at"]["line"] == marked(run.path, "cycle: desk held")
    assert book["at"]["line"] == book["held_at"]["line"] == marked(run.path, "cycle: waits for book")
    assert (desk["task"], desk["holder"]) == (book["holder"], book["task"])
    assert desk["task"] != book["task"]
    assert len(deadlock["coffman"]) == 4
    (cycle,) = run.result["liveness"]["lock_order_cycles"]
    assert {(edge["first"], edge["second"]) for edge in cycle} == {
        ("Library._desk", "Library._books['Emma']"),
        ("Library._books['Emma']", "Library._desk"),
    }
    for edge in (desk, book):
        assert f"{edge['task']} holds" in run.words
        assert f"waits for {edge['resource']} at lock_order.py:{edge['at']['line']}" in run.words


def test_self_deadlock(investigated: Investigate) -> None:
    run = investigated("self_deadlock")
    deadlock = run.finding["deadlock"]
    assert deadlock["kind"] == run.finding["pattern"] == "self-deadlock"
    (edge,) = deadlock["cycle"]
    assert edge["task"] == edge["holder"]
    assert edge["resource"] == "Router._gate"
    assert edge["held_at"]["line"] == marked(run.path, "cycle: held")
    assert edge["at"]["line"] == marked(run.path, "cycle: waits")
    assert "waits for it again at self_deadlock.py" in run.words
    assert run.result["liveness"]["lock_order_cycles"] == []
