"""Canonical form, sequential orders, and the verdict over a concurrent outcome."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import enum
import functools
import itertools
import logging
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaossloth.evidence import Frame
from chaossloth.subject.canonical import MAX_LEAVES, Flat, Walker, show_leaf, show_path
from chaossloth.subject.oracle import (
    Raised,
    SerialOutcomes,
    different_behaviour,
    relabellings,
    sequential_orders,
)


class Box:
    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


class Slotted:
    __slots__ = ("_secret", "never", "x")

    def __init__(self) -> None:
        self.x, self._secret = 1, 2


class Hostile:
    """Every hook that a careless walker would call."""

    def __init__(self) -> None:
        self.value = 1

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("asked for " + name)

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("compared")

    def __hash__(self) -> int:
        raise RuntimeError("hashed")

    def __repr__(self) -> str:
        raise RuntimeError("shown")

    @property
    def computed(self) -> int:
        raise RuntimeError("computed")


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass(frozen=True)
class Point:
    x: int


def flat(*values: object, **roots: object) -> Flat:
    walker = Walker()
    for index, value in enumerate(values):
        walker.add(f"r{index}", value)
    for name, value in roots.items():
        walker.add(name, value)
    return walker.flat


def names(value: object) -> set[str]:
    return {show_path(path) for path in flat(Wallet=value)}


def test_paths_read_like_source() -> None:
    box = Box(_row={"gold": 1, 7: [None]})
    assert names(box) == {"Wallet", "Wallet._row", "Wallet._row['gold']", "Wallet._row[7]", "Wallet._row[7][0]"}
    assert names(Slotted()) == {"Wallet", "Wallet.x", "Wallet._secret"}


@pytest.mark.parametrize(
    ("one", "two", "equal"),
    [
        (1, 1, True),
        (1, True, False),
        (1, 1.0, False),
        (float("nan"), float("nan"), True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        (collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1), False),
        ([1, 2], (1, 2), False),
        ([1, 2], [2, 1], False),
        ({3, 1, 2}, {2, 3, 1}, True),
        ({Point(1), Point(2)}, {Point(2), Point(1)}, True),
        ({Point(1)}, {Point(2)}, False),
        (collections.deque([1]), collections.deque([1]), True),
        (collections.defaultdict(list), {}, False),
        (KeyError("a"), KeyError("a"), True),
        (KeyError("a"), KeyError("b"), False),
        (KeyError("a"), IndexError("a"), False),
        (Box(x=1), Box(x=1), True),
        (Box(x=1), Box(x=2), False),
        (Box(x=1), Slotted(), False),
        (Colour.RED, Colour.RED, True),
        (Point, Box, False),
        ("at 0x7f0a12345678", "at 0x7f0affffffff", True),
        (Box(f=len), Box(f=print), True),
        (Box(x=1), Box(x=1, lock=asyncio.Lock()), True),
        (Box(x=1), Box(x=1, log=logging.getLogger("a"), t=threading.Lock()), True),
        (Box(x={"a": asyncio.Lock()}), Box(x={"a": asyncio.Lock(), "b": asyncio.Lock()}), True),
        (Box(x={"a": asyncio.Lock()}), Box(x={}), False),
        (Box(x=1), Box(x=1, part=functools.partial(print)), True),
        (Box(x=1), Box(x=1, cache={}), False),
    ],
)
def test_equality(one: object, two: object, equal: bool) -> None:
    assert (flat(one) == flat(two)) is equal


def test_queue_contents_are_state() -> None:
    async def filled(*items: int) -> Flat:
        queue: asyncio.Queue[int] = asyncio.Queue()
        for item in items:
            queue.put_nowait(item)
        return flat(queue)

    assert asyncio.run(filled(1, 2)) != asyncio.run(filled(2, 1))
    assert asyncio.run(filled(1, 2)) == asyncio.run(filled(1, 2))


def test_cycles_depth_size_and_identity() -> None:
    ring: list[Any] = [1]
    ring.append(ring)
    assert flat(ring)[("r0", "[1]")] == ("same", ("r0",))
    one = Box(x=1)
    assert flat([one, one]) != flat([one, Box(x=1)])
    # Containers and classes with __eq__ are values: sharing them is not seen.
    shared = [1]
    assert flat([shared, shared]) == flat([[1], [1]])
    assert flat([Point(1), Point(1)]) == flat([Point(1)] * 2)
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    walker = Walker()
    walker.add("deep", deep)
    walker.add("wide", [[i] for i in range(2 * MAX_LEAVES)])
    assert walker.cut and len(walker.flat) < 5 * MAX_LEAVES


def test_no_code_of_the_subject_runs() -> None:
    hostile = Hostile()
    assert flat([hostile, hostile])[("r0", "[0]", ".value")] == ("plain", "int", 1)


def test_reads_are_reported() -> None:
    seen: list[tuple[object, object]] = []
    walker = Walker(on_read=lambda owner, key: seen.append((type(owner).__name__, key)))
    walker.add("Wallet", Box(row={"gold": [1]}))
    assert seen == [("Box", "row"), ("dict", "#"), ("dict", "gold"), ("list", "#"), ("list", 0)]


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(_values, _values)
@settings(max_examples=200, deadline=None)
def test_equal_exactly_when_repr_is_up_to_key_order(one: object, two: object) -> None:
    def ordered(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: ordered(value[key]) for key in sorted(value)}
        return [ordered(item) for item in value] if isinstance(value, list) else value

    assert (flat(one) == flat(two)) is (repr(ordered(one)) == repr(ordered(two)))


@given(st.lists(st.integers(0, 2), min_size=1, max_size=4))
def test_orders_and_relabellings_cover_all_permutations(groups: list[int]) -> None:
    groups = [groups.index(g) for g in groups]
    orders, complete = sequential_orders(groups)
    renamings, all_names = relabellings(groups)
    assert complete and all_names
    reached = {tuple(renaming[i] for i in order) for order in orders for renaming in renamings}
    assert reached == set(itertools.permutations(range(len(groups))))
    assert len(orders) * len(renamings) == len(reached)


def test_many_different_calls_are_sampled() -> None:
    orders, complete = sequential_orders(list(range(6)))
    assert not complete and len(orders) == len(set(orders)) == 24
    assert sequential_orders([0] * 6) == ([(0, 1, 2, 3, 4, 5)], True)


def outcomes(*pairs: tuple[Flat, Flat]) -> SerialOutcomes:
    found = SerialOutcomes(call_labels=("A", "B"))
    for one, two in pairs:
        found.add([one], [two])
        found.orders += 1
    return found


def state(**values: object) -> Flat:
    return flat(Wallet=Box(**values))


def test_verdict_names_path_value_and_what_is_possible() -> None:
    serial = outcomes((state(gold=15), state(gold=15)), (state(gold=14), state(gold=14)))
    assert serial.judge(state(gold=14)).ok
    lost = serial.judge(state(gold=10))
    assert (lost.ok, lost.failure) == (False, "not-serializable")
    assert lost.message == "Wallet.gold is 10; one after another it is 14 or 15"


def test_values_possible_alone_but_not_together() -> None:
    serial = outcomes((state(a=1, b=1),) * 2, (state(a=2, b=2),) * 2)
    message = serial.judge(state(a=1, b=2)).message
    assert message.endswith("which no sequential order has together with the rest")


DIFFERENCES = {
    "an entry is missing": (
        {"row": {"a": 1}},
        {"row": {"a": 1, "b": 2}},
        "Wallet.row is a dict of 1 (['b'] is missing); one after another it is a dict of 2",
    ),
    "an entry too many, with what is in it": (
        {"history": [("w", 1), ("w", 1)]},
        {"history": [("w", 1)]},
        "Wallet.history is a list of 2 ([1] is new); one after another it is a list of 1",
    ),
    "another entry": (
        {"row": {"a": 1}},
        {"row": {"b": 2}},
        "Wallet.row['a'] is 1; one after another it is absent; Wallet.row['b'] is absent; one after another it is 2",
    ),
    "an entry is missing and another differs": (
        {"row": {"a": 9}},
        {"row": {"a": 1, "b": 2}},
        "Wallet.row is a dict of 1 (['b'] is missing); one after another it is a dict of 2; "
        "Wallet.row['a'] is 9; one after another it is 1",
    ),
    "tasks only": (
        {"inflight": {"k": asyncio.Event()}},
        {"inflight": {}},
        "Wallet.inflight is a dict that holds only tasks, locks or functions; one after another it is an empty dict",
    ),
    "an attribute": ({}, {"gold": 1}, "Wallet.gold is absent; one after another it is 1"),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_the_outermost_thing_that_differs_is_named(name: str) -> None:
    now, then, message = DIFFERENCES[name]
    assert outcomes((state(**then),) * 2).judge(state(**now)).message == message


def test_unstable_paths_are_dropped_and_named() -> None:
    serial = outcomes((state(gold=1, created=1.0), state(gold=1, created=2.0)))
    assert serial.unstable_names() == ("Wallet.created",)
    assert serial.judge(state(gold=1, created=3.0)).ok
    assert not serial.judge(state(gold=2, created=1.0)).ok


def test_random_keys_leave_the_number_of_entries_comparable() -> None:
    serial = outcomes((state(s={"x1": 1, "x2": 1}), state(s={"y1": 1, "y2": 1})))
    assert serial.unstable_names() == ("Wallet.s[...]",)
    assert serial.judge(state(s={"z1": 1, "z2": 5})).ok
    assert not serial.judge(state(s={"z1": 1})).ok


def test_new_exception() -> None:
    where = Frame("w.py", 3, "take")
    result = {("result of A",): ("exception", "KeyError")}
    serial = outcomes((state(gold=1) | flat(**{"result of A": 1}),) * 2)
    alone = serial.judge(state(gold=1) | result, [Raised("A", "KeyError", "'k'", where)])
    assert (alone.failure, alone.exception, alone.where) == ("exception", "KeyError", where)
    assert alone.message == "call A raises KeyError: 'k'; one after another no call raises it"
    both = serial.judge(state(gold=9) | result, [Raised("A", "KeyError", "'k'", where)])
    assert both.failure == "not-serializable"
    assert both.message.endswith("; Wallet.gold is 9; one after another it is 1")


def test_an_exception_that_sequential_calls_raise_too_is_an_outcome() -> None:
    result = flat(**{"result of A": ValueError("sold out")})
    serial = SerialOutcomes(call_labels=("A",))
    serial.add([result], [result], [Raised("A", "ValueError", "sold out")])
    assert serial.judge(result, [Raised("A", "ValueError", "sold out")]).ok


def test_changed_behaviour_in_sequence() -> None:
    before = outcomes((state(gold=1),) * 2)
    assert different_behaviour(before, outcomes((state(gold=1, _lock=asyncio.Lock()),) * 2)) is None
    assert different_behaviour(before, outcomes((state(gold=1, _inflight={}, _busy=None),) * 2)) is None
    assert different_behaviour(before, outcomes((state(gold=1, _locks={"a": asyncio.Lock()}),) * 2)) is None
    assert different_behaviour(before, outcomes((state(gold=2),) * 2)) == "Wallet.gold becomes 2; before the change 1"
    assert different_behaviour(before, outcomes((state(gold=1, log=["x"]),) * 2)) is not None
    two = outcomes((state(gold=1),) * 2, (state(gold=2),) * 2)
    assert different_behaviour(two, before) == "1 of 2 sequential outcomes of the original do not occur any more"


@pytest.mark.parametrize(
    ("value", "text"),
    [([], "an empty list"), ([1], "a list of 1"), (set(), "an empty set"), ({2, 1}, "{1, 2}"), ("x", "'x'")],
)
def test_leaves_for_people(value: object, text: str) -> None:
    assert show_leaf(flat(value)[("r0",)]) == text
    assert show_leaf(None) == "absent"
