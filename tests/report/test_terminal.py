"""The report's text, line by line, for each outcome."""

from __future__ import annotations

import io
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chaossloth.evidence import AwaitTiming, Boundary, Frame, Investigation, Natural, wilson_interval
from chaossloth.report.terminal import outcome_words, phase_lines, render
from chaossloth.report.text import layout, make_console, width_of
from chaossloth.report.words import bounds_words, verdict_words
from tests.report import samples


def report(investigation: Investigation, verbosity: int = 0, width: int = 100, **settings: Any) -> list[str]:
    stream = io.StringIO()
    render(investigation, make_console(stream, width), verbosity, sources=samples.SOURCES, **settings)
    return stream.getvalue().splitlines()


def phase(investigation: Investigation, number: int, verbosity: int = 0, width: int = 100) -> list[str]:
    return phase_lines(investigation, verbosity=verbosity, width=width, sources=samples.SOURCES)[number]


def test_repaired_in_full() -> None:
    assert (
        report(samples.repaired(), written=["JSON to x.json"])
        == """\
chaossloth 0.1.0 · store.py · Store.update × 2
as asked on the command line
called with ('u1',) each

 1 sample      17/25 natural runs fail (68 %, 95 % CI 48–83) · stock loop · overhead 3.1 %
               AssertionError: lost
 2 boundary    not attempted: no await was timed
 3 force       found in 2 executions · 1 deviation from stock order · label stock, +236.4 µs
               controlled loop 20/20 fail · stock loop, one await delayed, 20/20 fail
               not serializable: result {'u1': 1}, sequential orders give {'u1': 2}
 4 liveness    no wait-for cycle in 412 executions · lock order acyclic (2 locks)
 5 starvation  no step held the loop over 50 ms (longest 0.3 ms)
 6 cause       lost update of Store.sessions['u1']
  failing                                         │ nearest passing
  ① A 9  current = self.sessions.get…  reads 0    │ ① A 9  current = self.sessions.get…  reads 0
    A 10 await asyncio.sleep(0.001)    suspended  │   A 11 self.sessions[key] = curren…  writes 1
    B 9  current = self.sessions.get…  reads 0    │   B 9  current = self.sessions.get…  reads 1
  ② B 11 self.sessions[key] = curren…  writes 1   │ ② B 11 self.sessions[key] = curren…  writes 2
    A 11 self.sessions[key] = curren…  writes 1 ← │
               A's write at line 11 rests on its read at line 9, made before B's write at line 11
               this order fails 20/20, the other passes 20/20
 7 repair      MOVE_AWAIT_OUT in Store.update, lines 9–11 · no lock added · 14 candidates: 11
               refuted by one replay, 2 by exploration
 8 verify      governor 2/2
               passed         forced replay: fails 20/20 before, 0/20 after
               passed         exploration: 9 executions, 0 failed
               passed         sequential behaviour: 2 of 2 orders equal
               passed         natural cycles: 0/25 fail
               not attempted  own tests: the file has none
               patched: PROVEN: all 6 inequivalent interleavings within the bounds executed · 9
               executions (stock 9) · 0 failed
               bounds: labels stock · 2 calls · 3 seeds · durations drawn per task from seeds ·
               cancellation none · bypass ≤ 2 · ≤ 5000 steps
 9 report      source unchanged, --apply writes the patch · JSON to x.json

--- a/store.py
+++ b/store.py
@@ -8,4 +8,4 @@
     async def update(self, key):
-        current = self.sessions.get(key, 0)
         await asyncio.sleep(0.001)
+        current = self.sessions.get(key, 0)
         self.sessions[key] = current + 1

 outcome    repaired: lost update of Store.sessions['u1'] · not serializable: result {'u1': 1},
            sequential orders give {'u1': 2} · patch verified, not written (--apply writes it)
 verdict    patched: PROVEN: all 6 inequivalent interleavings within the bounds executed · 9
            executions (stock 9) · 0 failed
            bounds: labels stock · 2 calls · 3 seeds · durations drawn per task from seeds ·
            cancellation none · bypass ≤ 2 · ≤ 5000 steps
            original: failed after 412 executions (stock 200, latency 112, reorder 100)

 reproduce  chaossloth store.py --cls Store --method update --replay 2k:A3-Bx""".splitlines()
    )


