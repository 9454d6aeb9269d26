"""The pattern behind a critical pair, in the field's words, and the evidence that a repair needs.

What decides is the order of the accesses that the racing tasks made to the contested location in the failing run. A
task whose own accesses T1, T2 lie in different steps, with another task's access U between them, was interrupted in
the middle of something. The unserializable triples (T1 U T2) are the four of Lu, Tucek, Qin, Zhou, "AVIO" (ASPLOS
2006):

    R W R  stale read or broken check     W W R  own write lost before it was read
    R W W  lost update, check-then-act    W R W  intermediate state seen

Whether the first read of `R W *` is a check is asked of the source: it stands in the test of an `if` or `while`, or in
an assignment whose name is tested before the second access. The names are conservative: where neither the accesses nor
the source say more, the answer is `order-violation` (no interrupted task) or `atomicity-violation`.

A write is *stale* only when its task did not read the location again in the same step before it: `self.n += 1` reads
and writes in one step, overwrites nothing unseen and is never a lost update, whatever its task read earlier.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from chaossloth.diagnose.lines import Lines
from chaossloth.diagnose.transitions import Touch, Triple, acts, by_location, interrupted, touches_at
from chaossloth.evidence import CriticalAccess, DeadlockReport, Frame, Trace

__all__ = ["PATTERNS", "Diagnosis", "Touch", "classify", "collected_words", "diagnose", "touches_of"]

PATTERNS = (
    "lost-update",
    "check-then-act",
    "stale-read",
    "iteration-invalidated",
    "use-before-init",
    "lost-wakeup",
    "deadlock-lock-order",
    "self-deadlock",
    "blocked-loop",
    "atomicity-violation",
    "order-violation",
    "livelock",
    "leak",
    "test-expectation",
    "unclassified",
)
_CHANGED = re.compile(r"(changed size|changed|mutated) during iteration")
_ABSENT = frozenset({"AttributeError", "KeyError", "NameError", "UnboundLocalError", "TypeError", "IndexError"})
_DEADLOCKS = {
    "self-deadlock": ("self-deadlock", "a task waits for something that only itself can provide"),
    "cycle": ("deadlock-lock-order", "the tasks hold what the others wait for"),
    "lost-wakeup": ("lost-wakeup", "the wake-up came before the wait, and no other will come"),
    "blocked-loop": ("blocked-loop", "a step waits for something of `threading` and stops every other task"),
    "all-waiting": ("lost-wakeup", "all tasks wait and nothing is left that could wake them"),
}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What repair starts from: the named pattern, the critical pair (failing order), all accesses of the racing tasks
    to the contested location in the failing run, and the texts of the subject's own files {absolute path: text}."""

    pattern: str
    pair: tuple[CriticalAccess, ...]
    touches: tuple[Touch, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    explanation: str = ""


def diagnose(
    pair: Sequence[CriticalAccess], trace: Trace, sources: Mapping[str, str], deadlock: DeadlockReport | None = None
) -> Diagnosis:
    """Classify and keep the evidence. Without a pair (no single reversal flipped the outcome) the best interrupted
    transition of the run stands in for it; a deadlock has none."""
    pattern, explanation = classify(pair, trace, sources, deadlock)
    if len(pair) < 2 and not _stuck(trace, deadlock):
        lines = Lines(sources)
        triple = _substitute(trace, lines) or _substitute(trace, None)
        pair = _critical(triple[:2] if triple else _absent(trace))
    return Diagnosis(pattern, tuple(pair), touches_of(pair, trace), dict(sources), explanation)


def _stuck(trace: Trace, deadlock: DeadlockReport | None) -> bool:
    return deadlock is not None or trace.outcome.failure in ("deadlock", "livelock")


def touches_of(pair: Sequence[CriticalAccess], trace: Trace) -> tuple[Touch, ...]:
    """Every access in the run to a location of the pair; the pair itself where the trace holds none of it."""
    locations = {
        access.location
        for critical in pair
        for step in trace.steps
        for access in step.accesses
        if access.name == critical.object
        and access.mode == critical.access
        and critical.step in (-1, step.index)
        and (not access.stack or access.stack[0].line == critical.line)
    }
    found = touches_at(trace, locations)
    if found:
        return tuple(found)
    return tuple(
        Touch(c.task, c.task, c.step, order, c.access, c.object, c.value, _stack(c)) for order, c in enumerate(pair)
    )


def _substitute(trace: Trace, lines: Lines | None) -> Triple | None:
    """The best T1 U T2 over all locations of the run. lines: only what can be named from the run itself, a stale write
    or a broken check; None: any interrupted transition."""
    triples = [t for touches in by_location(trace) if (t := interrupted((), touches, lines))]
    if lines is not None:
        triples = [t for t in triples if t[0].reads and t[1].writes and acts(t[0], t[2], lines)]
    return min(triples, key=lambda t: (not t[2].writes, t[0].step), default=None)


def _absent(trace: Trace) -> tuple[Touch, ...]:
    """The read that raised because nothing was there, and the write that it depends on: (read, later write of another
    task), (last write of another task, read), the read alone where no other task wrote, or nothing."""
    outcome = trace.outcome
    where = outcome.where
    if where is None or outcome.exception not in _ABSENT - {"TypeError"}:
        return ()
    reads = [
        (t, touches)
        for touches in by_location(trace)
        for t in touches
        if t.mode == "read" and t.value is None and any((f.file, f.line) == (where.file, where.line) for f in t.stack)
    ]
    reads = [(t, touches) for t, touches in reads if not any(o.order > t.order and o.proc == t.proc for o in touches)]
    if not reads:
        return ()
    read, touches = max(reads, key=lambda item: item[0].step)
    others = [t for t in touches if t.writes and t.proc != read.proc]
    before = [t for t in touches if t.writes and t.order < read.order]
    if before:
        return (before[-1], read) if before[-1] in others else ()
    return (read, *others[:1])


def _critical(touches: Sequence[Touch]) -> tuple[CriticalAccess, ...]:
    if len(touches) < 2:
        return ()
    return tuple(
        CriticalAccess(
            t.stack[0].file, t.stack[0].line, t.task, t.mode, t.name, t.stack[0].function, t.value, t.stack, t.step
        )
        for t in touches
    )


def _stack(critical: CriticalAccess) -> tuple[Frame, ...]:
    return critical.stack or (Frame(critical.file, critical.line, critical.function),)


def classify(
    pair: Sequence[CriticalAccess],
    trace: Trace,
    sources: Mapping[str, str],
    deadlock: DeadlockReport | None = None,
) -> tuple[str, str]:
    """(pattern, one sentence) for a failing run. The sentence names tasks, lines and the location, no remedies."""
    if deadlock is not None or trace.outcome.failure == "deadlock":
        kind = deadlock.kind if deadlock else "all-waiting"
        pattern, why = _DEADLOCKS.get(kind, ("unclassified", "nothing can ever run again"))
        return pattern, f"{pattern.replace('-', ' ').capitalize()}: {(deadlock and deadlock.sentence) or why}."
    if len(pair) < 2:
        return _from_the_run(trace, Lines(sources))
    first, second = pair[0], pair[1]
    lines = Lines(sources)
    if _iteration(pair, trace, lines):
        reader, writer = (first, second) if first.access == "read" else (second, first)
        return "iteration-invalidated", (
            f"{writer.object} is changed by {writer.task} ({_at(writer)}) "
            f"while {reader.task} is suspended in its iteration over it ({_at(reader)})."
        )
    touches = touches_of(pair, trace)
    triple = interrupted(pair, touches, lines)
    if triple:
        return _atomicity(triple, lines)
    unfinished = _unfinished(pair, touches, lines)
    if unfinished:
        return unfinished
    if _in_use(first, second, trace, lines):
        return "stale-read", (
            f"{first.task} is suspended in a call on the {first.object} that it read ({_at(first)}) "
            f"when {second.task} replaces it ({_at(second)})."
        )
    if _before_init(first, second, trace, touches):
        return "use-before-init", (
            f"{first.task} uses {first.object} ({_at(first)}) before {second.task} has set it ({_at(second)})."
        )
    return "order-violation", (
        f"{first.task}'s {first.access} of {first.object} ({_at(first)}) comes before "
        f"{second.task}'s {second.access} ({_at(second)}); nothing in the program orders the two."
    )


def _from_the_run(trace: Trace, lines: Lines) -> tuple[str, str]:
    """Without a pair that decides alone: what the failing run shows by itself."""
    alone = "No single pair of accesses was found to decide the outcome"
    triple = None if _stuck(trace, None) else _substitute(trace, lines)
    if triple is not None:
        pattern, story = _atomicity(triple, lines)
        return pattern, f"{alone}. In the failing run, {story}"
    if found := _absent(trace):
        return _missing(found, trace, lines)
    if cut := _cut_short(trace, lines):
        return "atomicity-violation", cut
    if trace.outcome.failure in ("livelock", "leak"):
        return trace.outcome.failure, f"{trace.outcome.message}. {alone}."
    if expected := _expected_order(trace):
        return "test-expectation", expected
    return "unclassified", f"{alone}."


def collected_words(message: str, verified: str) -> str:
    """Of a task that the collector ends; verified: what running the order with and without collections showed."""
    return (
        f"{message}. asyncio itself holds tasks by weak reference only, and what this one waits for is held by nobody "
        f"else: the collector may end it at any moment ({verified}). Keep what `create_task` returns until it is done."
    )


def _expected_order(trace: Trace) -> str | None:
    """The main task's own assertion failed, and nothing that one task changes is seen by another: what it asserts is
    the order in which the other tasks ended, which nothing orders (such tests are the "unordered collections" and
    "concurrency" flakes of Luo, Hariri, Eloussi, Marinov, "An empirical analysis of flaky tests", FSE 2014)."""
    outcome = trace.outcome
    where = outcome.where
    if outcome.failure != "assertion" or where is None or not trace.steps:
        return None
    main = trace.steps[0]
    others = dict.fromkeys(s.task for s in trace.steps if s.proc != main.proc and s.suspended_at is not None)
    if len(others) < 2 or where.function.rpartition("<locals>.")[2] != main.task:
        return None
    callbacks = {s.proc for s in trace.steps if s.cause == "callback"}
    primitives = {a.name for s in trace.steps for a in s.accesses if a.sync}  # `as_completed` has a queue of its own
    for touches in by_location(trace):
        procs = {t.proc for t in touches if not (t.proc in callbacks and t.name in primitives)}
        if len(procs) > 1 and any(t.writes for t in touches):
            return None
    named = " and ".join(others) if len(others) < 4 else f"{len(others)} tasks"
    return (
        f"{os.path.basename(where.file)}:{where.line} ({where.function}) asserts what the order decides in which "
        f"{named} end. Nothing in the program orders them, and no state that one task changes is seen by another: "
        "the test's own expectation is what fails."
    )


def _missing(found: Sequence[Touch], trace: Trace, lines: Lines) -> tuple[str, str]:
    error = f"{trace.outcome.exception}: {trace.outcome.message}"
    if found[0].writes:
        writer, reader = found[0], found[1]
        return "order-violation", (
            f"{reader.task} reads {reader.name} ({_place(reader)}) and finds nothing there ({error}); "
            f"the last write of it before that is {writer.task}'s ({_place(writer)})."
        )
    reader = found[0]
    if len(found) > 1:
        story = f"before {found[1].task} has set it ({_place(found[1])})"
    else:
        story = "before any task has set it"
        places = lines.stores(reader.stack[0].file, reader.name)
        if len(places) == 1:
            story += f" (as {os.path.basename(reader.stack[0].file)}:{places[0]} does)"
    return "use-before-init", f"{reader.task} reads {reader.name} ({_place(reader)}) {story}: {error}."


def _cut_short(trace: Trace, lines: Lines) -> str | None:
    """A task that ended at an await although the source goes on from there to write again what it wrote before: an
    exception or a cancellation was delivered to it there, and the second half of its change is missing."""
    last = {step.proc: step for step in trace.steps}
    waited = {step.proc: step for step in trace.steps if step.suspended_at is not None}
    for touches in by_location(trace):
        for touch in touches:
            at, end = waited.get(touch.proc), last[touch.proc]
            if not touch.writes or at is None or at.suspended_at is None or end.suspended_at:
                continue
            if any(not a.sync for a in end.accesses):
                continue
            here = at.suspended_at
            frames = [f for f in touch.stack if (f.file, f.function) == (here.file, here.function)]
            line = lines.next_store(here, touch.name)
            if frames and frames[0].line < here.line and line is not None:
                name = os.path.basename(here.file)
                return (
                    f"{touch.task} {_verb(touch)} {touch.name} ({_place(touch)}) and waits at {name}:{here.line}; an "
                    f"exception or a cancellation ends it there, so that {name}:{line}, where {touch.name} is written "
                    "again, is not reached."
                )
    return None


def _unfinished(pair: Sequence[CriticalAccess], touches: Sequence[Touch], lines: Lines) -> tuple[str, str] | None:
    """A read whose task failed before it could act: what the same line leads to is known from another task or the
    source.

    The second access then never happened in this run, so there is no triple; the transition was interrupted all the
    same.
    """
    first, second = pair[0], pair[1]
    if first.access != "read" or second.access == "read":
        return None
    before = next((t for t in touches if t.step == first.step and t.stack and t.stack[0].line == first.line), None)
    if before is None:
        return None
    story = f"{first.task} reads {first.object} ({_at(first)}) and {second.task} writes it ({_at(second)})"
    for after in _acts_of_others(before, touches):
        if lines.is_check(before, after):
            return "check-then-act", f"{story} before {first.task} could act on what it tested (as at {_place(after)})."
        if not after.fresh:
            return "lost-update", f"{story} before {first.task} could write it in its turn (as at {_place(after)})."
    if lines.guards_await(before):
        return "check-then-act", f"{story} while {first.task} is suspended in what that test guards."
    return None


def _acts_of_others(read: Touch, touches: Sequence[Touch]) -> Iterable[Touch]:
    """Writes with which another task followed its own read at the same line, after a suspension."""
    for early in touches:
        if early.proc != read.proc and early.reads and early.stack[:1] == read.stack[:1]:
            yield from (t for t in touches if t.proc == early.proc and t.step > early.step and t.writes)


def _atomicity(triple: Triple, lines: Lines) -> tuple[str, str]:
    before, other, after = triple
    task, name = before.task, before.name
    story = (
        f"{task} {_verb(before)} {name} ({_place(before)}) and {_verb(after)} it after an await ({_place(after)}); "
        f"{other.task} {_verb(other)} it in between ({_place(other)})"
    )
    if other.writes and before.reads and not (before.writes and not after.writes):
        if lines.is_check(before, after):
            return "check-then-act", f"{story}, so {task} acts on a test that was made before that change."
        if after.writes and not after.fresh:
            return "lost-update", f"{story}, and that change is overwritten without having been read."
        if not after.writes:
            differ = None not in (before.value, after.value) and before.value != after.value
            ending = f"works with two different values, {before.value} and {after.value}" if differ else "reads it anew"
            return "stale-read", f"{story}, so {task} {ending}."
        return "atomicity-violation", f"{story}, so what {task} does to it is not one transition."
    if other.writes:
        return "atomicity-violation", f"{story}, so what {task} wrote is overwritten before it comes back to it."
    return "atomicity-violation", f"{story}, and sees the state between the two."


def _verb(touch: Touch) -> str:
    return {"read": "reads", "write": "writes", "update": "updates"}[touch.mode]


def _before_init(first: CriticalAccess, second: CriticalAccess, trace: Trace, touches: Sequence[Touch]) -> bool:
    """A use that found nothing there: read first, written later by another task for the first time, and it failed."""
    said = {trace.outcome.exception or "", *re.findall(r"\w+Error", trace.outcome.message)}
    if first.access == "write" or second.access == "read" or not said & _ABSENT:
        return False
    reader = next((t for t in touches if t.step == first.step), None)
    earlier_writes = [t for t in touches if t.writes and reader is not None and t.order < reader.order]
    return first.value in (None, "None") and len(earlier_writes) <= 1


def _in_use(first: CriticalAccess, second: CriticalAccess, trace: Trace, lines: Lines) -> bool:
    """The read's own statement awaits, and its task went on only after the other's write."""
    if first.access != "read" or second.access == "read" or first.step < 0:
        return False
    proc = next((s.proc for s in trace.steps if s.index == first.step), None)
    between = [s for s in trace.steps if s.proc == proc and s.index > second.step]
    return bool(between) and lines.awaits_at(_stack(first)[0])


def _iteration(pair: Sequence[CriticalAccess], trace: Trace, lines: Lines) -> bool:
    """The interpreter says so, or a loop that awaits in its body iterates where the other task writes."""
    modes = {c.access for c in pair}
    if not (modes & {"write", "update"}):
        return False
    if _CHANGED.search(trace.outcome.message):
        return True
    readers = [c for c in pair if c.access == "read"]
    return any(lines.iterates_over_await(_stack(c)[0]) for c in readers)


def _at(critical: CriticalAccess) -> str:
    return f"line {critical.line}" if not critical.file else f"{os.path.basename(critical.file)}:{critical.line}"


def _place(touch: Touch) -> str:
    return f"{os.path.basename(touch.stack[0].file)}:{touch.stack[0].line}" if touch.stack else "unknown line"
