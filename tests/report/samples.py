"""Hand-made investigations, one for each outcome, and the little program that they pretend to be about."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from chaossloth.evidence import (
    Access,
    Bounds,
    CandidateCounts,
    CriticalAccess,
    DeadlockReport,
    Finding,
    Fingerprint,
    Forced,
    Frame,
    GovernorRule,
    Investigation,
    LadderRung,
    Liveness,
    LockOrderEdge,
    Natural,
    Repair,
    RepairIntent,
    StarvationEntry,
    Step,
    Target,
    Verdict,
    WaitEdge,
    wilson_interval,
)

FILE = "store.py"
SOURCE = """\
import asyncio


class Store:
    def __init__(self):
        self.sessions = {}

    async def update(self, key):
        current = self.sessions.get(key, 0)
        await asyncio.sleep(0.001)
        self.sessions[key] = current + 1
"""
SOURCES = {FILE: SOURCE}
DIFF = """\
--- a/store.py
+++ b/store.py
@@ -8,4 +8,4 @@
     async def update(self, key):
-        current = self.sessions.get(key, 0)
         await asyncio.sleep(0.001)
+        current = self.sessions.get(key, 0)
         self.sessions[key] = current + 1
"""
SLOT = "Store.sessions['u1']"

BOUNDS = Bounds(labels=("stock", "latency", "reorder"), calls=2, seeds=3, bypass_bound=2, max_steps=5000)
PROVEN = Verdict(
    word="proven", bounds=replace(BOUNDS, labels=("stock",)), executions=9, executions_by_label={"stock": 9}, distinct=6
)
BOUNDED = Verdict(
    word="bounded",
    bounds=replace(BOUNDS, strategies=("random", "pct")),
    executions=412,
    executions_by_label={"stock": 200, "latency": 112, "reorder": 100},
    coverage=0.41,
)
FINGERPRINT = Fingerprint("abc123", "CPython 3.12.1", "linux x86_64", "0" * 64, "1" * 64, "2" * 64)


def frame(line: int, file: str = FILE) -> Frame:
    return Frame(file, line, "Store.update")


def access(line: int, mode: Any, value: str | None, name: str = SLOT, file: str = FILE) -> Access:
    return Access(location=f"loc:{name}", name=name, mode=mode, stack=(frame(line, file),), value=value)


def step(index: int, task: str, ordinal: int, *accesses: Access, at: int | None = None, file: str = FILE) -> Step:
    suspended = None if at is None else frame(at, file)
    return Step(index, f"p{task}", task, ordinal, -1, "start" if ordinal == 1 else "timer", accesses, suspended)


FAILING = (
    step(0, "A", 1, access(9, "read", "0"), at=10),
    step(1, "B", 1, access(9, "read", "0"), at=10),
    step(2, "B", 2, access(11, "write", "1")),
    step(3, "A", 2, access(11, "write", "1")),
)
PASSING = (
    step(0, "A", 1, access(9, "read", "0"), at=10),
    step(1, "A", 2, access(11, "write", "1")),
    step(2, "B", 1, access(9, "read", "1"), at=10),
    step(3, "B", 2, access(11, "write", "2")),
)
PAIR = (
    CriticalAccess(FILE, 9, "A", "read", SLOT, "Store.update", "0", step=0),
    CriticalAccess(FILE, 11, "B", "write", SLOT, "Store.update", "1", step=2),
)
LADDER = (
    LadderRung("forced replay", True, "fails 20/20 before, 0/20 after"),
    LadderRung("exploration", True, "9 executions, 0 failed"),
    LadderRung("sequential behaviour", True, "2 of 2 orders equal"),
    LadderRung("natural cycles", True, "0/25 fail"),
    LadderRung("own tests", None, "the file has none"),
)
REPAIR = Repair(
    intent=RepairIntent("MOVE_AWAIT_OUT", "Store.update", (9, 11), "the read can move behind the await"),
    diff=DIFF,
    candidates=CandidateCounts(generated=14, refuted_by_replay=11, refuted_by_exploration=2),
    ladder=LADDER,
    verified=True,
    verdict=PROVEN,
    governor=(GovernorRule("no-sleep", "shortcut", True, ""), GovernorRule("parses", "safety", True, "")),
    tried=("WRAP_ATOMIC_SECTION 11-11: still fails on replay",),
)
FINDING = Finding(
    failure="not-serializable",
    label="stock",
    message="result {'u1': 1}, sequential orders give {'u1': 2}",
    token="2k:A3-Bx",
    deviations=1,
    bypass=0,
    executions_to_find=2,
    pattern="lost-update",
    lateness_us=236.4,
    critical_pair=PAIR,
    pair_verified="this order fails 20/20, the other passes 20/20",
    trace={"failing": FAILING, "passing": PASSING},
    forced={"controlled": Forced(20, 20), "stock": Forced(20, 20, "one await delayed")},
)

LOCKS = (
    WaitEdge("A", "Lock b", "acquire", frame(20), "B", frame(30)),
    WaitEdge("B", "Lock a", "acquire", frame(31), "A", frame(19)),
)
DEADLOCK = DeadlockReport(
    "cycle", LOCKS, "A and B each wait for the lock that the other holds", ("mutual exclusion: asyncio.Lock",)
)
LOCK_CYCLE = (
    LockOrderEdge("a", "b", "A", frame(19), frame(20)),
    LockOrderEdge("b", "a", "B", frame(30), frame(31)),
)


def investigation(**changes: Any) -> Investigation:
    """A clean one, `changes` applied."""
    base = Investigation(
        version="0.1.0",
        command=("chaossloth", FILE, "--cls", "Store", "--method", "update"),
        target=Target(FILE, "Store", ("update",), None, 2, ("('u1',)", "('u1',)"), "as asked on the command line"),
        fingerprint=FINGERPRINT,
        outcome="clean",
        cause="nothing failed",
        verdict=BOUNDED,
        natural=Natural(25, 0, wilson_interval(0, 25), 0.031),
        liveness=Liveness(executions=412, locks_seen=2),
        longest_step_ms=0.3,
        timings_s={"sample": 0.12, "force": 1.5},
        reproduce="chaossloth store.py --cls Store --method update",
    )
    return replace(base, **changes)


def found(**changes: Any) -> Investigation:
    verdict = replace(BOUNDED, failures=37)
    natural = Natural(25, 17, wilson_interval(17, 25), 0.031, ("AssertionError: lost",))
    reproduce = "chaossloth store.py --cls Store --method update --replay 2k:A3-Bx"
    base = investigation(
        outcome="found", cause="", verdict=verdict, natural=natural, findings=(FINDING,), reproduce=reproduce
    )
    return replace(base, **changes)


def repaired(**changes: Any) -> Investigation:
    return found(**{"outcome": "repaired", "findings": (replace(FINDING, repair=REPAIR),), **changes})


def no_repair(**changes: Any) -> Investigation:
    refused = replace(
        REPAIR,
        intent=RepairIntent("NO_REPAIR", "Store.update", (9, 11), "no candidate survived"),
        diff="",
        ladder=(),
        verified=False,
        verdict=None,
    )
    finding = replace(FINDING, repair=refused, no_repair_reason="each of 13 candidates still fails on replay")
    return found(**{"outcome": "no-repair", "findings": (finding,), **changes})


def not_a_race(**changes: Any) -> Investigation:
    natural = Natural(25, 25, wilson_interval(25, 25), None, ("AssertionError: 1 != 2",))
    return investigation(**{"outcome": "not-a-race", "cause": "it fails in every order", "natural": natural, **changes})


def inconclusive(**changes: Any) -> Investigation:
    verdict = Verdict("inconclusive", BOUNDS, 3, {"stock": 3})
    cause = "a step at store.py:9 never ended (10 s)"
    natural = Natural(2, 0, wilson_interval(0, 2), None, aborted="a step never ended")
    changes = {"outcome": "inconclusive", "cause": cause, "verdict": verdict, "natural": natural, **changes}
    return investigation(**{"liveness": None, "longest_step_ms": None, **changes})


def error(**changes: Any) -> Investigation:
    verdict = Verdict("inconclusive", BOUNDS, 0, {})
    values = {"natural": None, "liveness": None, "longest_step_ms": None, "timings_s": {}, "reproduce": ""}
    return investigation(
        **{**values, "outcome": "error", "cause": "the worker closed its channel", "verdict": verdict, **changes}
    )


def deadlock(**changes: Any) -> Investigation:
    finding = replace(
        FINDING,
        failure="deadlock",
        message="",
        pattern="lock-order",
        critical_pair=(),
        pair_verified=None,
        trace={},
        deadlock=DEADLOCK,
        label="reorder",
        bypass=1,
        lateness_us=None,
        forced={"controlled": Forced(20, 20), "stock": None},
        no_repair_reason="no operator applies to this pattern",
    )
    liveness = Liveness(412, (DEADLOCK,), (LOCK_CYCLE,), 2)
    return found(**{"outcome": "no-repair", "findings": (finding,), "liveness": liveness, **changes})


def starving(**changes: Any) -> Investigation:
    entries = (
        StarvationEntry(FILE, 12, "Store.dump", 120.0, "time.sleep", ("store.py:12 Store.dump",)),
        StarvationEntry(FILE, 14, "Store.load", None, "blocking call open() in a coroutine"),
    )
    return investigation(**{"starvation": entries, "longest_step_ms": 120.0, **changes})


OUTCOMES = {
    "clean": investigation,
    "found": found,
    "repaired": repaired,
    "no-repair": no_repair,
    "not-a-race": not_a_race,
    "inconclusive": inconclusive,
    "error": error,
}
