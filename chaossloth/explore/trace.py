"""From an execution's raw material to a `Trace` that can be shown, sent and analysed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chaossloth.evidence import Frame, Step, Trace
from chaossloth.explore.execute import Execution, display_names
from chaossloth.subject.record import recorder

__all__ = ["to_trace"]


def to_trace(execution: Execution, is_subject: Callable[[str], bool]) -> Trace:
    """The steps of an execution made with detail=True."""
    names = display_names(execution.run)
    steps = []
    for index, raw in enumerate(execution.run.steps):
        steps.append(
            Step(
                index=index,
                proc=raw.proc.key,
                task=names[raw.proc.key],
                ordinal=raw.ordinal,
                creator=raw.creator,
                cause=raw.cause,
                accesses=tuple(recorder.to_access(access) for access in raw.accesses),
                suspended_at=_suspended(raw.suspended, is_subject),
            )
        )
    return Trace(tuple(steps), execution.outcome, execution.schedule.token)


def _suspended(frames: Any, is_subject: Callable[[str], bool]) -> Frame | None:
    """Where the task waits: the deepest frame that is the subject's."""
    if not frames:
        return None
    own = [frame for frame in frames if is_subject(frame[0])]
    return Frame(*own[-1]) if own else None
