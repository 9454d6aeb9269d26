"""Which findings are one: those whose outcomes one and the same pair of accesses decides.

A race may fail in several ways, and one way of failing may have several causes; so what the search kept as kinds of
failure is compared again by cause, once it is known.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from chaossloth.evidence import Finding

__all__ = ["NOT_REPAIRED", "NO_CANCELLATION", "cause_of", "is_several", "left_out", "parts", "several_words"]

NO_CANCELLATION = "repairs of what a cancellation breaks are not part of this version"
NOT_REPAIRED = "not attempted: of several findings only the first is repaired; run again once that is done"


def cause_of(finding: Finding) -> tuple[Any, ...]:
    """Equal for findings with one cause: the pair's two source locations with their access modes; else the cycle of
    the deadlock; else what failed and where. Of a cancellation without a pair: how it fails and where it lands.
    """
    if finding.critical_pair:
        return ("pair", *sorted((each.file, each.line, each.access) for each in finding.critical_pair))
    if finding.cancellations:
        return ("cancellation", finding.failure, *((each.kind, str(each.at)) for each in finding.cancellations))
    if finding.deadlock is not None:
        return ("deadlock", *sorted((str(edge.at), edge.resource) for edge in finding.deadlock.cycle))
    where = finding.where
    return ("outcome", finding.failure, finding.message if where is None else (where.file, where.line))


def parts(message: str) -> frozenset[str]:
    """What a message says to be wrong, numbers left out; the oracle puts "; " between."""
    return frozenset(re.sub(r"\d+", "#", part) for part in message.split("; "))


def is_several(finding: Finding, races: Sequence[Finding]) -> bool:
    """Whether a finding that no pair decides is several of `races` at once: all that is wrong is wrong in them too."""
    if finding.failure != "not-serializable" or finding.critical_pair or finding.deadlock is not None:
        return False
    if finding.cancellations:  # the same damage from another line is a fault of its own
        return False
    decided = [parts(race.message) for race in races if race.failure == finding.failure and race.critical_pair]
    return len(decided) > 1 and parts(finding.message) <= frozenset().union(*decided)


def several_words(finding: Finding) -> str:
    what = f"{finding.message} (label {finding.label}, --replay {finding.token})"
    return f"a failure that no single pair decides shows what several of the findings show: {what}"


def left_out(undone: int, dropped: int) -> list[str]:
    """What was seen and is not among the findings, in words."""
    words = []
    if undone:
        words.append(f"{undone} more kinds of failure were seen and not explained: the time, or the number kept, ended")
    if dropped:
        words.append(f"at least {dropped} more kinds of failure were seen and not kept")
    return words
