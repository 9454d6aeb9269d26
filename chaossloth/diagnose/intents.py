"""The kinds of repair that may be proposed, and which of them a pattern allows.

A kind is a name with a documented meaning, never free text: rules and models choose among the kinds that the evidence
allows, and an operator turns the chosen one into a change. The table is the first filter of the repair search: a lock
gives atomicity but no order, so an order violation allows none of the kinds here and its answer is NO_REPAIR.
Source of the distinction: Lu, Park, Seo, Zhou, "Learning from Mistakes" (ASPLOS 2008): atomicity vs. order violations.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "ALLOWED",
    "DESCRIPTIONS",
    "MOVE_AWAIT_OUT",
    "NO_REPAIR",
    "RECHECK_AFTER_AWAIT",
    "SNAPSHOT_ITERATION",
    "WHILE_INSTEAD_OF_IF",
    "WRAP_ATOMIC_SECTION",
    "allowed_kinds",
]

MOVE_AWAIT_OUT = "MOVE_AWAIT_OUT"
RECHECK_AFTER_AWAIT = "RECHECK_AFTER_AWAIT"
SNAPSHOT_ITERATION = "SNAPSHOT_ITERATION"
WHILE_INSTEAD_OF_IF = "WHILE_INSTEAD_OF_IF"
WRAP_ATOMIC_SECTION = "WRAP_ATOMIC_SECTION"
NO_REPAIR = "NO_REPAIR"

DESCRIPTIONS: Mapping[str, str] = {
    MOVE_AWAIT_OUT: "read the shared state after the await instead of before it; no lock",
    RECHECK_AFTER_AWAIT: "test the condition again after the await, before acting on it; no lock",
    SNAPSHOT_ITERATION: "iterate over a copy of the collection, so that it may change while the loop is suspended",
    WHILE_INSTEAD_OF_IF: "wait in a loop until the condition holds, since it may be false again on wake-up",
    WRAP_ATOMIC_SECTION: "hold an asyncio.Lock from the first to the last access of the state transition",
    NO_REPAIR: "no kind of repair known here fits the evidence",
}

_ATOMICITY = (MOVE_AWAIT_OUT, RECHECK_AFTER_AWAIT, WHILE_INSTEAD_OF_IF, SNAPSHOT_ITERATION, WRAP_ATOMIC_SECTION)

ALLOWED: Mapping[str, tuple[str, ...]] = {
    "lost-update": (MOVE_AWAIT_OUT, WRAP_ATOMIC_SECTION),
    "check-then-act": (RECHECK_AFTER_AWAIT, WHILE_INSTEAD_OF_IF, MOVE_AWAIT_OUT, WRAP_ATOMIC_SECTION),
    "stale-read": (MOVE_AWAIT_OUT, RECHECK_AFTER_AWAIT, WRAP_ATOMIC_SECTION),
    "iteration-invalidated": (SNAPSHOT_ITERATION, WRAP_ATOMIC_SECTION),
    "atomicity-violation": _ATOMICITY,
    "use-before-init": (RECHECK_AFTER_AWAIT, WRAP_ATOMIC_SECTION),
    "lost-wakeup": (WHILE_INSTEAD_OF_IF,),
    "order-violation": (),
    "deadlock-lock-order": (),
    "self-deadlock": (),
    "blocked-loop": (),
    "livelock": _ATOMICITY,
    "leak": _ATOMICITY,
    "test-expectation": (),
    "unclassified": _ATOMICITY,
}


def allowed_kinds(pattern: str) -> tuple[str, ...]:
    """The kinds to try for a pattern, most specific first; empty means NO_REPAIR. Unknown patterns allow all."""
    return ALLOWED.get(pattern, _ATOMICITY)
