"""Deadlock: who waits for whom when nothing can run.

Wait-for graph: nodes are tasks, an edge T -> H says that H holds what T waits for, or is what T waits for (Holt 1972).
The audit is asked when no task can run, so every holder is stuck itself and a cycle is a deadlock even where one of
several holders (a semaphore) would do. Waiters of an event, a condition, a queue or a bare future have no holder.
Conditions are the four of Coffman, Elphick and Shoshani (1971).
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

from chaossloth.evidence import DeadlockReport, WaitEdge
from chaossloth.liveness.waiting import Actor, Holder, Task, Waiting, blocked_threads, what_for
from chaossloth.liveness.words import at_words, listed, since_words
from chaossloth.subject.primitives import Resource, watch

__all__ = ["describe_deadlock"]

_MAX_CYCLES = 1000  # cycles looked at
_SHOWN = 5  # waiters named in one sentence


def describe_deadlock(tasks: list[Task], name_of: Callable[[Task], str]) -> DeadlockReport:
    """What the unfinished tasks wait for, now that none of them can run.

    kind: "self-deadlock", "cycle", "lost-wakeup" (waiters that nobody holds up and nobody is left to wake), else
    "all-waiting". Read-only; the result holds no reference to a task.
    """
    pending = [task for task in tasks if not task.done()]
    named = distinct_names(pending, name_of)
    waits = [each for each in (what_for(task, pending, named) for task in pending) if each is not None]
    waits += blocked_threads(named)
    cycle = wait_cycle(waits, named)
    if cycle is not None:
        return cycle_report(cycle, named)
    edges = tuple(each.edge(named, each.holders[0] if each.holders else None) for each in waits)
    orphans = [each for each in waits if not each.holders]
    if orphans and len(waits) >= len(pending) and any(is_signal(each) for each in orphans):
        return DeadlockReport("lost-wakeup", edges, lost_wakeup_sentence(orphans, waits, named))
    return DeadlockReport("all-waiting", edges, all_waiting_sentence(waits, named))


def distinct_names(tasks: Sequence[Task], name_of: Callable[[Task], str]) -> Callable[[Actor], str]:
    """The same names, numbered in the given order where several of these tasks share one; threads have their own."""
    shared: dict[str, list[Task]] = {}
    for task in tasks:
        shared.setdefault(name_of(task), []).append(task)
    numbered = {
        id(task): f"{name} #{number}"
        for name, group in shared.items()
        if len(group) > 1
        for number, task in enumerate(group, 1)
    }
    threads = {id(owner.ref()): watch.owner_name(owner) for owner in watch.thread_owners()}

    def named(actor: Actor) -> str:
        if isinstance(actor, threading.Thread):
            return threads.get(id(actor), actor.name)
        return numbered.get(id(actor)) or name_of(actor)

    return named


# -- the wait-for graph ------------------------------------------------------------------------------------------------

Cycle = list[tuple[Waiting, Holder]]


def wait_cycle(waits: Sequence[Waiting], name_of: Callable[[Actor], str]) -> Cycle | None:
    """The shortest cycle, a self-deadlock first; among equals the one that starts with the first name."""
    import networkx as nx

    graph: Any = nx.DiGraph()
    by_task = {id(each.task): each for each in waits}
    for each in waits:
        for holder in each.holders:
            if holder.task is not None and id(holder.task) in by_task:
                graph.add_edge(id(each.task), id(holder.task), holder=holder)
    names = {key: name_of(each.task) for key, each in by_task.items()}
    cycles = list(itertools.islice(nx.simple_cycles(graph), _MAX_CYCLES))
    if not cycles:
        return None
    rotated = [_from_smallest(cycle, names) for cycle in cycles]
    best = min(rotated, key=lambda cycle: (len(cycle), [names[key] for key in cycle]))
    steps = zip(best, [*best[1:], best[0]], strict=True)
    return [(by_task[here], graph.edges[here, there]["holder"]) for here, there in steps]


def _from_smallest(cycle: Sequence[int], names: dict[int, str]) -> list[int]:
    start = min(range(len(cycle)), key=lambda i: names[cycle[i]])
    return [*cycle[start:], *cycle[:start]]


def cycle_report(cycle: Cycle, name_of: Callable[[Actor], str]) -> DeadlockReport:
    edges = tuple(waiting.edge(name_of, holder) for waiting, holder in cycle)
    locks = all(waiting.resource is not None for waiting, _ in cycle)
    if len(cycle) == 1:
        return DeadlockReport("self-deadlock", edges, _self_sentence(*cycle[0], edges[0]), _coffman(cycle, edges))
    clauses = [_cycle_clause(cycle[i - 1], cycle[i], edges[i].task) for i in range(len(cycle))]
    return DeadlockReport("cycle", edges, "; ".join(clauses), _coffman(cycle, edges) if locks else ())


def _self_sentence(waiting: Waiting, holder: Holder, edge: WaitEdge) -> str:
    kind = waiting.resource.kind if waiting.resource else "it"
    return (
        f"{edge.task} holds {edge.resource}{since_words(holder.since)} and waits for it again{at_words(waiting.at)}; "
        f"asyncio.{kind} is not reentrant"
    )


def _cycle_clause(before: tuple[Waiting, Holder], here: tuple[Waiting, Holder], task: str) -> str:
    wanted, held = before
    holds = f"{task} holds {wanted.name}{since_words(held.since)} and waits" if wanted.resource else f"{task} waits"
    return f"{holds} {here[0].phrase}{at_words(here[0].at)}"


def _coffman(cycle: Cycle, edges: tuple[WaitEdge, ...]) -> tuple[str, ...]:
    tasks = [edge.task for edge in edges]
    kinds = dict.fromkeys(f"{w.name} ({w.resource.kind}, {_capacity(w.resource)})" for w, _ in cycle if w.resource)
    held = [
        f"{edge.task} keeps {before.resource}{since_words(before.held_at)}"
        f" while it waits for {edge.resource}{at_words(edge.at)}"
        for before, edge in zip((edges[-1], *edges[:-1]), edges, strict=True)
    ]
    return (
        f"mutual exclusion: {', '.join(kinds)}",
        f"hold and wait: {'; '.join(held)}",
        f"no preemption: only release() frees these, and {listed(tasks)} cannot reach {_theirs(tasks)}",
        f"circular wait: {' → '.join([*tasks, tasks[0]])}",
    )


def _capacity(resource: Resource) -> str:
    return "one holder at a time" if resource.mutex else f"all {len(resource.permits)} permits taken"


def _theirs(tasks: Sequence[str]) -> str:
    return "its own" if len(tasks) == 1 else "theirs"


# -- sentences ---------------------------------------------------------------------------------------------------------


def is_signal(each: Waiting) -> bool:
    """Somebody would have to act to end this wait; a lock without a known holder is another matter."""
    mutex = each.resource is not None and each.resource.mutex
    return not mutex


def lost_wakeup_sentence(orphans: list[Waiting], waits: list[Waiting], name_of: Callable[[Actor], str]) -> str:
    signals = [each for each in orphans if is_signal(each)]
    rest = [each for each in waits if each not in signals]
    first = _clauses(signals, name_of)
    others = f"; {_clauses(rest, name_of)}" if rest else ""
    deed = {"wait": "wake", "get": "put an item for", "put": "take an item for", "join": "call task_done() for"}
    verbs = {deed.get(each.operation.rpartition(".")[2], "wake") for each in signals}
    verb = verbs.pop() if len(verbs) == 1 else "wake"
    whom = "it" if len(signals) == 1 else "them"
    return f"{first}{others}; every other task has ended, so nobody is left to {verb} {whom}"


def all_waiting_sentence(waits: list[Waiting], name_of: Callable[[Actor], str]) -> str:
    return _clauses(waits, name_of) or "no unfinished task waits for anything that is known"


def _clauses(waits: list[Waiting], name_of: Callable[[Actor], str]) -> str:
    clauses = [
        f"{name_of(each.task)} waits {each.phrase}{at_words(each.at)}{_held_by(each)}" for each in waits[:_SHOWN]
    ]
    more = len(waits) - _SHOWN
    return "; ".join([*clauses, *([f"{more} more wait"] if more > 0 else [])])


def _held_by(each: Waiting) -> str:
    if each.resource is None or not each.holders:
        return ", which no task is known to hold" if each.resource is not None and each.resource.mutex else ""
    ended = [f"{h.name}{since_words(h.since)}" + (", which has ended" if h.task is None else "") for h in each.holders]
    return f", held by {'; '.join(ended)}"
