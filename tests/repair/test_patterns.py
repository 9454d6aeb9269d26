"""Names of patterns, from the order of accesses and the source."""

from __future__ import annotations

import pytest

from chaossloth.diagnose.intents import allowed_kinds
from chaossloth.diagnose.patterns import PATTERNS, classify, diagnose
from chaossloth.evidence import DeadlockReport, Outcome, Trace
from tests.repair.scene import diagnosed, text

SOURCE = text("""
class Shelf:
    async def sell(self):
        if self.stock > 0:
            await self.pay()
            self.stock -= 1

    async def count(self):
        seen = self.stock
        await self.pay()
        self.stock = seen + 1

    async def probe(self):
        left = self.stock
        if not left:
            return
        await self.pay()
        self.stock = left - 1

    async def mark(self):
        self.stock = 1  # mark
        await self.pay()
        print(self.stock)

    async def twice(self):
        one = self.stock
        await self.pay()
        two = self.stock

    async def through(self):
        await self.use(self.peek())
        self.poke()

    def peek(self):
        return self.stock

    def poke(self):
        self.stock = 7

    async def walk(self):
        for item in self.stock:
            await self.pay()
""")

TEST, TAKE = "if self.stock > 0", "self.stock -= 1"
SEEN, PUT = "seen = self.stock", "self.stock = seen + 1"


@pytest.mark.parametrize(
    ("pattern", "events", "pair"),
    [
        ("lost-update", [("A", "read", SEEN), ("B", "write", PUT), ("A", "write", PUT)], (0, 1)),
        ("check-then-act", [("A", "read", TEST), ("B", "write", TAKE), ("A", "update", TAKE)], (0, 1)),
        ("check-then-act", [("A", "read", "left = self"), ("B", "write", PUT), ("A", "write", "= left - 1")], (0, 1)),
        ("stale-read", [("A", "read", "one = self"), ("B", "write", PUT), ("A", "read", "two = self")], (0, 1)),
        (
            "atomicity-violation",
            [("A", "write", "# mark"), ("B", "write", PUT), ("A", "read", "print(")],
            (1, 2),
        ),
        (
            "lost-update",
            [
                ("A", "read", "return self.stock < await self.use("),
                ("B", "write", PUT),
                ("A", "write", "self.stock = 7 < self.poke()"),
            ],
            (0, 1),
        ),
        ("iteration-invalidated", [("A", "read", "for item in"), ("B", "write", PUT)], (0, 1)),
        ("order-violation", [("B", "write", PUT), ("A", "write", "self.stock = 7")], (0, 1)),
        ("order-violation", [("A", "read", "return self.stock"), ("B", "write", PUT)], (0, 1)),
    ],
)
def test_pattern(pattern: str, events: list[tuple[str, str, str]], pair: tuple[int, int]) -> None:
    found = diagnosed(SOURCE, "Shelf.stock", events, pair)
    assert found.pattern == pattern
    assert "Shelf.stock" in found.explanation


def test_a_task_that_failed_before_it_could_act_was_interrupted_all_the_same() -> None:
    events = [("A", "read", TEST), ("B", "read", TEST), ("A", "update", TAKE)]
    assert diagnosed(SOURCE, "Shelf.stock", events, (1, 2)).pattern == "check-then-act"
    events = [("A", "read", SEEN), ("B", "read", SEEN), ("A", "write", PUT)]
    assert diagnosed(SOURCE, "Shelf.stock", events, (1, 2)).pattern == "lost-update"


def test_a_call_in_progress_on_what_is_replaced() -> None:
    source = SOURCE + "\n    async def lend(self):\n        return await self.stock.lend()\n"
    events = [("A", "read", "self.stock.lend()"), ("B", "write", "self.stock = 7")]
    found = diagnosed(source, "Shelf.stock", [*events, ("A", "read", "self.stock.lend()")], (0, 1))
    assert found.pattern == "stale-read"
    assert diagnosed(source, "Shelf.stock", events, (0, 1)).pattern == "order-violation"


def test_a_use_before_the_first_write_that_found_nothing() -> None:
    events = [("A", "read", "return self.stock"), ("B", "write", "self.stock = 7")]
    message = "AttributeError: 'Shelf' object has no attribute 'stock'"
    found = diagnosed(SOURCE, "Shelf.stock", events, (0, 1), message=message, exception=None)
    assert found.pattern == "use-before-init"


@pytest.mark.parametrize(
    ("kind", "pattern"),
    [
        ("cycle", "deadlock-lock-order"),
        ("self-deadlock", "self-deadlock"),
        ("lost-wakeup", "lost-wakeup"),
        ("all-waiting", "lost-wakeup"),
    ],
)
def test_deadlocks(kind: str, pattern: str) -> None:
    trace = Trace((), Outcome(False, "deadlock"))
    named, sentence = classify((), trace, {}, DeadlockReport(kind, (), "A waits for B"))
    assert named == pattern
    assert "A waits for B" in sentence


def test_without_a_pair_the_best_interrupted_transition_stands_in() -> None:
    known = diagnosed(SOURCE, "Shelf.stock", [("A", "read", SEEN), ("B", "write", PUT), ("A", "write", PUT)], (0, 1))
    events = [("A", "read", SEEN), ("B", "write", PUT), ("A", "write", PUT)]
    again = diagnosed(SOURCE, "Shelf.stock", events, (), pattern="lost-update")
    assert [(c.line, c.task, c.access) for c in again.pair] == [(c.line, c.task, c.access) for c in known.pair]


def test_no_pair_and_no_interruption_is_unclassified() -> None:
    found = diagnose((), Trace((), Outcome(False, "assertion")), {})
    assert (found.pattern, found.pair) == ("unclassified", ())


def test_every_pattern_has_its_allowed_kinds() -> None:
    assert all(isinstance(allowed_kinds(p), tuple) for p in PATTERNS)
    assert allowed_kinds("self-deadlock") == ()