@pytest.mark.parametrize(
    ("outcome", "sentence"),
    [
        ("clean", "clean: nothing failed"),
        (
            "found",
            "found: lost update of Store.sessions['u1'] · not serializable: "
            "result {'u1': 1}, sequential orders give {'u1': 2}",
        ),
        (
            "no-repair",
            "no repair: lost update of Store.sessions['u1'] · not serializable: result {'u1': 1}, sequential orders "
            "give {'u1': 2} · each of 13 candidates still fails on replay",
        ),
        ("not-a-race", "not a race: it fails in every order"),
        ("inconclusive", "inconclusive: a step at store.py:9 never ended (10 s) · nothing is claimed"),
        ("error", "error: the worker closed its channel"),
    ],
)
def test_outcome_sentence(outcome: str, sentence: str) -> None:
    assert outcome_words(samples.OUTCOMES[outcome]()) == sentence


def test_interrupted_is_said_first_and_in_the_phases() -> None:
    investigation = samples.investigation(interrupted=True, natural=None, outcome="inconclusive", cause="Ctrl-C")
    assert outcome_words(investigation) == (
        "interrupted, this is what is known so far · inconclusive: Ctrl-C · nothing is claimed"
    )
    assert phase(investigation, 1) == ["not attempted: interrupted (no natural runs)"]


@pytest.mark.parametrize("outcome", sorted(samples.OUTCOMES))
def test_every_phase_says_something(outcome: str) -> None:
    lines = phase_lines(samples.OUTCOMES[outcome](), width=100)
    assert sorted(lines) == list(range(10))
    assert all(body and all(body) for body in lines.values())


@pytest.mark.parametrize("outcome", sorted(samples.OUTCOMES))
def test_verdict_is_never_without_its_bounds(outcome: str) -> None:
    for verbosity in (-1, 0):
        text = " ".join(" ".join(report(samples.OUTCOMES[outcome](), verbosity)).split())
        verdict = samples.PROVEN if outcome == "repaired" else samples.OUTCOMES[outcome]().verdict
        assert f"{verdict.word.upper()}: " in text
        labels = ", ".join(verdict.bounds.labels)
        assert f"bounds: labels {labels} · 2 calls · 3 seeds" in text.split(f"{verdict.word.upper()}: ", 1)[1]


def labelled(lines: list[str], label: str) -> str:
    """The text under a label, its lines joined."""
    start = next(i for i, line in enumerate(lines) if line.startswith(f" {label:<10} "))
    more = itertools.takewhile(lambda line: line.startswith(" " * 12), lines[start + 1 :])
    return " ".join([lines[start][12:], *(line.strip() for line in more)])


@pytest.mark.parametrize("verbosity", [-1, 0])
def test_after_a_repair_the_verdict_is_that_of_the_patched_program(verbosity: int) -> None:
    original = replace(samples.BOUNDED, executions=1, executions_by_label={"stock": 1}, failures=1)
    text = labelled(report(samples.repaired(verdict=original), verbosity), "verdict")
    assert text.startswith("patched: PROVEN: all 6 inequivalent interleavings within the bounds executed · 9 exec")
    assert text.endswith("≤ 5000 steps original: failed after 1 execution (stock 1)")
    assert "search not finished" not in text


