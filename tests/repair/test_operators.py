"""Each operator: where it must apply, where it must not, and that what it writes runs and repairs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chaossloth.diagnose import intents
from chaossloth.diagnose.patterns import Diagnosis
from chaossloth.repair.operators import OPERATORS
from chaossloth.repair.proposal import Candidate
from tests.repair.scene import diagnosed, of_kind, proposed, text


def namespace(source: str) -> dict[str, Any]:
    scope: dict[str, Any] = {"__name__": "shop"}
    exec(compile(source, "shop.py", "exec", dont_inherit=True), scope)
    return scope


def outcome(source: str) -> Any:
    """Result of the program's `scenario()`, or the exception that it raises."""
    try:
        return asyncio.run(namespace(source)["scenario"]())
    except Exception as error:
        return error


def only(diagnosis: Diagnosis, kind: str) -> Candidate:
    found = of_kind(proposed(diagnosis), kind)
    assert found, proposed(diagnosis).refused
    return found[0]


def body(candidate: Candidate, start: str) -> str:
    """The new source from the line that starts so to the next blank line."""
    lines = candidate.new_source.split("\n")
    first = next(i for i, line in enumerate(lines) if line.strip().startswith(start))
    last = next((i for i in range(first, len(lines)) if not lines[i].strip()), len(lines))
    return "\n".join(lines[first:last])


def test_every_allowed_kind_has_an_operator_and_a_description() -> None:
    for kinds in intents.ALLOWED.values():
        for kind in kinds:
            assert kind in OPERATORS
            assert intents.DESCRIPTIONS[kind]


# -- MOVE_AWAIT_OUT ----------------------------------------------------------------------------------------------------

COUNTER = """
import asyncio

class Counter:
    def __init__(self):
        self.hits = {"k": 0}

    async def ping(self):
        await asyncio.sleep(0)

    async def bump(self, key):
        BODY

async def scenario():
    counter = Counter()
    await asyncio.gather(counter.bump("k"), counter.bump("k"))
    return counter.hits["k"]
"""


def counter(*lines: str) -> str:
    return text(COUNTER).replace("BODY", "\n        ".join(lines))


def lost(source: str, read: str, write: str, location: str = "Counter.hits['k']") -> Diagnosis:
    return diagnosed(
        source,
        location,
        [("A", "read", read), ("B", "read", read), ("A", "write", write), ("B", "write", write)],
        (1, 2),
    )


def test_the_read_moves_behind_the_await() -> None:
    source = counter("cur = self.hits[key]  # now", "await self.ping()", "self.hits[key] = cur + 1")
    candidate = only(lost(source, "cur = ", "= cur + 1"), intents.MOVE_AWAIT_OUT)
    assert body(candidate, "async def bump") == (
        "    async def bump(self, key):\n"
        "        await self.ping()\n"
        "        cur = self.hits[key]  # now\n"
        "        self.hits[key] = cur + 1"
    )
    assert (outcome(source), outcome(candidate.new_source)) == (1, 2)


def test_what_depends_on_the_read_moves_with_it_and_the_rest_stays() -> None:
    source = counter(
        "cur = self.hits[key]", "step = 1", "new = cur + step", "await self.ping()", "self.hits[key] = new"
    )
    candidate = only(lost(source, "cur = ", "= new"), intents.MOVE_AWAIT_OUT)
    assert body(candidate, "async def bump").split("\n")[1:] == [
        "        step = 1",
        "        await self.ping()",
        "        cur = self.hits[key]",
        "        new = cur + step",
        "        self.hits[key] = new",
    ]
    assert outcome(candidate.new_source) == 2


def test_an_await_inside_the_write_is_taken_out() -> None:
    source = counter("self.hits[key] += await self.one()").replace(
        "    async def ping",
        "    async def one(self):\n        await self.ping()\n        return 1\n\n    async def ping",
    )
    candidate = only(lost(source, "+= await", "+= await"), intents.MOVE_AWAIT_OUT)
    assert body(candidate, "async def bump").split("\n")[1:] == [
        "        value = await self.one()",
        "        self.hits[key] += value",
    ]
    assert (outcome(source), outcome(candidate.new_source)) == (1, 2)


