"""The pattern behind a failure that needs a cancellation, in the field's words, from the two traces.

Asked in this order; each name rests on something seen:

    shared-work-cancelled  the cancellation went through work that others waited for, and took them along
    leaked-permit          the victim ended with a lock or semaphore, or the future on which it waited had been resolved
                           with None and it never ran on: what was handed over is lost
    lost-item              the same with a value handed over; or a queue waits for a `task_done` of what the victim
                           took; or the victim had just taken an item from a queue
    stranded-waiter        the others wait for ever and none of the above is seen
    desynchronised-replies where the victim would have taken its own entry back from a container, another task takes it
    partial-effect         the victim changed something and was ended before it touched that again, as it does in the
                           run without the cancellation; or it changed it in its clean-up only
    unclassified           none of these

The pair is what the victim did last to the contested location, and the first access of another task after that: only
where two traces tell which location that is.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from chaossloth.diagnose.transitions import Touch, touches_at
from chaossloth.evidence import Cancellation, CriticalAccess, DeadlockReport, Trace

__all__ = ["PATTERNS", "classify_cancelled"]

PATTERNS = (
    "shared-work-cancelled",
    "leaked-permit",
    "lost-item",
    "stranded-waiter",
    "desynchronised-replies",
    "partial-effect",
    "unclassified",
)
Pair = tuple[Touch, Touch]
_NUMBER = re.compile(r"-?[\d.e+-]+|None|True|False")  # a counter holds nobody's entry


def classify_cancelled(
    failing: Trace,
    passing: Trace | None,
    cancellations: Sequence[Cancellation],
    seen: Mapping[str, object],
    deadlock: DeadlockReport | None = None,
) -> tuple[str, str, tuple[CriticalAccess, ...]]:
    """(pattern, sentences, critical pair or nothing). seen: "handed", "innocents" and "died" of `diagnose.landing`."""
    if not cancellations:
        return "unclassified", "The cancellation did not reach its task in the replay.", ()
    last = cancellations[-1]
    where = " and then ".join(_landed(each) for each in cancellations)
    victim = failing.steps[last.step].proc.rpartition("c")[0]
    broken = _broken(failing, passing, victim, last.step) if passing is not None else None
    pattern, what = _named(failing, last, seen, deadlock, broken)
    taken = _taken(failing, victim, last.step) if pattern == "unclassified" else None
    if taken is not None:
        pattern, what = "lost-item", f"It took an item from {taken[0]} ({taken[1]}) and does nothing more with it."
    story = f"{last.task} is {where}. {what}"
    for name, error, file, line in _deaths(seen):
        story += f" {name} dies of {error}{f' at {os.path.basename(file)}:{line}' if file else ''}, and nobody looks."
    return pattern, story, _critical(broken[0]) if broken is not None else ()


def _deaths(seen: Mapping[str, object]) -> list[tuple[str, str, str, int]]:
    died = seen.get("died")
    return [(str(n), str(e), str(f), int(line)) for n, e, f, line in died] if isinstance(died, (list, tuple)) else []


def _landed(each: Cancellation) -> str:
    how = "stopped by its timeout" if each.kind == "timeout" else "cancelled"
    at = f" at {os.path.basename(each.at.file)}:{each.at.line} ({each.at.function})" if each.at is not None else ""
    state = {
        "waiting": ", where it waits",
        "woken": ", when what it waits for is there and it has not run since",
        "yielding": ", where it yields",
        "new": " before its first step",
    }
    return f"{how}{at}{state[each.state]}"


def _named(
    failing: Trace,
    last: Cancellation,
    seen: Mapping[str, object],
    deadlock: DeadlockReport | None,
    broken: tuple[Pair, str] | None,
) -> tuple[str, str]:
    outcome = failing.outcome
    innocents = seen.get("innocents")
    if isinstance(innocents, (list, tuple)) and innocents:
        return "shared-work-cancelled", (
            f"The cancellation goes on through the work that it waits for, and {innocents[0]} waits for that too: "
            "it is cancelled as well."
        )
    if outcome.failure == "leak":
        return "leaked-permit", f"In the end, {outcome.message}."
    if last.state == "woken" and seen.get("handed") is not None:
        if seen["handed"] == "NoneType":
            return "leaked-permit", "What was handed over with the wake-up is not taken and not given back."
        return "lost-item", f"The {seen['handed']} that was handed over with the wake-up is lost."
    if outcome.failure == "deadlock":
        return _stuck(deadlock, broken)
    if broken is not None:
        return _half_done(broken)
    if outcome.failure == "not-serializable":
        return "partial-effect", "What it did until then is neither the whole call nor nothing."
    return "unclassified", "What broke is seen in the outcome only."


def _stuck(deadlock: DeadlockReport | None, broken: tuple[Pair, str] | None) -> tuple[str, str]:
    edges = deadlock.cycle if deadlock is not None else ()
    if any(edge.operation == "Queue.join" for edge in edges):
        return "lost-item", "An item that it took is never marked done, so the queue is never seen as worked off."
    sentence = f" In the end, {deadlock.sentence}." if deadlock is not None else ""
    return "stranded-waiter", (_changed(broken) if broken is not None else "Others wait for ever.") + sentence


def _half_done(broken: tuple[Pair, str]) -> tuple[str, str]:
    return "desynchronised-replies" if broken[1] == "taken" else "partial-effect", _changed(broken)


def _changed(broken: tuple[Pair, str]) -> str:
    (own, other), kind = broken
    ending = {
        "taken": f"takes it where {own.task} would have ({_place(other)})",
        "missing": f"meets it as it was left ({_place(other)})",
        "extra": f"meets it so ({_place(other)})",
    }[kind]
    verb = {"read": "reads", "write": "writes", "update": "changes"}[own.mode]
    when = "in its clean-up" if kind == "extra" else "before that, and does not come back to it"
    return f"It {verb} {own.name} {when} ({_place(own)}); {other.task} {ending}."


def _broken(failing: Trace, passing: Trace, victim: str, at: int) -> tuple[Pair, str] | None:
    """(victim's access, the first later one of another task), and how the location differs from the passing run:
    "taken" (another acts at the line where the victim would have), "missing", or "extra" (done in the clean-up)."""
    found: list[tuple[int, int, Pair, str]] = []
    for location in dict.fromkeys(a.location for s in failing.steps for a in s.accesses if not a.sync and a.stack):
        touches = touches_at(failing, {location})
        before = [t for t in touches if t.proc == victim and t.step < at and t.stack]
        after = [t for t in touches if t.proc == victim and t.step > at and t.stack]
        usual = [t for t in touches_at(passing, {location}) if t.proc == victim and t.stack]
        extra = [t for t in after if t.writes and _lines([t]) - _lines(usual)]
        missing = _lines([t for t in usual if t.writes]) - _lines([*before, *after])
        own = extra or ([t for t in before if t.writes] if missing else [])
        others = [t for t in touches if t.proc != victim and t.step > at and t.stack] if own else []
        others = [t for t in others if t.order > own[-1].order]
        if not others:
            continue
        taking = [t for t in others if t.writes and _lines([t]) & missing]
        taken = bool(taking) and not extra and not _NUMBER.fullmatch(own[-1].value or "")
        kind = "extra" if extra else "taken" if taken else "missing"
        other = taking[0] if taken else others[0]
        found.append(({"taken": 0, "extra": 1, "missing": 2}[kind], other.order, (own[-1], other), kind))
    if not found:
        return None
    _, _, pair, kind = min(found, key=lambda each: each[:2])
    return pair, kind


def _taken(failing: Trace, victim: str, at: int) -> tuple[str, str] | None:
    """(queue, place) where the victim's last step before `at` took an item."""
    own = [step for step in failing.steps[:at] if step.proc == victim]
    for access in own[-1].accesses if own else ():
        if access.name.endswith(".items") and access.mode == "update" and not access.sync and access.stack:
            top = access.stack[0]
            return access.name.removesuffix(".items"), f"{os.path.basename(top.file)}:{top.line}"
    return None


def _lines(touches: Sequence[Touch]) -> Counter[tuple[str, int, str]]:
    return Counter((t.stack[0].file, t.stack[0].line, t.mode) for t in touches)


def _place(touch: Touch) -> str:
    return f"{os.path.basename(touch.stack[0].file)}:{touch.stack[0].line}"


def _critical(pair: Pair) -> tuple[CriticalAccess, ...]:
    return tuple(
        CriticalAccess(
            t.stack[0].file, t.stack[0].line, t.task, t.mode, t.name, t.stack[0].function, t.value, t.stack, t.step
        )
        for t in pair
    )
