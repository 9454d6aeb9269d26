"""Which accesses an interleaving shows, and what it says of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chaossloth.evidence import Step
from chaossloth.report.trace import Sources, interleavings, stale_writes
from tests.report import samples

SOURCES = Sources(samples.SOURCES)


def rows(failing: tuple[Step, ...], verbosity: int = 0, **changes: object) -> list[str]:
    finding = replace(samples.FINDING, trace={"failing": failing}, **changes)  # type: ignore[arg-type]
    return interleavings(finding, SOURCES, 100, verbosity)


def test_accesses_to_other_objects_are_left_out_but_for_v() -> None:
    other = samples.access(6, "write", "7", name="Store.hits")
    private = samples.access(8, "write", "8", name="Store.private")
    steps = (
        replace(samples.FAILING[0], accesses=(other, private, *samples.FAILING[0].accesses)),
        replace(samples.FAILING[1], accesses=(other, *samples.FAILING[1].accesses)),
        *samples.FAILING[2:],
    )
    assert not any("writes 7" in row for row in rows(steps))
    verbose = rows(steps, verbosity=1)
    assert sum("writes 7" in row for row in verbose) == 2
    assert not any("writes 8" in row for row in verbose)


def test_read_and_write_of_one_statement_share_a_row() -> None:
    both = (samples.access(11, "read", "0"), samples.access(11, "write", "1"))
    steps = (samples.step(0, "A", 1, *both), samples.step(1, "B", 1, *both))
    shown = rows(steps, critical_pair=())
    assert sum("reads 0, writes 1" in row for row in shown) == 2
    assert len(shown) == 3


def test_suspension_is_shown_only_where_another_task_came_between() -> None:
    shown = rows(samples.PASSING)
    assert not any("suspended" in row for row in shown)
    assert sum("suspended" in row for row in rows(samples.FAILING)) == 1


def test_own_later_read_is_not_stale() -> None:
    again = replace(samples.FAILING[3], accesses=(samples.access(9, "read", "1"), samples.access(11, "write", "2")))
    finding = replace(samples.FINDING, trace={"failing": (*samples.FAILING[:3], again)})
    assert stale_writes(finding) == []
    assert stale_writes(samples.FINDING) == [
        "A's write at line 11 rests on its read at line 9, made before B's write at line 11"
    ]


def test_update_is_atomic_and_never_stale() -> None:
    steps = (
        samples.step(0, "A", 1, samples.access(9, "read", "0")),
        samples.step(1, "B", 1, samples.access(11, "write", "1")),
        samples.step(2, "A", 2, samples.access(11, "update", "2")),
    )
    assert stale_writes(replace(samples.FINDING, trace={"failing": steps})) == []


def test_long_trace_keeps_the_pair_and_counts_what_is_missing() -> None:
    noise = tuple(samples.step(i, "C", i, samples.access(9, "read", "5")) for i in range(4, 104))
    early = tuple(replace(step, index=step.index + 100) for step in samples.FAILING)
    pair = tuple(replace(access, step=access.step + 100) for access in samples.PAIR)
    shown = rows((*noise, *early), critical_pair=pair)
    assert len(shown) == 22
    assert shown[1] == "  … 85 more rows, shown with -vv"
    assert any(row.startswith("  ①") for row in shown)
    assert any(row.startswith("  ②") for row in shown)
    assert len(rows((*noise, *early), verbosity=2, critical_pair=pair)) == 106


def test_several_files_are_named() -> None:
    steps = (
        samples.step(0, "A", 1, samples.access(9, "read", "0", file="a/store.py")),
        samples.step(1, "B", 1, samples.access(11, "write", "1", file="b/other.py")),
    )
    shown = rows(steps, critical_pair=())
    assert "A store.py:9 " in shown[1]
    assert "B other.py:11" in shown[2]


def test_pair_without_a_trace_is_still_shown() -> None:
    assert rows(()) == [
        "  ① A 9  current = self.sessions.get(key, 0)  reads 0",
        "  ② B 11 self.sessions[key] = current + 1     writes 1",
    ]
    assert rows((), critical_pair=()) == []


def traced(failing: tuple[Step, ...], passing: tuple[Step, ...] = (), width: int = 100, **changes: Any) -> list[str]:
    finding = replace(samples.FINDING, trace={"failing": failing, "passing": passing}, **changes)
    return interleavings(finding, SOURCES, width, 0)


def named(steps: tuple[Step, ...], **names: str) -> tuple[Step, ...]:
    return tuple(replace(step, task=names[step.task]) for step in steps)


def test_names_of_files_do_not_eat_the_source() -> None:
    """Two files, long names, two columns: the file gets a row where it changes, the source at least 16 columns."""
    names = {"A": "Inventory.reserve #1", "B": "Inventory.reserve #2"}
    last = samples.step(4, "T", 1, samples.access(5, "read", "1", file="tests/test_inventory.py"))
    sources = Sources({**samples.SOURCES, "tests/test_inventory.py": "\n" * 4 + "assert inventory.stock == 0\n"})
    steps = (*named(samples.FAILING, **names), replace(last, task="test_no_oversell"))
    pair = tuple(replace(c, task=names[c.task]) for c in samples.PAIR)
    finding = replace(samples.FINDING, trace={"failing": steps, "passing": steps}, critical_pair=pair)
    left = [row.partition("│")[0].rstrip() for row in interleavings(finding, sources, 100, 0)]
    assert left == [
        "  failing",
        "  store.py:",
        "  ① reserve #1   9  current = self.s…  reads 0",
        "    reserve #1   10 await asyncio.sl…  suspended",
        "    reserve #2   9  current = self.s…  reads 0",
        "  ② reserve #2   11 self.sessions[ke…  writes 1",
        "    reserve #1   11 self.sessions[ke…  writes 1 ←",
        "  test_inventory.py:",
        "    test_no_ove… 5  assert inventory…  reads 1",
    ]


def test_too_narrow_for_two_columns_of_source_is_one_below_the_other() -> None:
    """88 cells hold two columns of short names, but not of long ones."""
    names = {"A": "first_customer", "B": "second_customer"}
    assert any("│" in row for row in traced(samples.FAILING, samples.PASSING, width=88))
    stacked = traced(named(samples.FAILING, **names), named(samples.PASSING, **names), width=88)
    assert not any("│" in row for row in stacked)
    assert "  nearest passing" in stacked
    assert any("current = self.sessions.get(key, 0)" in row for row in stacked)


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (("Inventory.reserve #1", "Inventory.reserve #2"), ("reserve #1", "reserve #2")),
        (("handle_request #1", "handle_request #2"), ("handle_r… #1", "handle_r… #2")),
        (("First.update #1", "Other.update #1"), ("First.up… #1", "Other.up… #1")),
        (("Inventory.reserve #1", "Inventory.release #1"), ("reserve #1", "release #1")),
        (("update_session_of_alice", "update_session_of_bob"), ("updat…_alice", "updat…of_bob")),
        (("A", "B"), ("A", "B")),
    ],
)
def test_tasks_stay_apart_when_their_names_are_cut(names: tuple[str, str], short: tuple[str, str]) -> None:
    shown = traced(named(samples.FAILING, A=names[0], B=names[1]), critical_pair=())
    assert [row[4:].split("  ")[0].rpartition(" ")[0].strip() for row in shown[1:4:2]] == [short[0], short[1]]


def test_cut_rows_keep_the_first_access_of_each_task_of_the_pair() -> None:
    """What A read at first is why its late write is wrong; the hundred accesses between are not."""
    first = replace(samples.FAILING[0], suspended_at=None)
    noise = tuple(samples.step(i, "C", i, samples.access(9, "read", "5")) for i in range(1, 101))
    late = tuple(replace(step, index=step.index + 100) for step in samples.FAILING[1:])
    pair = (samples.PAIR[0], replace(samples.PAIR[1], step=102))
    shown = traced((first, *noise, *late), critical_pair=(replace(pair[0], task="B", step=101), pair[1]))
    kept = traced((first, *noise, *late), critical_pair=pair)
    assert kept[1].startswith("  ① A 9  current = self.sessions.get")
    assert any(row.startswith("  … ") and row.endswith(" more rows, shown with -vv") for row in kept)
    assert any(row.startswith("  ② B 11") for row in kept)
    assert kept[-1].startswith("    A 11")
    assert any(row.startswith("  ① B 9") for row in shown)
    assert sum(not row.startswith(("  … ", "  failing")) for row in kept) in (20, 21)


def test_cut_rows_without_a_pair_keep_where_each_task_came_in() -> None:
    first = replace(samples.FAILING[0], suspended_at=None)
    noise = tuple(samples.step(i, "C", i, samples.access(9, "read", "5")) for i in range(1, 101))
    late = tuple(replace(step, index=step.index + 100) for step in samples.FAILING[1:])
    shown = traced((first, *noise, *late), critical_pair=())
    assert shown[1].startswith("    A 9 ")
    assert shown[2].startswith("    C 9 ")
    assert "stale" in shown[-1] or "←" in shown[-1]


def test_no_row_is_left_out_for_a_row_that_says_so() -> None:
    noise = tuple(samples.step(i, "C", i, samples.access(9, "read", "5")) for i in range(4, 104))
    for length in range(18, 30):
        shown = traced((*samples.FAILING, *noise[:length]), critical_pair=samples.PAIR)
        assert not any("1 more row," in row for row in shown[:-1])


def test_an_item_that_was_not_there_is_absent_where_that_is_known() -> None:
    """Values of this item are recorded, so a read without one met none. Of an attribute that is not known."""
    steps = (
        samples.step(0, "A", 1, samples.access(9, "read", None)),
        samples.step(1, "B", 1, samples.access(11, "write", "1")),
    )
    assert traced(steps, critical_pair=())[1].endswith("  reads absent")
    unknown = (steps[0], samples.step(1, "B", 1, samples.access(11, "write", None)))
    assert traced(unknown, critical_pair=())[1].endswith("  reads")
    attribute = tuple(replace(s, accesses=tuple(replace(a, name="Store.total") for a in s.accesses)) for s in steps)
    assert traced(attribute, critical_pair=())[1].endswith("  reads")


def test_the_mark_belongs_to_the_access_that_decides() -> None:
    """Two writes of one line and step: object and value tell which of them is meant."""
    other = samples.access(11, "write", "7", name="Store.count")
    both = replace(samples.FAILING[2], accesses=(samples.FAILING[2].accesses[0], other))
    finding = replace(samples.FINDING, trace={"failing": (*samples.FAILING[:2], both, samples.FAILING[3])})
    marked = [row for row in interleavings(finding, SOURCES, 100, 2) if row.startswith("  ②")]
    assert len(marked) == 1
    assert "writes 1" in marked[0]


def test_a_value_goes_before_the_end_of_a_name() -> None:
    """Two columns of 47 cells: with names of 9 instead of 12 cells every value is shown whole."""
    names = {"A": "handle_request #1", "B": "handle_request #2"}
    write = samples.access(11, "write", "'ann'")
    steps = named((samples.step(0, "A", 1, write), samples.step(1, "B", 1, write)), **names)
    left = [row.partition("│")[0].rstrip() for row in traced(steps, steps, critical_pair=())]
    assert left[1:] == [
        "    handl… #1 11 self.sessions[key…  writes 'ann'",
        "    handl… #2 11 self.sessions[key…  writes 'ann'",
    ]