def test_read_and_own_await_move_together() -> None:
    source = counter("cur = self.hits[key]", "self.hits[key] = cur + (await asyncio.sleep(0, 1))")
    candidate = only(lost(source, "cur = ", "= cur + (await"), intents.MOVE_AWAIT_OUT)
    assert outcome(source) == 1
    assert outcome(candidate.new_source) == 2


@pytest.mark.parametrize(
    ("lines", "read", "write"),
    [
        (("cur = self.hits[key]", "await asyncio.sleep(cur)", "self.hits[key] = cur + 1"), "cur =", "= cur + 1"),
        (
            ("cur = self.hits[key]", "key = await asyncio.sleep(0, key)", "self.hits[key] = cur + 1"),
            "cur =",
            "= cur + 1",
        ),
        (("cur = self.hits.pop(key)", "await self.ping()", "self.hits[key] = cur + 1"), "cur =", "= cur + 1"),
        (("cur = self.hits[key]", "print(cur)", "await self.ping()", "self.hits[key] = cur + 1"), "cur =", "= cur + 1"),
        (("self.hits[key] += self.x() + await self.ping()",), "+= self.x()", "+= self.x()"),
        (("self.hits[key] += (key and await self.ping()) or 1",), "key and await", "key and await"),
    ],
    ids=["await-uses-it", "key-rebound", "read-has-effects", "used-before", "call-overtaken", "conditional-await"],
)
def test_data_flow_forbids_the_move(lines: tuple[str, ...], read: str, write: str) -> None:
    generation = proposed(lost(counter(*lines), read, write))
    assert not of_kind(generation, intents.MOVE_AWAIT_OUT)
    assert of_kind(generation, intents.WRAP_ATOMIC_SECTION)


# -- RECHECK_AFTER_AWAIT -----------------------------------------------------------------------------------------------

LAZY = """
import asyncio

class Lazy:
    def __init__(self):
        self.made = None
        self.writes = 0

    async def make(self):
        await asyncio.sleep(0)
        return object()

    async def get(self):
        BODY

async def scenario():
    lazy = Lazy()
    one, two = await asyncio.gather(lazy.get(), lazy.get())
    return one is two
"""


def lazy(*lines: str) -> str:
    return text(LAZY).replace("BODY", "\n        ".join(lines))


def checked(source: str, read: str, write: str) -> Diagnosis:
    found = diagnosed(
        source,
        "Lazy.made",
        [("A", "read", read), ("B", "read", read), ("A", "write", write), ("B", "write", write)],
        (1, 2),
        pattern="check-then-act",
    )
    return found


def test_the_condition_is_tested_again() -> None:
    source = lazy("if self.made is None:", "    fresh = await self.make()", "    self.made = fresh", "return self.made")
    candidate = only(checked(source, "if self.made", "self.made = fresh"), intents.RECHECK_AFTER_AWAIT)
    assert body(candidate, "async def get").split("\n")[1:] == [
        "        if self.made is None:",
        "            fresh = await self.make()",
        "            if self.made is None:",
        "                self.made = fresh",
        "        return self.made",
    ]
    assert outcome(candidate.new_source) is True


def test_an_await_inside_the_guarded_write_is_taken_out() -> None:
    source = lazy("if self.made is None:", "    self.made = await self.make()", "return self.made")
    candidate = only(checked(source, "if self.made", "self.made = await"), intents.RECHECK_AFTER_AWAIT)
    assert body(candidate, "async def get").split("\n")[2:5] == [
        "            value = await self.make()",
        "            if self.made is None:",
        "                self.made = value",
    ]
    assert outcome(candidate.new_source) is True


def test_a_guard_that_leaves_is_repeated() -> None:
    source = lazy(
        "if self.made is not None:  # done",
        "    return self.made",
        "fresh = await self.make()",
        "self.made = fresh",
        "return fresh",
    )
    candidate = only(checked(source, "if self.made", "self.made = fresh"), intents.RECHECK_AFTER_AWAIT)
    assert candidate.new_source.count("if self.made is not None:  # done\n            return self.made\n") == 2
    assert outcome(candidate.new_source) is True


