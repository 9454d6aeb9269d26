"""Lock order: which orders of acquisition could end in a deadlock that no execution met.

A cycle is a possible deadlock only if its edges come from different tasks and no lock is held in two of them (a gate
lock), as in Goodlock (Havelund 2000) and iGoodlock (Joshi, Park, Sen and Naik 2009).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from chaossloth.evidence import LockOrderEdge

__all__ = ["lock_order_cycles"]

_MAX_CYCLES = 1000  # cycles looked at, and edge combinations per cycle
_MAX_LENGTH = 8  # locks in one cycle


def lock_order_cycles(edges: Iterable[LockOrderEdge]) -> tuple[tuple[LockOrderEdge, ...], ...]:
    """Cycles of the lock-order graph that could be deadlocks, each as its edges in order; at most one per set of locks.

    Left out: cycles whose edges cannot be taken at once, because one task takes two of them or one lock (a gate) is
    held in two of them. Bounded to cycles of 8 locks and 1000 combinations each.
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
    return tuple(sorted(found, key=lambda each: (len(each), [edge.first for edge in each])))


def _simultaneous(
    choices: list[list[tuple[LockOrderEdge, frozenset[str]]]],
) -> tuple[LockOrderEdge, ...] | None:
    """One edge per step of the cycle, by different tasks that hold no lock in common."""
    for combination in itertools.islice(itertools.product(*choices), _MAX_CYCLES):
        tasks = {edge.task for edge, _ in combination}
        held = [lock for _, locks in combination for lock in locks]
        if len(tasks) == len(combination) and len(set(held)) == len(held):
            return tuple(edge for edge, _ in combination)
    return None
