"""What is known of one run's primitives: resources, who holds a permit of them since where, who waits for what.

Tasks, threads and primitives are referenced weakly: what the subject let go must stay collectable.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from chaossloth.evidence import Frame

__all__ = ["KINDS", "Owner", "Permit", "Position", "Resource", "Task", "Wait", "as_frame", "has_ended", "kind_of"]

Task = asyncio.Task[Any]
Position = tuple[CodeType, int]
KINDS: dict[type, str] = {type(threading.Lock()): "threading.Lock", type(threading.RLock()): "threading.RLock"}


@dataclass(slots=True, eq=False)
class Resource:
    """One primitive seen. part_of: the primitive that it is an inner part of. mutex: one holder at most."""

    ref: weakref.ref[Any]
    kind: str
    number: int
    created: Position | None
    mutex: bool
    part_of: weakref.ref[Any] | None = None
    prefix: str = ""
    hidden: bool = False  # the whole (Queue, Barrier) speaks for this part: no waits, no holdings of its own
    path: str | None = None
    permits: list[Permit] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Owner:
    """A task or thread, weakly, with its name for the time when it is gone; the number-th of that name in this run."""

    ref: weakref.ref[Any]
    name: str
    number: int
    is_thread: bool = False
    held: list[Permit] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Permit:
    """`owner` holds one permit of `resource`, taken at `at`, in the step-th step of the run."""

    owner: Owner
    resource: Resource
    at: Position | None
    step: int = -1


@dataclass(slots=True, eq=False)
class Wait:
    """`owner` asked `resource` for `operation` at `at`; innermost operation last in `owner.waits`."""

    owner: Owner | None
    resource: Resource
    operation: str
    at: Position | None
    run: int
    step: int = -2
    queued: bool = False


def has_ended(owner: Owner) -> bool:
    """Whether the task or thread is over, or gone."""
    actor = owner.ref()
    return actor is None or (not actor.is_alive() if owner.is_thread else actor.done())


def kind_of(cls: type) -> str:
    """ "Lock" for asyncio's own, as ever; what is another module's goes by its full name."""
    if cls in KINDS:
        return KINDS[cls]
    foreign = cls.__module__.partition(".")[0] in ("threading", "queue", "concurrent")
    return f"{cls.__module__.replace('._base', '')}.{cls.__name__}" if foreign else cls.__name__


def as_frame(position: Position | None) -> Frame | None:
    """The position as evidence: file, line, qualified function name."""
    return position and Frame(position[0].co_filename, position[1], position[0].co_qualname)