@pytest.mark.parametrize(
    ("lines", "read", "write"),
    [
        (
            (
                "if (old := self.made) is None:",
                "    fresh = await self.make()",
                "    self.made = fresh",
                "return self.made",
            ),
            "if (old",
            "self.made = fresh",
        ),
        (
            ("if await self.make() and self.made is None:", "    self.made = 1", "return self.made"),
            "if await",
            "self.made = 1",
        ),
        (
            ("if self.made is None:", "    self.made = 1", "    await self.make()", "return self.made"),
            "if self.made",
            "self.made = 1",
        ),
    ],
    ids=["walrus", "awaiting-test", "no-await-before-the-act"],
)
def test_no_second_test(lines: tuple[str, ...], read: str, write: str) -> None:
    generation = proposed(checked(lazy(*lines), read, write))
    assert not of_kind(generation, intents.RECHECK_AFTER_AWAIT)


# -- SNAPSHOT_ITERATION ------------------------------------------------------------------------------------------------

ROOM = """
import asyncio
PRELUDE

class Room:
    def __init__(self):
        self.boxes = {"a": [], "b": [], "c": []}

    async def tell(self, word):
        BODY

    def leave(self, name):
        self.boxes.pop(name, None)

async def scenario():
    room = Room()
    async def out():
        room.leave("a")
    await asyncio.gather(room.tell("x"), out())
    return room.boxes["c"]
"""


def iterating(lines: list[str], prelude: str = "") -> tuple[str, Diagnosis]:
    source = text(ROOM).replace("BODY", "\n        ".join(lines)).replace("PRELUDE", prelude)
    loop = next(line for line in lines if "self.boxes" in line)
    found = diagnosed(
        source,
        "Room.boxes",
        [("A", "read", loop), ("B", "write", "self.boxes.pop")],
        (0, 1),
        message="RuntimeError: dictionary changed size during iteration",
        pattern="iteration-invalidated",
    )
    return source, found


@pytest.mark.parametrize("view", ["self.boxes.values()", "(self.boxes.values())"])
def test_the_loop_runs_over_a_copy(view: str) -> None:
    source, found = iterating([f"for box in {view}:", "    await asyncio.sleep(0)", "    box.append(word)"])
    candidate = only(found, intents.SNAPSHOT_ITERATION)
    assert "list(self.boxes.values())" in candidate.new_source
    assert isinstance(outcome(source), RuntimeError)
    assert outcome(candidate.new_source) == ["x"]


def test_a_shadowed_list_is_not_called() -> None:
    lines = ["for box in self.boxes.values():", "    await asyncio.sleep(0)", "    box.append(word)"]
    _, found = iterating(lines, prelude="list = None")
    candidate = only(found, intents.SNAPSHOT_ITERATION)
    assert "for box in [*self.boxes.values()]:" in candidate.new_source
    assert outcome(candidate.new_source) == ["x"]


@pytest.mark.parametrize("source", ["sorted(self.boxes)", "list(self.boxes)", "self.pick(self.boxes)"])
def test_a_source_that_is_a_copy_or_runs_code_stays(source: str) -> None:
    _, found = iterating([f"for name in {source}:", "    await asyncio.sleep(0)"])
    assert not of_kind(proposed(found), intents.SNAPSHOT_ITERATION)


def test_a_loop_without_an_await_stays() -> None:
    _, found = iterating(["for box in self.boxes.values():", "    box.append(word)"])
    assert not of_kind(proposed(found), intents.SNAPSHOT_ITERATION)


# -- WHILE_INSTEAD_OF_IF -----------------------------------------------------------------------------------------------

BAY = """
import asyncio

class Bay:
    def __init__(self):
        self.cars = set()
        self.free = asyncio.Event()
        self.peak = 0

    async def park(self, car):
        BODY
        self.cars.add(car)
        self.peak = max(self.peak, len(self.cars))

    def leave(self, car):
        self.cars.discard(car)
        self.free.set()

async def scenario():
    bay = Bay()
    async def drive(car):
        await bay.park(car)
        await asyncio.sleep(0)
        bay.leave(car)
    await asyncio.gather(*(drive(n) for n in range(3)))
    return bay.peak
"""


def waiting(*lines: str) -> tuple[str, Diagnosis]:
    source = text(BAY).replace("BODY", "\n        ".join(lines))
    test = next(line for line in lines if "self.cars" in line)
    events = [("A", "read", test), ("B", "read", test), ("A", "write", "cars.add"), ("B", "write", "cars.add")]
    return source, diagnosed(source, "Bay.cars", events, (1, 2), pattern="check-then-act")


