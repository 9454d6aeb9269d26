"""Which accesses an interleaving shows, and what it says of them."""

from __future__ import annotations

from dataclasses import replace

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
