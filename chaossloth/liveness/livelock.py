"""Livelock: the repeating part of an execution whose steps ran out."""

from __future__ import annotations

from collections.abc import Sequence

from chaossloth.evidence import Frame
from chaossloth.liveness.words import place

__all__ = ["detect_livelock"]


def detect_livelock(positions: list[tuple[str, Frame]]) -> str | None:
    """The repeating part at the end of the steps' suspension positions, or None if nothing repeats three times.

    Of all periods the one that explains the longest tail is taken, the shortest among equals.
    """
    tail = positions[-2000:]
    best = max(((_periodic(tail, p), -p) for p in range(1, min(len(tail) // 3, 200) + 1)), default=(0, 0))
    covered, period = best[0], -best[1]
    if period == 0 or covered < 3 * period:
        return None
    part = tail[-period:]
    start = min(range(period), key=lambda i: (part[i:] + part[:i])[0][0])
    shown = [f"{task} at {place(at)} ({at.function})" if at.line else task for task, at in part[start:] + part[:start]]
    more = f" → … {period - 12} more" if period > 12 else ""
    return f"{' → '.join(shown[:12])}{more}, {covered // period} times"


def _periodic(tail: Sequence[tuple[str, Frame]], period: int) -> int:
    """Length of the longest suffix that has this period; 0 if it is shorter than three of them."""
    equal = 0
    last = len(tail) - 1
    while last - equal - period >= 0 and tail[last - equal] == tail[last - equal - period]:
        equal += 1
    return equal + period if equal >= 2 * period else 0