def test_if_becomes_while() -> None:
    source, found = waiting("if self.cars:", "    self.free.clear()", "    await self.free.wait()")
    candidate = only(found, intents.WHILE_INSTEAD_OF_IF)
    assert "        while self.cars:\n            self.free.clear()\n" in candidate.new_source
    assert candidate.edit_size == 2
    assert (outcome(source), outcome(candidate.new_source)) == (2, 1)
    assert proposed(found).candidates[0] == candidate


@pytest.mark.parametrize(
    "lines",
    [
        ("if self.cars:", "    await self.free.wait()", "else:", "    pass"),
        ("if not car:", "    return", "elif self.cars:", "    await self.free.wait()"),
        ("if self.cars:", "    await self.free.wait()", "    return"),
        ("if self.cars:", "    gone = asyncio.Future()", "    await gone"),
        ("if self.cars:", "    await asyncio.sleep(0)"),
    ],
    ids=["else", "elif", "exit", "own-future", "no-wait"],
)
def test_if_stays(lines: tuple[str, ...]) -> None:
    assert not of_kind(proposed(waiting(*lines)[1]), intents.WHILE_INSTEAD_OF_IF)


# -- WRAP_ATOMIC_SECTION -----------------------------------------------------------------------------------------------

WALLET = text("""
import asyncio

class Wallet:
    def __init__(self):
        self.row = {"gold": 0}

    async def load(self):
        await asyncio.sleep(0)
        return self.row["gold"]

    async def save(self, gold):
        await asyncio.sleep(0)
        self.row["gold"] = gold

    async def grant(self, amount):
        await asyncio.sleep(0)
        gold = await self.load()
        await self.save(gold + amount)
        await asyncio.sleep(0)

async def scenario():
    wallet = Wallet()
    await asyncio.gather(wallet.grant(10), wallet.grant(5))
    return wallet.row["gold"]
""")
READ, WRITE = 'return self.row["gold"] < gold = await self.load()', '["gold"] = gold < await self.save(gold'


def test_the_lock_spans_the_transition_in_the_common_caller_and_no_delay() -> None:
    candidate = only(lost(WALLET, READ, WRITE, "Wallet.row['gold']"), intents.WRAP_ATOMIC_SECTION)
    assert "        self._row_lock = asyncio.Lock()\n" in candidate.new_source
    assert body(candidate, "async def grant").split("\n")[1:] == [
        "        await asyncio.sleep(0)",
        "        async with self._row_lock:",
        "            gold = await self.load()",
        "            await self.save(gold + amount)",
        "        await asyncio.sleep(0)",
    ]
    assert (outcome(WALLET), outcome(candidate.new_source)) == (5, 15)


def test_regions_grow_outward() -> None:
    found = of_kind(proposed(lost(WALLET, READ, WRITE, "Wallet.row['gold']")), intents.WRAP_ATOMIC_SECTION)
    spans = [c.intent.lines for c in found if c.intent.target == "Wallet.grant"]
    assert spans[0] == (17, 18)
    assert (16, 19) in spans
    assert [b - a for a, b in spans] == sorted(b - a for a, b in spans)


def test_an_independent_await_can_leave_the_region() -> None:
    source = counter("cur = self.hits[key]", "await self.ping()", "self.hits[key] = await asyncio.sleep(0, cur + 1)")
    found = of_kind(proposed(lost(source, "cur = ", "= await asyncio.sleep(0, cur")), intents.WRAP_ATOMIC_SECTION)
    assert "in front of the lock" in found[0].note
    assert body(found[0], "async def bump").split("\n")[1:4] == [
        "        await self.ping()",
        "        async with self._hits_lock:",
        "            cur = self.hits[key]",
    ]
    assert outcome(found[0].new_source) == 2


def test_two_methods_without_a_common_caller_share_one_lock() -> None:
    source = text("""
    import asyncio

    class Link:
        def __init__(self):
            self.open = True

        async def send(self):
            if not self.open:
                return "late"
            await asyncio.sleep(0)
            assert self.open
            return "sent"

        async def close(self):
            self.open = False

    async def scenario():
        link = Link()
        return await asyncio.gather(link.send(), link.close())
    """)
    events = [("A", "read", "if not self.open"), ("B", "write", "self.open = False"), ("A", "read", "assert self.open")]
    candidate = only(diagnosed(source, "Link.open", events, (0, 1)), intents.WRAP_ATOMIC_SECTION)
    other = diagnosed(source, "Link.open", events, (1, 2))
    found = of_kind(proposed(other), intents.WRAP_ATOMIC_SECTION)
    assert candidate.intent.target == "Link.send, Link.close"
    repaired = [c for c in found if outcome(c.new_source) == ["sent", None]]
    assert isinstance(outcome(source), AssertionError)
    assert repaired
    assert all(c.new_source.count("async with self._open_lock:") == 2 for c in repaired)


