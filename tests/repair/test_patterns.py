"""Names of patterns, from the order of accesses and the source."""

from __future__ import annotations

import pytest

from chaossloth.diagnose.intents import allowed_kinds
from chaossloth.diagnose.patterns import PATTERNS, classify, diagnose
from chaossloth.evidence import Access, DeadlockReport, Frame, Outcome, Step, Trace
from tests.repair.scene import PATH, diagnosed, frame, proposed, text

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


def test_an_update_in_one_step_overwrites_nothing() -> None:
    source = text("""
    class Shelf:
        async def report(self):
            print(self.stock)
            await self.pay()
            self.stock += 1

        async def again(self):
            seen = self.stock
            await self.pay()
            self.stock = self.stock + seen

        async def both(self):
            self.stock -= 1
            await self.pay()
            self.stock += 2
    """)
    events = [("A", "read", "print("), ("B", "update", "+= 1"), ("A", "update", "+= 1")]
    found = diagnosed(source, "Shelf.stock", events, (0, 1), pattern="atomicity-violation")
    assert found.explanation == (
        "A reads Shelf.stock (shop.py:3) and updates it after an await (shop.py:5); B updates it in between "
        "(shop.py:5), so what A does to it is not one transition."
    )
    events = [("A", "update", "-= 1"), ("B", "update", "+= 2"), ("A", "update", "+= 2")]
    assert diagnosed(source, "Shelf.stock", events, (0, 1)).pattern == "atomicity-violation"
    steps = (
        step(0, "A", ("read", frame(source, "seen = self"))),
        step(1, "B", ("write", frame(source, "self.stock + seen"))),
        step(2, "A", ("read", frame(source, "self.stock + seen")), ("write", frame(source, "self.stock + seen"))),
    )
    assert classify((), Trace(steps, Outcome(False, "assertion")), {PATH: source})[0] != "lost-update"


def step(
    index: int, task: str, *accesses: tuple[str, Frame], name: str = "Shelf.stock", at: Frame | None = None
) -> Step:
    made = tuple(Access(name, name, mode, (where,)) for mode, where in accesses)  # type: ignore[arg-type]
    return Step(index, task, task, index + 1, -1, "wakeup", made, at)


def test_a_stale_write_is_true_when_the_task_did_not_read_again() -> None:
    events = [("A", "read", SEEN), ("B", "write", PUT), ("A", "write", PUT)]
    found = diagnosed(SOURCE, "Shelf.stock", events, (0, 1))
    assert found.explanation.endswith("and that change is overwritten without having been read.")


def test_three_lost_updates_are_named_from_the_run_alone() -> None:
    tasks = ("A", "B", "C")
    events = [*((t, "read", SEEN) for t in tasks), *((t, "write", PUT) for t in tasks)]
    found = diagnosed(SOURCE, "Shelf.stock", events, (), pattern="lost-update")
    assert found.explanation.startswith("No single pair of accesses was found to decide the outcome. In the failing")
    assert len(found.pair) == 2 and len(found.touches) == 6
    assert proposed(found).candidates
    events = [*((t, "read", TEST) for t in tasks), *((t, "update", TAKE) for t in tasks)]
    assert diagnosed(SOURCE, "Shelf.stock", events, (), pattern="check-then-act").pair


RESULTS = text("""
class Jobs:
    def __init__(self):
        self.done = {}

    async def first(self):
        await self.pay()
        self.done["a"] = 1

    async def second(self):
        return self.done["a"]
""")


@pytest.mark.parametrize(
    ("order", "pattern", "sentence"),
    [
        (
            "read",
            "use-before-init",
            "B reads Jobs.done['a'] (shop.py:10) before any task has set it (as shop.py:7 does): KeyError: 'a'.",
        ),
        (
            "read write",
            "use-before-init",
            "B reads Jobs.done['a'] (shop.py:10) before A has set it (shop.py:7): KeyError: 'a'.",
        ),
        (
            "write read",
            "order-violation",
            "B reads Jobs.done['a'] (shop.py:10) and finds nothing there (KeyError: 'a'); "
            "the last write of it before that is A's (shop.py:7).",
        ),
    ],
)
def test_a_read_that_found_nothing_names_the_write(order: str, pattern: str, sentence: str) -> None:
    read, write = frame(RESULTS, "return self.done"), frame(RESULTS, '["a"] = 1')
    steps = tuple(
        step(n, "B" if mode == "read" else "A", (mode, read if mode == "read" else write), name="Jobs.done['a']")
        for n, mode in enumerate(order.split())
    )
    outcome = Outcome(False, "exception", "KeyError", "'a'", read)
    assert classify((), Trace(steps, outcome), {PATH: RESULTS}) == (pattern, sentence)


@pytest.mark.parametrize("between", ["pass", "if x: return"])
def test_a_task_that_ended_at_an_await_leaves_half_of_its_change(between: str) -> None:
    source = text(f"""
    class Slots:
        async def use(self):
            self.free -= 1
            await self.pay()
            {between}
            self.free += 1
    """).replace("    pass\n", "    self.x = 1\n")
    first, wait = frame(source, "-= 1"), frame(source, "await")
    steps = (step(0, "A", ("update", first), name="Slots.free", at=wait), step(1, "A"))
    pattern, sentence = classify((), Trace(steps, Outcome(False, "assertion")), {PATH: source})
    if between == "pass":
        assert pattern == "atomicity-violation"
        assert "(shop.py:3) and waits at shop.py:4" in sentence and "shop.py:6, where Slots.free" in sentence
    else:
        assert pattern == "unclassified"  # it may have returned by itself
