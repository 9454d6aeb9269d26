"""Phases 4 and 5 in words: who waits for whom, in which order locks are taken, which steps held the loop."""

from __future__ import annotations

from chaossloth.evidence import DeadlockReport, Investigation, LockOrderEdge, StarvationEntry, WaitEdge
from chaossloth.plural import count
from chaossloth.report.words import place, shown_path, skipped

__all__ = ["deadlock_words", "edge_words", "liveness_lines", "starvation_lines"]

_SHOWN = 4  # of what was left at the end
LONG_STEP_MS = 50.0  # asyncio's debug mode warns from 100 ms on; an interactive service feels half of that


def liveness_lines(inv: Investigation) -> list[str]:
    liveness = inv.liveness
    if liveness is None:
        return [skipped(inv, "no execution was audited")]
    seen = f"in {count(liveness.executions, 'execution')}"
    if liveness.natural_runs:
        seen += f" and {count(liveness.natural_runs, 'natural run')}"
    if liveness.deadlocks:
        explained = [finding.deadlock for finding in inv.findings]  # phase 6 has their edges
        lines = [line for report in liveness.deadlocks for line in _deadlock(report, report not in explained)]
    else:
        lines = [f"no wait-for cycle {seen} · {_lock_order(liveness.locks_seen, bool(liveness.lock_order_cycles))}"]
    for cycle in liveness.lock_order_cycles:
        lines += _lock_cycle(cycle, bool(liveness.deadlocks), inv.verdict.word == "proven")
    if liveness.left_at_end:
        shown = [*liveness.left_at_end[:_SHOWN]]
        more = len(liveness.left_at_end) - _SHOWN
        words = ", ".join([*shown, *([f"{more} more"] if more > 0 else [])])
        lines.append(f"left when the scenario ended, and cut off: {words}")
    return lines


def _lock_order(locks: int, cyclic: bool) -> str:
    if cyclic:
        return "lock order cyclic"
    return f"lock order acyclic ({count(locks, 'lock')})" if locks else "no locks used"


def _deadlock(report: DeadlockReport, edges: bool) -> list[str]:
    lines = [deadlock_words(report), *(map(edge_words, report.cycle) if edges else ())]
    return [*lines, *(f"Coffman: {condition}" for condition in report.coffman)]


def deadlock_words(report: DeadlockReport) -> str:
    kinds = {
        "cycle": "deadlock, wait-for cycle",
        "lost-wakeup": "deadlock, lost wakeup",
        "all-waiting": "deadlock, every task waits",
        "blocked-loop": "deadlock, the loop is blocked",
    }
    return f"{kinds.get(report.kind, report.kind)}: {report.sentence}"


def edge_words(edge: WaitEdge) -> str:
    if edge.holder is None:
        held = "nobody left can provide it"
    else:
        held = f"held by {edge.holder}" + (f" since {place(edge.held_at)}" if edge.held_at else "")
    at = f" at {place(edge.at)}" if edge.at else ""
    return f"{edge.task} waits in {edge.operation} for {edge.resource}{at} · {held}"


def _lock_cycle(cycle: tuple[LockOrderEdge, ...], occurred: bool, proven: bool) -> list[str]:
    names = " → ".join([*(edge.first for edge in cycle), cycle[0].first]) if cycle else ""
    here = "none occurred in these executions"
    if any(edge.how == "thread" for edge in cycle):
        here += ", in which the work of a thread is one step"
    elif proven:  # the tasks of the cycle never meet here, elsewhere they may
        here = "not in this scenario, whose interleavings were all executed, but where these tasks run at the same time"
    possible = "" if occurred else f": a deadlock is possible, {here}"
    lines = [f"lock order cycle {names}{possible}"] if cycle else []
    for edge in cycle:
        first = f" ({place(edge.first_at)})" if edge.first_at else ""
        second = f" ({place(edge.second_at)})" if edge.second_at else ""
        lines.append(f"{edge.task} takes {edge.first}{first}, then {edge.second}{second}")
    return lines


def starvation_lines(inv: Investigation, verbosity: int) -> list[str]:
    entries = [line for entry in inv.starvation for line in _held(entry, verbosity)]
    longest = inv.longest_step_ms
    if any(entry.held_ms is not None for entry in inv.starvation):
        return entries
    if longest is None:
        return entries or [skipped(inv, "no step was timed")]
    if longest > LONG_STEP_MS:
        return [f"the longest step held the loop {longest:.1f} ms", *entries]
    return [f"no step held the loop over {LONG_STEP_MS:.0f} ms (longest {longest:.1f} ms)", *entries]


def _held(entry: StarvationEntry, verbosity: int) -> list[str]:
    place = f"{shown_path(entry.file)}:{entry.line} {entry.function}"
    what = "" if entry.held_ms is None else f" held the loop {entry.held_ms:.1f} ms"
    line = f"{place}{what}: {entry.detail}" if entry.detail else f"{place}{what}"
    return [line, *(entry.stack if verbosity > 0 else ())]