def test_a_lock_that_guards_the_state_elsewhere_is_reused_first() -> None:
    source = WALLET.replace("        self.row = {", "        self.gate = asyncio.Lock()\n        self.row = {").replace(
        "\nasync def scenario",
        "\n    async def clear(self):\n        async with self.gate:\n            self.row.clear()\n"
        "\nasync def scenario",
    )
    found = of_kind(proposed(lost(source, READ, WRITE, "Wallet.row['gold']")), intents.WRAP_ATOMIC_SECTION)
    assert "async with self.gate:\n            gold = await self.load()" in found[0].new_source
    assert "_row_lock" not in found[0].new_source
    assert any("_row_lock" in c.new_source for c in found)


def test_no_region_takes_a_lock_twice() -> None:
    source = WALLET.replace("        self.row = {", "        self.gate = asyncio.Lock()\n        self.row = {").replace(
        '        self.row["gold"] = gold', '        async with self.gate:\n            self.row["gold"] = gold'
    )
    generation = proposed(lost(source, READ, '["gold"] = gold < await self.save(gold', "Wallet.row['gold']"))
    assert not any("async with self.gate:\n            gold = await" in c.new_source for c in generation.candidates)
    assert any("not re-entrant" in line for line in generation.refused)


def test_no_lock_is_taken_under_a_thread_lock() -> None:
    source = counter(
        "with self.thread_lock:", "    cur = self.hits[key]", "    await self.ping()", "    self.hits[key] = cur + 1"
    )
    found = of_kind(proposed(lost(source, "cur = ", "= cur + 1")), intents.WRAP_ATOMIC_SECTION)
    assert found
    assert all("async with self._hits_lock:\n            with self.thread_lock:" in c.new_source for c in found)


def test_no_lock_is_held_across_a_yield() -> None:
    source = counter("cur = self.hits[key]", "yield await self.ping()", "self.hits[key] = cur + 1")
    assert not of_kind(proposed(lost(source, "cur = ", "= cur + 1")), intents.WRAP_ATOMIC_SECTION)


def test_a_wait_for_others_under_the_lock_ranks_last() -> None:
    source = counter("cur = self.hits[key]", "await self.ready.wait()", "self.hits[key] = cur + 1")
    candidate = only(lost(source, "cur = ", "= cur + 1"), intents.WRAP_ATOMIC_SECTION)
    assert candidate.rank[1] >= 6


def test_an_order_violation_gets_no_lock() -> None:
    source = counter("await self.ping()", "self.hits[key] = 1")
    found = diagnosed(
        source, "Counter.hits['k']", [("B", "write", "= 1"), ("A", "write", "= 1")], (0, 1), pattern="order-violation"
    )
    assert proposed(found).candidates == ()


def test_candidates_are_ranked_and_distinct() -> None:
    source = counter("cur = self.hits[key]", "await self.ping()", "self.hits[key] = cur + 1")
    found = proposed(lost(source, "cur = ", "= cur + 1")).candidates
    assert [c.rank for c in found] == sorted(c.rank for c in found)
    assert found[0].intent.kind == intents.MOVE_AWAIT_OUT
    assert len({c.new_tree_dump_hash for c in found}) == len(found)


def test_a_source_that_is_not_known_gives_no_candidate() -> None:
    source = counter("cur = self.hits[key]", "await self.ping()", "self.hits[key] = cur + 1")
    known = lost(source, "cur = ", "= cur + 1")
    assert proposed(Diagnosis(known.pattern, known.pair, known.touches, {})).candidates == ()


# -- what a second test abandons ---------------------------------------------------------------------------------------

SEATS = """
import asyncio
import outside

async def card(who):
    CARD

class Checker:
    async def ask(self, who):
        await asyncio.sleep(0)
        return len(who) > 0

class Flight:
    def __init__(self, remote):
        self.free = 1
        self.calls = 0
        self.checker = Checker()
        self.remote = remote
        self.ready = asyncio.Event()

    async def count(self):
        self.calls += 1
        return True

    async def book(self, who):
        if self.free == 0:
            return False
        STEP
        self.free -= 1
        return True
"""