@pytest.mark.parametrize(
    ("executions", "failures", "words"),
    [
        (15, 1, "BOUNDED: failure found after 15 executions (stock 15), about 41 % covered (estimated) · 1 failed"),
        (1, 1, "BOUNDED: failure found after 1 execution (stock 1), about 41 % covered (estimated) · 1 failed"),
        (21, 21, "BOUNDED: each of 21 executions (stock 21) fails, about 41 % covered (estimated) · 21 failed"),
        (9, 0, "BOUNDED: 9 executions (stock 9), search not finished, about 41 % covered (estimated) · 0 failed"),
    ],
)
def test_verdict_of_a_search_that_met_a_failure(executions: int, failures: int, words: str) -> None:
    verdict = replace(
        samples.BOUNDED, executions=executions, executions_by_label={"stock": executions}, failures=failures
    )
    assert verdict_words(verdict) == words
    for verbosity in (-1, 0):
        assert labelled(report(samples.found(verdict=verdict), verbosity), "verdict").startswith(f"{words} bounds: ")


def test_the_only_interleaving() -> None:
    assert verdict_words(replace(samples.PROVEN, distinct=1)).startswith(
        "PROVEN: the only interleaving within the bounds executed · 9 executions"
    )


def test_strategies_are_named_only_where_the_verdict_names_them() -> None:
    assert "strategies" not in bounds_words(replace(samples.BOUNDS, strategies=()))
    assert bounds_words(replace(samples.BOUNDS, strategies=("stock order",))).endswith(" · strategies stock order")


@pytest.mark.parametrize(
    ("overhead", "words"),
    [
        (None, "overhead not measurable"),
        (-0.09, "overhead none measurable"),
        (-0.0, "overhead none measurable"),
        (0.031, "overhead 3.1 %"),
    ],
)
def test_overhead(overhead: float | None, words: str) -> None:
    natural = Natural(25, 0, wilson_interval(0, 25), overhead)
    assert phase(samples.investigation(natural=natural), 1)[0].endswith(f" · stock loop · {words}")


LINE_11 = Frame("store.py", 11, "Store.update")


def bare(failure: Any, message: str, where: Frame | None = LINE_11) -> Investigation:
    finding = replace(samples.FINDING, failure=failure, message=message, where=where)
    return samples.found(findings=(finding,))


@pytest.mark.parametrize(
    ("failure", "message", "words"),
    [
        ("assertion", "", "assertion at store.py:11: self.sessions[key] = current + 1"),
        ("assertion", "AssertionError", "assertion at store.py:11: self.sessions[key] = current + 1"),
        ("assertion", "lost", "assertion: lost"),
        ("exception", "StoreFull", "exception StoreFull at store.py:11: self.sessions[key] = current + 1"),
        ("exception", "StoreFull: ", "exception StoreFull at store.py:11: self.sessions[key] = current + 1"),
        ("exception", "KeyError: 'u1'", "exception: KeyError: 'u1'"),
    ],
)
def test_an_exception_without_a_message_is_told_by_its_line(failure: Any, message: str, words: str) -> None:
    investigation = bare(failure, message)
    assert phase(investigation, 3)[2] == words
    assert labelled(report(investigation), "outcome") == f"found: lost update of Store.sessions['u1'] · {words}"
    assert labelled(report(investigation, -1), "outcome").endswith(words)


def test_an_unknown_place_leaves_the_name() -> None:
    assert phase(bare("assertion", "AssertionError", None), 3)[2] == "assertion: AssertionError"
    beyond = bare("assertion", "", Frame("store.py", 99, "Store.update"))
    assert phase(beyond, 3)[2] == "assertion at store.py:99"


def test_a_patched_file_is_not_quoted(tmp_path: Path) -> None:
    """Once the patch is written the line on the disk may be another one than the line that failed."""
    path = tmp_path / "late.py"
    path.write_text("patched\n", encoding="utf-8")
    finding = replace(bare("assertion", "", Frame(str(path), 1, "f")).findings[0], repair=samples.REPAIR)
    written = replace(finding, repair=replace(samples.REPAIR, applied=True))
    assert "late.py:1: patched" in "".join(report(samples.repaired(findings=(finding,)), -1, 300))
    text = "".join(report(samples.repaired(findings=(written,)), -1, 300))
    assert "late.py:1 · patch verified, written" in text
    assert "late.py:1: patched" not in text


