"""A blocked loop: a task waits for something of `threading` and holds the loop's thread meanwhile.

In the wait-for graph the loop's thread is one more resource: whoever runs holds it, every suspended task waits for it.
So a task that waits for a lock held by a suspended task closes a cycle, and the four conditions can be named for it. A
wait without a holder (`queue.Queue.get()`, `concurrent.futures.Future.result()`) has no cycle: there it is said that
nobody is left who could end it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from chaossloth.evidence import DeadlockReport, Frame, WaitEdge
from chaossloth.liveness.waiting import Task, suspended_at
from chaossloth.liveness.words import at_words, since_words
from chaossloth.subject.holdings import Owner, Wait, as_frame
from chaossloth.subject.primitives import watch

__all__ = ["LOOP_THREAD", "describe_blocked_loop"]

LOOP_THREAD = "the loop's thread"


def describe_blocked_loop(wait: Wait, name_of: Callable[[Task], str]) -> DeadlockReport:
    """Why the wait that stops the loop's thread can never end, asked while it stands there.

    kind: "self-deadlock" (the waiting task holds the lock itself) or "blocked-loop".
    """
    who, what, at = _owner(wait.owner, name_of), watch.label(wait.resource), as_frame(wait.at)
    permit = next(iter(wait.resource.permits), None)
    if permit is None:
        edge = WaitEdge(who, what, wait.operation, at, None, None)
        return DeadlockReport("blocked-loop", (edge,), _sentence_without_holder(wait, who, at))
    holder, since = _owner(permit.owner, name_of), as_frame(permit.at)
    edge = WaitEdge(who, what, wait.operation, at, holder, since)
    kind = wait.resource.kind
    if permit.owner is wait.owner:
        sentence = (
            f"{who} holds {what}{since_words(since)} and waits for it again{at_words(at)}; {kind} is not reentrant"
        )
        return DeadlockReport("self-deadlock", (edge,), sentence, _coffman(edge, kind, at, None))
    stands = _stands_at(permit.owner)
    back = WaitEdge(holder, LOOP_THREAD, "await", stands, who, at)
    sentence = (
        f"{who} waits for {what}{at_words(at)} and holds {LOOP_THREAD} meanwhile; "
        f"{holder} holds {what}{since_words(since)} and needs {LOOP_THREAD} to go on{at_words(stands)}"
    )
    return DeadlockReport("blocked-loop", (edge, back), sentence, _coffman(edge, kind, at, back))


def _owner(owner: Owner | None, name_of: Callable[[Task], str]) -> str:
    if owner is None:
        return "a callback"
    actor = owner.ref()
    return name_of(actor) if isinstance(actor, asyncio.Task) else watch.owner_name(owner)


def _stands_at(owner: Owner) -> Frame | None:
    """Where the holder waits: a task at its await, a thread in the operation that blocks it."""
    actor = owner.ref()
    if isinstance(actor, asyncio.Task):
        return suspended_at(actor)
    return as_frame(owner.waits[-1].at) if owner.waits else None


def _sentence_without_holder(wait: Wait, who: str, at: Frame | None) -> str:
    of = f" on {watch.label(wait.resource)}" if wait.resource.path is not None else ""
    blocked = [f"{watch.owner_name(owner)} waits too{at_words(_stands_at(owner))}" for owner in watch.waiting_threads()]
    others = "".join(f"; {each}" for each in blocked)
    left = "no other thread" if blocked else "no thread"
    return (
        f"{who} waits in {wait.operation}(){of}{at_words(at)} and holds {LOOP_THREAD} meanwhile{others}; "
        f"no task can run and {left} is left to end the wait"
    )


def _coffman(edge: WaitEdge, kind: str, at: Frame | None, back: WaitEdge | None) -> tuple[str, ...]:
    thread = "" if back is None else f", {LOOP_THREAD} (one step at a time)"
    held = f"{edge.holder} keeps {edge.resource}{since_words(edge.held_at)}"
    if back is None:
        hold = f"{held} while it waits for {edge.resource}{at_words(at)}"
        circle, blocked = [edge.task, edge.task], f"{edge.task} cannot reach its own"
    else:
        keeps = f"{edge.task} keeps {LOOP_THREAD} while it waits for {edge.resource}{at_words(at)}"
        hold = f"{keeps}; {held} while it needs {LOOP_THREAD}{at_words(back.at)}"
        circle, blocked = [edge.task, back.task, edge.task], f"{back.task} cannot reach its own"
    return (
        f"mutual exclusion: {edge.resource} ({kind}, one holder at a time){thread}",
        f"hold and wait: {hold}",
        f"no preemption: only release() frees {edge.resource}, and {blocked}",
        f"circular wait: {' → '.join(circle)}",
    )