def booking(step: str, card: str = "await asyncio.sleep(0)") -> Diagnosis:
    source = text(SEATS).replace("STEP", step).replace("CARD", card)
    read, write = "if self.free == 0", "self.free -= 1"
    events = [("A", "read", read), ("B", "read", read), ("A", "update", write), ("B", "update", write)]
    return diagnosed(source, "Flight.free", events, (1, 2), pattern="check-then-act")


@pytest.mark.parametrize(
    "step",
    [
        "await asyncio.sleep(0)",
        "await self.ready.wait()",
        "good = await self.checker.ask(who)",
        "if not await self.checker.ask(who): return False",
    ],
)
def test_what_can_be_done_for_nothing_may_be_abandoned(step: str) -> None:
    generation = proposed(booking(step))
    assert of_kind(generation, intents.RECHECK_AFTER_AWAIT), generation.refused


@pytest.mark.parametrize(
    ("step", "card", "why"),
    [
        ("await card(who)", "await asyncio.sleep(0)", "called for its effects"),
        ("paid = await card(who)", "await outside.post(who)", "outside.post (line 5) does is not known"),
        ("paid = await outside.post(who)", "pass", "is not known"),
        ("paid = await self.remote.post(who)", "pass", "is not known"),
        ("paid = await self.count()", "pass", "writes self.calls"),
        ("self.calls += 1; await asyncio.sleep(0)", "pass", "writes self.calls"),
        ("paid = await who", "pass", "awaits what was started elsewhere"),
    ],
)
def test_what_others_notice_is_not_abandoned(step: str, card: str, why: str) -> None:
    generation = proposed(booking(step, card))
    assert not of_kind(generation, intents.RECHECK_AFTER_AWAIT)
    assert any(why in line for line in generation.refused), generation.refused
    assert of_kind(generation, intents.WRAP_ATOMIC_SECTION)


# -- the other users of the state --------------------------------------------------------------------------------------

STORE = text("""
import asyncio

class Store:
    def __init__(self):
        self.seq = 0

    async def put(self):
        seen = self.seq
        await asyncio.sleep(seen * 0)
        self.seq = seen + 1

    async def undo(self):
        last = self.seq
        await asyncio.sleep(0)
        self.seq = last - 1

    async def reset(self):
        self.seq = 0

    async def show(self):
        return self.seq
""")


def test_the_other_writers_of_the_state_take_the_lock_too() -> None:
    found = of_kind(proposed(lost(STORE, "seen = self", "= seen + 1", "Store.seq")), intents.WRAP_ATOMIC_SECTION)
    best = found[0]
    assert best.new_source.count("async with self._seq_lock:") == 3
    assert body(best, "async def reset").split("\n")[1] == "        async with self._seq_lock:"
    assert "the same lock in the other writers: Store.undo (line 13), Store.reset (line 18)" in best.intent.rationale
    assert "unprotected" not in best.intent.rationale
    narrow = [c for c in found if c.new_source.count("async with self._seq_lock:") == 1]
    assert narrow and all("Store.seq stay unprotected: undo (line 13), reset (line 18)" in c.note for c in narrow)


def test_what_cannot_take_the_lock_is_named() -> None:
    source = STORE.replace("    async def reset", "    def reset") + text("""
        async def outer(self):
            value = self.seq
            await self.put()
    """).replace("\n", "\n    ").rstrip(" ").replace("async def outer", "    async def outer", 1)
    inner = "seen = self.seq < await self.put()", "= seen + 1 < await self.put()"
    found = of_kind(proposed(lost(source, *inner, "Store.seq")), intents.WRAP_ATOMIC_SECTION)
    outer = [c for c in found if c.intent.target == "Store.outer"]
    assert outer
    assert all("put (line 8)" in c.note and "reset (line 18)" in c.note for c in outer)


def test_a_private_helper_called_under_the_lock_is_protected() -> None:
    source = WALLET.replace("self.save", "self._save").replace("def save", "def _save")
    found = of_kind(
        proposed(lost(source, READ, WRITE.replace("self.save", "self._save"), "Wallet.row['gold']")),
        intents.WRAP_ATOMIC_SECTION,
    )
    assert found and "unprotected" not in found[0].note