REPLAY = ("chaossloth", "store.py", "--cls", "Store", "--method", "update", "--replay", "2k:A3-Bx")
NOTHING_ELSE: dict[str, Any] = {"command": REPLAY, "natural": None, "liveness": None, "longest_step_ms": None}


def numbers(lines: list[str]) -> list[int]:
    return [int(line[1]) for line in lines if line[:1] == " " and line[1:2].isdigit() and line[2:3] == " "]


def test_replay_shows_the_phases_that_were_run() -> None:
    verdict = replace(samples.BOUNDED, executions=20, executions_by_label={"stock": 20}, failures=20, coverage=None)
    investigation = samples.found(verdict=verdict, **NOTHING_ELSE)
    lines = report(investigation)
    assert numbers(lines) == [3, 6, 9]
    assert numbers(report(investigation, already={0, 3, 6})) == [9]
    assert not any("not attempted" in line or "candidate" in line for line in lines)
    assert " 3 force       2k:A3-Bx replayed · 1 deviation from stock order · label stock, +236.4 µs" in lines
    assert labelled(lines, "verdict").startswith("BOUNDED: each of 20 executions (stock 20) fails · 20 failed")


def test_replay_shows_what_else_it_has_evidence_of() -> None:
    investigation = samples.repaired(**{**NOTHING_ELSE, "liveness": samples.Liveness(1), "longest_step_ms": 0.1})
    assert numbers(report(investigation)) == [3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"outcome": "clean", "cause": "the interleaving passes"}, "the replayed interleaving passes"),
        ({"outcome": "inconclusive", "cause": ""}, "the replayed interleaving passes"),  # seen live, not yet settled
        ({"outcome": "inconclusive", "cause": "memory"}, "the replay did not end: memory"),
        ({"outcome": "not-a-race"}, "the replayed interleaving fails, but not because of its order"),
        ({"outcome": "inconclusive", "interrupted": True}, "not attempted: interrupted (the replay did not end)"),
    ],
)
def test_replay_without_a_finding(changes: dict[str, Any], words: str) -> None:
    investigation = samples.investigation(**{**NOTHING_ELSE, **changes})
    assert phase(investigation, 3) == [words]
    if changes["outcome"] == "clean":
        assert numbers(report(investigation)) == [3, 9]
        assert outcome_words(investigation) == "clean: the interleaving passes"


def test_no_repair_without_a_candidate_refuses_none() -> None:
    """Only what was made can have been refused."""
    assert outcome_words(samples.found(outcome="no-repair")).endswith(" · no candidate was made")
    refused = replace(samples.no_repair().findings[0], no_repair_reason=None)
    assert outcome_words(samples.no_repair(findings=(refused,))).endswith(" · every candidate was refused")


def test_quiet_is_diff_outcome_verdict_reproduce() -> None:
    lines = report(samples.repaired(), -1)
    assert lines[0] == "--- a/store.py"
    assert lines[9].startswith(" outcome    repaired: lost update")
    assert [line[:11].strip() for line in lines[9:] if line[:11].strip()] == ["outcome", "verdict", "reproduce"]
    assert not any("bounds" in line for line in lines[9 : lines.index(next(x for x in lines if "verdict  " in x))])
    assert lines[-1] == " reproduce  chaossloth store.py --cls Store --method update --replay 2k:A3-Bx"
    assert not any(line.startswith(" 1 sample") for line in lines)


def test_verbose_adds_refused_candidates_and_timings() -> None:
    plain, verbose = report(samples.repaired()), report(samples.repaired(), 1)
    refused = "               WRAP_ATOMIC_SECTION 11-11: still fails on replay"
    assert refused not in plain
    assert refused in verbose
    assert " timings    sample 0.12 s · force 1.50 s" in verbose


def test_phases_already_printed_are_not_repeated() -> None:
    lines = report(samples.repaired(), already=range(9))
    assert lines[0].startswith(" 9 report")


