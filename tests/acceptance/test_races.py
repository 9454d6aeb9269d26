"""Five races, found, explained at both lines, forced, repaired; the printed diff applies and its result is clean."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.support import FORCED, Run, apply_diff, marked, pair_lines, run

Investigate = Callable[..., Run]


@dataclasses.dataclass(frozen=True)
class Expected:
    subject: str
    failure: str
    pattern: str
    intents: tuple[str, ...]
    message: str
    label: str = "stock"
    selector: str = "::scenario"
    options: tuple[str, ...] = ()
    location: str = ""

    def __str__(self) -> str:
        return self.subject + ("" if self.selector else "-class")


EXPECTED = (
    Expected(
        "lost_update",
        "assertion",
        "lost-update",
        ("WRAP_ATOMIC_SECTION",),
        "{'bolts':",
        location="StockRoom.shelf['bolts']",
    ),
    Expected(
        "lost_update",
        "not-serializable",
        "lost-update",
        ("WRAP_ATOMIC_SECTION",),
        "StockRoom.shelf['bolts'] is 1",
        selector="",
        options=("--cls", "StockRoom", "--method", "receive"),
        location="StockRoom.shelf['bolts']",
    ),
    Expected(
        "stampede",
        "exception",
        "check-then-act",
        ("WRAP_ATOMIC_SECTION", "SINGLE_FLIGHT"),
        "PermissionError: voucher was redeemed before",
        location="Visitor.ticket",
    ),
    Expected(
        "double_init",
        "exception",
        "check-then-act",
        ("WRAP_ATOMIC_SECTION", "RECHECK_AFTER_AWAIT", "SINGLE_FLIGHT"),
        "KeyError",
        label="latency",
        location="LazyGarage._garage",
    ),
    Expected(
        "dict_iteration",
        "exception",
        "iteration-invalidated",
        ("SNAPSHOT_ITERATION",),
        "RuntimeError: dictionary changed size during iteration",
        location="Newsletter.readers",
    ),
    Expected(
        "wakeup",
        "assertion",
        "check-then-act",
        ("WHILE_INSTEAD_OF_IF",),
        "2 stoves lit, there is 1",
        location="Kitchen._lit",
    ),
)


@pytest.fixture(params=EXPECTED, ids=str)
def expected(request: pytest.FixtureRequest) -> Expected:
    value: Expected = request.param
    return value


@pytest.fixture
def race(expected: Expected, investigated: Investigate) -> Run:
    return investigated(expected.subject, expected.selector, *expected.options)


def test_outcome_and_exit_code(race: Run) -> None:
    assert race.result["outcome"] == "repaired", race.result["cause"]
    assert race.returncode == 1
    assert race.stderr == ""
    assert race.result["schema"] == "chaossloth/1"


def test_failure_label_and_message(race: Run, expected: Expected) -> None:
    finding = race.finding
    assert (finding["failure"], finding["label"]) == (expected.failure, expected.label)
    assert expected.message in finding["message"]
    assert expected.message in race.words


def test_pattern_and_both_lines(race: Run, expected: Expected) -> None:
    finding = race.finding
    assert finding["pattern"] == expected.pattern
    # In the wakeup, the slot's release is the other half of the race as well as a second taking of it.
    modes = [("read", "write")] + ([("read", "free")] if expected.subject == "wakeup" else [])
    lines = [{(race.path.name, marked(race.path, f"critical: {mode}")) for mode in pair} for pair in modes]
    assert pair_lines(finding) in lines
    first, second = finding["critical_pair"]
    assert first["task"] != second["task"]
    assert {first["access"], second["access"]} & {"write", "update"}
    assert (
        "in this order it fails 20/20; with these two steps the other way round, 20/20 pass" in finding["pair_verified"]
    )


def test_the_object_is_named(race: Run, expected: Expected) -> None:
    assert {access["object"] for access in race.finding["critical_pair"]} == {expected.location}


def test_forced_before(race: Run, expected: Expected) -> None:
    forced = race.finding["forced"]
    assert (forced["controlled"]["runs"], forced["controlled"]["failures"]) == (FORCED, FORCED)
    assert expected.label in ("stock", "latency")
    assert (forced["stock"]["runs"], forced["stock"]["failures"]) == (FORCED, FORCED)


def test_forced_after(race: Run) -> None:
    """Twice on the controlled loop: the failing order imposed on the patched program, and the old choices replayed."""
    after = race.finding["repair"]["forced_after"]
    assert (after["controlled"]["runs"], after["controlled"]["failures"]) == (2 * FORCED, 0)
    assert "0/20 fail after (order followed), 0/20 (choices replayed)" in race.words
    assert (after["stock"]["runs"], after["stock"]["failures"]) == (FORCED, 0)


def test_repair_kind_and_ladder(race: Run, expected: Expected) -> None:
    repair = race.finding["repair"]
    assert repair["intent"]["kind"] in expected.intents
    assert repair["verified"] is True
    assert repair["applied"] is False
    assert all(rung["passed"] is not False for rung in repair["ladder"])
    passed = {rung["rung"] for rung in repair["ladder"] if rung["passed"]}
    assert {"forced replay", "exploration", "no deadlock", "sequential behaviour", "natural"} <= passed
    counts = repair["candidates"]
    assert counts["generated"] >= 1 + sum(number for name, number in counts.items() if name != "generated")


def test_the_verdict_of_the_patch_is_proven_only_where_nothing_is_drawn(race: Run, expected: Expected) -> None:
    verdict = race.finding["repair"]["verdict"]
    drawn = "random." in race.path.read_text()
    assert verdict["word"] in (("bounded",) if drawn else ("bounded", "proven"))
    assert verdict["failures"] == 0
    assert sum(verdict["executions_by_label"].values()) == verdict["executions"] > (100 if drawn else 2)
    assert set(verdict["bounds"]["labels"]) == set(verdict["executions_by_label"]) == {"stock", "latency", "reorder"}


def test_natural_runs(race: Run, expected: Expected) -> None:
    natural = race.result["natural"]
    low, high = natural["ci95"]
    assert natural["runs"] == 8
    assert low <= natural["failures"] / natural["runs"] <= high
    if expected.label == "latency":
        assert natural["failures"] == 0  # FIFO alone never shows it


def test_source_is_left_alone_without_apply(race: Run) -> None:
    assert race.path.read_bytes() == (Path(__file__).parent / "subjects" / race.path.name).read_bytes()


def test_terminal_shows_cause_diff_and_the_command_to_repeat(race: Run) -> None:
    finding = race.finding
    text = race.stdout
    for number, name in enumerate(
        ("sample", "boundary", "force", "liveness", "starvation", "cause", "repair", "verify", "report"), 1
    ):
        assert f"\n {number} {name} " in text
    for line in finding["repair"]["diff"].splitlines():
        assert line.rstrip() in text
    assert "controlled loop, virtual time, 20/20 fail" in race.words
    last = text.splitlines()[-1]
    assert last == f" reproduce  {race.result['reproduce']}"
    assert last.endswith(f"--replay {finding['token']}")
    for access in finding["critical_pair"]:
        source = race.path.read_text(encoding="utf-8").splitlines()[access["line"] - 1].strip()
        assert source[:10] in text
        assert f"{race.path.name}:{access['line']}" in race.words


def test_marked_rows_are_the_critical_accesses(race: Run) -> None:
    """Several accesses may share step and line: the mark belongs to the one that decides, known by its value."""
    assert_marked(race)


def test_marked_rows_among_all_rows(investigated: Investigate) -> None:
    """-v shows the other accesses of the line too: the ticket's write decides, the voucher's beside it does not."""
    assert_marked(investigated("stampede", "::scenario", "--no-repair", "-v"))


def assert_marked(race: Run) -> None:
    for mark, access in zip("①②", race.finding["critical_pair"], strict=True):
        (row,) = [line for line in race.stdout.splitlines() if line.startswith(f"  {mark} ")]
        left = row.partition("│")[0]
        assert f" {access['line']} " in left
        assert f"{access['access']}s {access['value'][:4]}" in left


def test_tasks_of_the_marked_rows_can_be_told_apart(race: Run) -> None:
    rows = [line.partition("│")[0] for line in race.stdout.splitlines() if line[:4] in ("  ① ", "  ② ")]
    first, second = (row[4:].partition(f" {access['line']} ")[0].strip() for row, access in pairs(rows, race))
    assert first != second


def pairs(rows: list[str], race: Run) -> list[tuple[str, dict[str, Any]]]:
    """Rows in the order of the critical pair."""
    return [
        (row, access)
        for mark, access in zip("①②", race.finding["critical_pair"], strict=True)
        for row in rows
        if mark in row
    ]


@pytest.fixture
def patched(race: Run, tmp_path: Path) -> Path:
    copy = tmp_path / race.path.name
    copy.write_bytes(race.path.read_bytes())
    apply_diff(race.finding["repair"]["diff"], tmp_path)
    return copy


def test_diff_applies_and_keeps_every_comment(race: Run, patched: Path) -> None:
    before, after = race.path.read_text(encoding="utf-8"), patched.read_text(encoding="utf-8")
    ast.parse(after)
    assert after != before
    comments = [line.partition("#")[2] for line in before.splitlines() if "#" in line]
    assert [line.partition("#")[2] for line in after.splitlines() if "#" in line] == comments
    assert "sleep" not in "".join(added(race.finding["repair"]["diff"]))


def added(diff: str) -> list[str]:
    """Lines that the diff adds and does not merely indent."""
    removed = {line[1:].strip() for line in diff.splitlines() if line.startswith("-")}
    return [line[1:] for line in diff.splitlines() if line.startswith("+") and line[1:].strip() not in removed]


def test_patched_file_is_found_clean(patched: Path, expected: Expected) -> None:
    again = run(patched.name + expected.selector, "--budget", "6", "--runs", "8", *expected.options, cwd=patched.parent)
    assert_clean(again.result)
    assert again.returncode == 0


def test_explanation_of_a_missing_test_after_the_wake_up(investigated: Investigate) -> None:
    """`if` tested "full" and it is full again when the task acts: what was missed is the test, not a change of it."""
    finding = investigated("wakeup").finding
    assert "no longer holds" not in finding["explanation"]


FIXED = [
    ("lost_update_fixed", "::scenario", ()),
    ("lost_update_fixed", "", ("--cls", "StockRoom", "--method", "receive")),
    ("stampede_fixed", "::scenario", ()),
    ("double_init_fixed", "::scenario", ()),
    ("dict_iteration_fixed", "::scenario", ()),
    ("wakeup_fixed", "::scenario", ()),
    ("lock_order_fixed", "::scenario", ()),
    ("self_deadlock_fixed", "::scenario", ()),
    ("looks_racy", "::scenario", ()),
    ("looks_racy", "", ("--cls", "Launch", "--method", "tick", "--setup", "looks_racy:full")),
]


@pytest.mark.parametrize(("subject", "selector", "options"), FIXED)
def test_twin_is_clean(investigated: Investigate, subject: str, selector: str, options: tuple[str, ...]) -> None:
    twin = investigated(subject, selector, *options)
    assert_clean(twin.result)
    assert twin.returncode == 0
    assert twin.result["natural"]["failures"] == 0
    assert "outcome clean: nothing failed" in twin.words
    assert "not attempted: no failing interleaving" in twin.words


def assert_clean(document: dict[str, Any]) -> None:
    """Clean, and in no stronger words than the executions bear."""
    assert document["outcome"] == "clean", document["cause"]
    assert document["findings"] == []
    verdict = document["verdict"]
    assert verdict["failures"] == 0
    assert sum(verdict["executions_by_label"].values()) == verdict["executions"] > 1
    drawn = verdict["bounds"]["durations"].startswith("drawn")  # random durations are sampled, never exhausted
    assert verdict["word"] in (("bounded",) if drawn else ("bounded", "proven"))
    bounds = verdict["bounds"]
    assert bounds["labels"] == ["stock", "latency", "reorder"]
    assert bounds["bypass_bound"] is not None
    assert bounds["max_steps"] > 0


def test_bounds_are_printed_with_figures(investigated: Investigate) -> None:
    twin = investigated("lost_update_fixed")
    verdict = twin.result["verdict"]
    by_label = ", ".join(f"{label} {count}" for label, count in verdict["executions_by_label"].items())
    assert f"BOUNDED: {verdict['executions']} executions ({by_label}), search not finished" in twin.words
    assert f"{verdict['bounds']['seeds']} seeds" in twin.words
    assert f"bypass ≤ {verdict['bounds']['bypass_bound']}" in twin.words


def test_always_failing_is_not_a_race(investigated: Investigate) -> None:
    control = investigated("always_fails")
    assert control.result["outcome"] == "not-a-race"
    assert control.returncode == 1
    assert control.result["findings"] == []
    assert control.result["natural"]["failures"] == control.result["natural"]["runs"] == 8
    assert control.result["verdict"]["word"] != "proven"
    assert "RuntimeError: no bed left" in control.result["cause"]
    assert f"always_fails.py:{marked(control.path, 'refuses everybody')}" in control.result["cause"]
    assert "\n+++ " not in control.stdout


def test_always_failing_counts_the_same_executions_everywhere(investigated: Investigate) -> None:
    """The sentence that no order is to blame rests on as many orders as the verdict counts."""
    control = investigated("always_fails")
    executions = control.result["verdict"]["executions"]
    assert f"({executions} executions)" in control.result["cause"]
    assert f"no interleaving changes the outcome in {executions} executions" in control.words


def test_strategies_that_are_named_were_used(investigated: Investigate) -> None:
    """A failure in the very first execution, which is stock order: no random or PCT run was made before it."""
    first = investigated("lost_update")
    assert first.finding["executions_to_find"] == first.result["verdict"]["executions"] == 1
    assert not {"random", "PCT"} & set(first.result["verdict"]["bounds"]["strategies"])
