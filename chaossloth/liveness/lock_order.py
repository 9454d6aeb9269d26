"""Lock order: which orders of acquisition could end in a deadlock that no execution met.

A cycle is a possible deadlock only if its edges come from different tasks and no lock is held in two of them (a gate
lock), as in Goodlock (Havelund 2000) and iGoodlock (Joshi, Park, Sen and Naik 2009).

Locks of threads add two rules, because all tasks of a loop share one thread. A task that takes both locks within one
step is nowhere in between when another task runs: at most one such edge is in a cycle. And an `RLock` is no obstacle
between two tasks of one thread.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

from chaossloth.evidence import LockOrderEdge

__all__ = ["distinct_cycles", "lock_order_cycles"]

_MAX_CYCLES = 1000  # cycles looked at, and edge combinations per cycle
_MAX_LENGTH = 8  # locks in one cycle
_NUMBER = re.compile(r" #\d+$|(?<=\w)#\d+(?= created at |$)")  # an instance's, in the name of a lock


def lock_order_cycles(edges: Iterable[LockOrderEdge]) -> tuple[tuple[LockOrderEdge, ...], ...]:
    """Cycles of the lock-order graph that could be deadlocks, each as its edges in order; one of each kind.

    Left out: cycles whose edges cannot be taken at once, because one task takes two of them or one lock (a gate) is
    held in two of them, or by the rules for locks of threads. Bounded to cycles of 8 locks and 1000 combinations each.
    """
    known = list(dict.fromkeys(edges))
    if len(known) < 2:
        return ()
    import networkx as nx

    between: dict[tuple[str, str], list[tuple[LockOrderEdge, frozenset[str]]]] = {}
    for edge in known:
        between.setdefault((edge.first, edge.second), []).append((edge, frozenset(edge.gates) | {edge.first}))
    graph = nx.DiGraph(list(between))
    found = []
    for cycle in itertools.islice(nx.simple_cycles(graph, length_bound=_MAX_LENGTH), _MAX_CYCLES):
        start = cycle.index(min(cycle))
        around = [*cycle[start:], *cycle[:start]]
        choices = [between[pair] for pair in zip(around, [*around[1:], around[0]], strict=True)]
        if len(around) > 1 and (possible := _simultaneous(choices)) is not None:
            found.append(possible)
    return distinct_cycles(sorted(found, key=lambda each: (len(each), [edge.first for edge in each])))


def distinct_cycles(cycles: Iterable[tuple[LockOrderEdge, ...]]) -> tuple[tuple[LockOrderEdge, ...], ...]:
    """The first cycle of each kind: same length, places of acquisition and locks, whichever instances or tasks.

    Numbers tell instances of one run apart; over several runs they only repeat a cycle under other names.
    """
    kinds: dict[tuple[str, ...], tuple[LockOrderEdge, ...]] = {}
    for cycle in cycles:
        kinds.setdefault(tuple(sorted(map(_kind, cycle))), cycle)  # sorted: a rotation is the same cycle
    return tuple(kinds.values())


def _kind(edge: LockOrderEdge) -> str:
    return repr((_NUMBER.sub("", edge.first), _NUMBER.sub("", edge.second), edge.first_at, edge.second_at, edge.how))


def _simultaneous(
    choices: list[list[tuple[LockOrderEdge, frozenset[str]]]],
) -> tuple[LockOrderEdge, ...] | None:
    """One edge per step of the cycle, by different tasks that hold no lock in common."""
    for combination in itertools.islice(itertools.product(*choices), _MAX_CYCLES):
        tasks = {edge.task for edge, _ in combination}
        held = [lock for _, locks in combination for lock in locks]
        edges = tuple(edge for edge, _ in combination)
        if len(tasks) == len(combination) and len(set(held)) == len(held) and _can_block(edges):
            return edges
    return None


def _can_block(edges: tuple[LockOrderEdge, ...]) -> bool:
    if sum(edge.how == "step" for edge in edges) > 1:
        return False
    around = zip(edges, [*edges[1:], edges[0]], strict=True)
    return all(not edge.reentrant or "thread" in (edge.how, holder.how) for edge, holder in around)