def test_no_repair_says_why_and_what_was_tried() -> None:
    assert phase(samples.no_repair(), 7, verbosity=1) == [
        "no repair: each of 13 candidates still fails on replay",
        "14 candidates: 11 refuted by one replay, 2 by exploration",
        "no candidate survived",
        "WRAP_ATOMIC_SECTION 11-11: still fails on replay",
    ]
    assert phase(samples.no_repair(), 8) == ["not attempted: no patch to verify"]
    assert not any(line.startswith("---") for line in report(samples.no_repair()))


def test_repair_not_asked_for() -> None:
    command = ("chaossloth", "store.py", "--no-repair")
    assert phase(samples.found(command=command), 7) == ["not attempted: --no-repair"]
    assert phase(samples.found(), 7) == ["not attempted: no candidate was generated"]


def test_unverified_repair_is_marked_and_its_diff_withheld() -> None:
    failing = replace(samples.LADDER[1], passed=False, detail="1 of 9 executions failed")
    repair = replace(samples.REPAIR, verified=False, ladder=(failing,), verdict=None)
    investigation = samples.no_repair(findings=(replace(samples.FINDING, repair=repair),))
    assert "not verified: a rung below was not passed" in phase(investigation, 7)
    assert phase(investigation, 8) == ["governor 2/2", "FAILED         exploration: 1 of 9 executions failed"]
    assert "--- a/store.py" not in report(investigation)


def test_a_lock_is_read_off_the_diff() -> None:
    diff = samples.DIFF + "+        async with self._lock:\n"
    investigation = samples.repaired(findings=(replace(samples.FINDING, repair=replace(samples.REPAIR, diff=diff)),))
    assert "adds a lock" in phase(investigation, 7)[0]
    assert "no lock added" in phase(samples.repaired(), 7)[0]


def test_applied_patch() -> None:
    finding = replace(samples.FINDING, repair=replace(samples.REPAIR, applied=True))
    investigation = samples.repaired(findings=(finding,))
    assert phase(investigation, 9) == ["patch written to store.py"]
    assert outcome_words(investigation).endswith("patch verified, written")


def test_deadlock() -> None:
    investigation = samples.deadlock()
    edges = [
        "A waits in acquire for Lock b at store.py:20 · held by B since store.py:30",
        "B waits in acquire for Lock a at store.py:31 · held by A since store.py:19",
    ]
    words = "deadlock, wait-for cycle: A and B each wait for the lock that the other holds"
    assert phase(investigation, 6) == [words, *edges]
    assert phase(investigation, 4) == [
        words,
        "Coffman: mutual exclusion: asyncio.Lock",
        "lock order cycle a → b → a",
        "A takes a (store.py:19), then b (store.py:20)",
        "B takes b (store.py:30), then a (store.py:31)",
    ]
    forced = "controlled loop 20/20 fail · stock loop not attempted: FIFO forbids this order"
    assert phase(investigation, 3)[1] == forced


def test_self_deadlock_is_told_apart() -> None:
    edge = replace(samples.LOCKS[0], holder="A")
    report_ = replace(samples.DEADLOCK, kind="self-deadlock", cycle=(edge,), sentence="A waits for its own lock")
    finding = replace(samples.deadlock().findings[0], deadlock=report_)
    assert phase(samples.deadlock(findings=(finding,)), 6)[0] == "self-deadlock: A waits for its own lock"


def test_possible_deadlock_is_no_deadlock() -> None:
    liveness = samples.Liveness(9, (), (samples.LOCK_CYCLE,), 2)
    assert phase(samples.investigation(liveness=liveness), 4)[:2] == [
        "no wait-for cycle in 9 executions · lock order cyclic",
        "lock order cycle a → b → a: a deadlock is possible, none occurred in these executions",
    ]


def test_starvation() -> None:
    assert phase(samples.starving(), 5, verbosity=1) == [
        "store.py:12 Store.dump held the loop 120.0 ms: time.sleep",
        "store.py:12 Store.dump",
        "store.py:14 Store.load: blocking call open() in a coroutine",
    ]
    assert phase(samples.investigation(longest_step_ms=70.0), 5) == ["the longest step held the loop 70.0 ms"]


