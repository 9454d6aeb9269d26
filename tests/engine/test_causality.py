"""Happens-before and races on hand-made steps, against a brute-force twin; the critical pair on real executions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from chaossloth.causality import VectorClocks, races, signature
from chaossloth.evidence import Access, Frame, Mode, Step

HERE = (Frame("subject.py", 1, "f"),)


def steps_of(rows: list[tuple[str, int, list[tuple[str, Mode]]]]) -> list[Step]:
    """rows: (proc, creator index, accesses)."""
    counts: dict[str, int] = {}
    made = []
    for index, (proc, creator, accesses) in enumerate(rows):
        counts[proc] = counts.get(proc, 0) + 1
        recorded = tuple(Access(location, location, mode, HERE) for location, mode in accesses)
        made.append(Step(index, proc, proc, counts[proc], creator, "start", recorded))
    return made


def reachable(steps: list[Step]) -> set[tuple[int, int]]:
    """Happens-before by definition: transitive closure of program order and creation."""
    edges = {(s.creator, s.index) for s in steps if s.creator >= 0}
    edges |= {(a.index, b.index) for a in steps for b in steps if a.proc == b.proc and a.index < b.index}
    closure = set(edges)
    while True:
        more = {(a, d) for a, b in closure for c, d in closure if b == c} - closure
        if not more:
            return closure
        closure |= more


@st.composite
def runs(draw: st.DrawFn) -> list[Step]:
    rows: list[tuple[str, int, list[tuple[str, Mode]]]] = [("0", -1, [])]
    for index in range(1, draw(st.integers(1, 12))):
        proc = draw(st.sampled_from("abcd"))
        accesses = draw(
            st.lists(st.tuples(st.sampled_from("xy"), st.sampled_from(["read", "write", "update"])), max_size=2)
        )
        rows.append((proc, draw(st.integers(0, index - 1)), accesses))
    return steps_of(rows)


@given(runs())
def test_vector_clocks_equal_the_transitive_closure(steps: list[Step]) -> None:
    clocks, closure = VectorClocks(steps), reachable(steps)
    for a in range(len(steps)):
        for b in range(len(steps)):
            if a < b:
                assert clocks.before(steps, a, b) == ((a, b) in closure), (a, b)


@given(runs())
def test_races_are_the_unordered_conflicting_pairs(steps: list[Step]) -> None:
    closure = reachable(steps)
    expected = {
        (a.index, b.index, x.location)
        for a in steps
        for b in steps
        if a.index < b.index and (a.index, b.index) not in closure
        for x in a.accesses
        for y in b.accesses
        if x.location == y.location and (x.mode, y.mode) != ("read", "read")
    }
    assert {(r.first_step, r.second_step, r.first.location) for r in races(steps)} == expected


def test_a_lost_update_has_its_races_and_a_locked_one_is_no_different_here() -> None:
    rows: list[tuple[str, int, list[tuple[str, Mode]]]] = [
        ("main", -1, []),
        ("a", 0, [("x", "read")]),
        ("b", 0, [("x", "read")]),
        ("b", 2, [("x", "write")]),
        ("a", 1, [("x", "write")]),
    ]
    found = {(r.first_step, r.second_step) for r in races(steps_of(rows))}
    assert found == {(1, 3), (2, 4), (3, 4)}


def test_synchronisation_is_no_race_unless_asked_for() -> None:
    lock = Access("lock", "lock", "update", HERE, sync=True)
    steps = [
        Step(0, "main", "main", 1, -1, "start"),
        Step(1, "a", "a", 1, 0, "start", (lock,)),
        Step(2, "b", "b", 1, 0, "start", (lock,)),
    ]
    assert races(steps) == []
    assert len(races(steps, sync=True)) == 1


@st.composite
def two_orders(draw: st.DrawFn) -> tuple[list[Any], list[Any]]:
    """The same raw steps in two orders, each of which keeps the order within a task."""
    bits = st.sampled_from([1, 2, 3])  # read, write, update
    accesses = st.lists(st.tuples(st.integers(1, 2), st.just("key"), bits), max_size=2)
    tasks = draw(st.lists(st.lists(accesses, min_size=1, max_size=2), min_size=2, max_size=3))
    numbers = [number for number, steps in enumerate(tasks) for _ in steps]

    def arranged(order: list[int]) -> list[Any]:
        done = [0] * len(tasks)
        made = []
        for number in order:
            raw = tasks[number][done[number]]
            done[number] += 1
            made.append(SimpleNamespace(proc=SimpleNamespace(number=number), ordinal=done[number], accesses=raw))
        return made

    return arranged(draw(st.permutations(numbers))), arranged(draw(st.permutations(numbers)))


def order_of_conflicts(steps: list[Any]) -> set[Any]:
    """Every pair of conflicting accesses of two steps, in their order: what defines a Mazurkiewicz trace."""
    return {
        (x[:2], (a.proc.number, a.ordinal), (b.proc.number, b.ordinal))
        for place, a in enumerate(steps)
        for b in steps[place + 1 :]
        for x in a.accesses
        for y in b.accesses
        if x[:2] == y[:2] and (x[2] | y[2]) & 2
    }


@settings(max_examples=150)
@given(two_orders())
def test_signatures_are_equal_for_equivalent_orders_and_only_for_those(orders: tuple[list[Any], list[Any]]) -> None:
    first, second = orders
    assert (signature(first) == signature(second)) == (order_of_conflicts(first) == order_of_conflicts(second))
