"""The report's text, line by line, for each outcome."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest

from chaossloth.evidence import AwaitTiming, Boundary, Investigation, Natural
from chaossloth.report.terminal import outcome_words, phase_lines, render
from chaossloth.report.text import layout, make_console, width_of
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
 verdict    BOUNDED: 412 executions (stock 200, latency 112, reorder 100), search not finished,
            about 41 % covered (estimated) · 37 failed
            bounds: labels stock, latency, reorder · 2 calls · 3 seeds · durations drawn per task
            from seeds · cancellation none · bypass ≤ 2 · ≤ 5000 steps · strategies random, pct

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
        word = samples.OUTCOMES[outcome]().verdict.word.upper()
        assert f"{word}: " in text
        assert "bounds: labels stock, latency, reorder · 2 calls · 3 seeds" in text.split(f"{word}: ", 1)[1]


def test_quiet_is_diff_outcome_reproduce() -> None:
    lines = report(samples.repaired(), -1)
    assert lines[0] == "--- a/store.py"
    assert lines[9].startswith(" outcome    repaired: lost update")
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