def test_boundary() -> None:
    boundary = Boundary("line 41", "exact grid posterior", 240.0, (180.0, 310.0), 0.71, 1236.4, "network: 250 µs")
    assert phase(samples.found(boundary=boundary), 2) == [
        "fails once line 41 takes 240 µs longer than its peer · P(threshold | D) 0.71 · 90 % CI 180 µs – 310 µs · "
        "measured 1.236 ms · exact grid posterior",
        "network: 250 µs",
    ]


def test_natural_sampling_cut_short() -> None:
    natural = Natural(0, 0, (0.0, 1.0), None, aborted="the first run never ended")
    assert phase(samples.investigation(natural=natural), 1) == ["no natural run finished: the first run never ended"]


def test_several_findings_are_numbered() -> None:
    other = replace(samples.FINDING, failure="exception", message="KeyError: 'u1'")
    lines = phase(samples.found(findings=(samples.FINDING, other)), 3)
    assert lines[0].startswith("finding 1 of 2: found in 2 executions")
    assert lines[3].startswith("finding 2 of 2: found in 2 executions")


def test_discovered_test_and_arguments_in_the_header() -> None:
    target = samples.Target("store.py", None, (), "scenario", 1, (), "the only async function of the file")
    assert phase(samples.investigation(target=target), 0) == [
        "chaossloth 0.1.0 · store.py · scenario",
        "the only async function of the file",
    ]
    mixed = samples.Target("store.py", "Store", ("put", "drop"), None, 2, ("(1,)", "(2,)"))
    assert phase(samples.investigation(target=mixed), 0) == [
        "chaossloth 0.1.0 · store.py · Store.put + Store.drop × 2",
        "called with (1,), (2,)",
    ]
    plain = samples.Target("store.py", "Store", ("put",), None, 2, ("()", "()"))
    assert phase(samples.investigation(target=plain), 0)[1] == "called without arguments"


@pytest.mark.parametrize("width", [40, 59, 60, 87, 88, 100, 200])
def test_no_line_but_those_to_copy_exceeds_the_width(width: int) -> None:
    for make in (samples.repaired, samples.deadlock, samples.inconclusive):
        lines = report(make(), 1, width)
        free = [line for line in lines if not line.startswith((" reproduce", "+", "-", "@", "    "))]
        assert max(map(width_of, free)) <= width


def test_narrow_terminals_stack_the_interleavings() -> None:
    rows = phase(samples.repaired(), 6, width=87)
    assert rows[1:4] == [
        "  failing",
        "  ① A 9  current = self.sessions.get(key, 0)  reads 0",
        "    A 10 await asyncio.sleep(0.001)           suspended",
    ]
    assert "    A 11 self.sessions[key] = current + 1     writes 1 over 1 ← stale since 9" in rows
    assert "  nearest passing" in rows


def test_layout_of_a_phase_without_lines() -> None:
    assert layout(4, "liveness", [], 100) == [" 4 liveness"]


def test_telemetry_without_an_inferred_boundary_says_what_it_shows_and_what_was_not_done() -> None:
    timed = (
        AwaitTiming("store.py:12", 25, 900.0, 1500.0, 700.0),
        AwaitTiming("store.py:9", 25, 300.0, 310.0, 290.0),
    )
    inv = replace(samples.repaired(), boundary=None, telemetry=timed)
    (line,) = phase_lines(inv, width=400)[2]
    assert line.startswith("2 await sites timed · median suspension at store.py:12 in failing runs +800 µs")
    assert line.endswith("no delay threshold inferred in this version")


def test_telemetry_of_runs_that_all_end_alike_shows_no_difference() -> None:
    inv = replace(samples.repaired(), boundary=None, telemetry=(AwaitTiming("store.py:12", 25, 900.0, 900.0, None),))
    assert phase_lines(inv, width=400)[2] == [
        "1 await site timed · no delay threshold inferred: the natural runs all end alike"
    ]
