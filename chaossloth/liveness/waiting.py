"""What a suspended task waits for.

The watch on primitives knows operations and holders; everything else is read from the suspended task: `_fut_waiter` is
the future it parks on, and the frames of its await chain tell a gather, a TaskGroup, `wait`, `wait_for`,
`as_completed` or `shield` and so the tasks behind that future.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from chaossloth.evidence import Frame, WaitEdge
from chaossloth.liveness.words import listed
from chaossloth.subject.primitives import Permit, Resource, Wait, as_frame, watch

__all__ = [
    "Actor",
    "Holder",
    "Task",
    "Waiting",
    "await_chain",
    "blocked_threads",
    "suspended_at",
    "what_for",
]

Task = asyncio.Task[Any]
Actor = asyncio.Task[Any] | threading.Thread
_SUSPENDED = (types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType)

_WORDS = {
    ("Condition", "wait"): "to be notified on {}",
    ("Event", "wait"): "for {} to be set",
    ("Queue", "get"): "for an item from {}",
    ("Queue", "put"): "for room in {}",
    ("Queue", "join"): "for {} to be worked off (task_done)",
    ("Barrier", "wait"): "at barrier {}",
}


@dataclass(frozen=True, slots=True)
class Holder:
    """Whom a wait depends on: a task or thread, or (actor None) one that ended and took the permit with it."""

    task: Actor | None
    name: str
    since: Frame | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """One waiting task or thread. resource None: it waits for tasks or a bare future; phrase: what follows "waits"."""

    task: Actor
    resource: Resource | None
    name: str
    operation: str
    phrase: str
    at: Frame | None
    holders: tuple[Holder, ...]

    def edge(self, name_of: Callable[[Actor], str], holder: Holder | None) -> WaitEdge:
        since = holder.since if holder else None
        return WaitEdge(name_of(self.task), self.name, self.operation, self.at, holder.name if holder else None, since)


def suspended_at(task: Task) -> Frame | None:
    """The deepest subject frame of the task's await chain (`watch.is_subject`), None if it has none or has ended."""
    innermost = None
    for frame in await_chain(task.get_coro()):
        if watch.is_subject(frame.f_code.co_filename):
            innermost = Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname)
    return innermost


def await_chain(coroutine: Any) -> Iterator[types.FrameType]:
    """Frames from a suspended coroutine inwards to where it waits."""
    here = coroutine
    seen = 0
    while here is not None and seen < 1000:
        seen += 1
        if isinstance(here, types.CoroutineType):
            frame, here = here.cr_frame, here.cr_await
        elif isinstance(here, types.AsyncGeneratorType):
            frame, here = here.ag_frame, here.ag_await
        elif isinstance(here, types.GeneratorType):
            frame, here = here.gi_frame, here.gi_yieldfrom
        else:
            # The steps of an async generator and the iterator of a coroutine do not name what they drive.
            here = next((each for each in gc.get_referents(here) if isinstance(each, _SUSPENDED)), None)
            continue
        if frame is not None:
            yield frame


def what_for(task: Task, pending: list[Task], name_of: Callable[[Actor], str]) -> Waiting | None:
    """None: the task is not suspended, it could run."""
    parked = getattr(task, "_fut_waiter", None)
    if parked is None or parked.done():
        return None
    at = suspended_at(task)
    chain = list(await_chain(task.get_coro()))
    found = _behind(parked, chain, pending)
    if found is not None:
        operation, others = found
        names = [name_of(each) for each in others]
        name = " or ".join(names) if operation == "first of" else listed(names)
        label = f"task {name}" if len(others) == 1 else f"tasks {name}"
        holders = tuple(Holder(each, name_of(each), None) for each in others)
        return Waiting(task, None, label, operation, f"for {label}", at, holders)
    wait = watch.waiting(task)
    if wait is not None:
        return _on_primitive(task, wait, at, name_of)
    threads = [owner for owner in watch.waiting_threads() if owner.ref() is not None]
    if threads:  # nothing else is left that could end it: it waits for what one of them does
        holders = tuple(Holder(owner.ref(), watch.owner_name(owner), None) for owner in threads)
        name = listed([holder.name for holder in holders])
        return Waiting(task, None, name, "await", f"for {name}", at, holders)
    name = _future_name(parked)
    return Waiting(task, None, name, "await", f"for {name}", at, ())


def blocked_threads(name_of: Callable[[Actor], str]) -> list[Waiting]:
    """What threads wait for that cannot go on."""
    found = []
    for owner in watch.waiting_threads():
        wait, thread = owner.waits[-1], owner.ref()
        if thread is not None:
            found.append(_on_primitive(thread, wait, as_frame(wait.at), name_of))
    return found


def _future_name(future: Any) -> str:
    known = watch.recorder.name_of(future) if watch.recorder is not None else None
    return f"future {known}" if known else "a future"


def _on_primitive(task: Actor, wait: Wait, at: Frame | None, name_of: Callable[[Actor], str]) -> Waiting:
    resource = wait.resource
    acquires = wait.operation.rpartition(".")[2] == "acquire"
    holders = tuple(_holder(permit, name_of) for permit in resource.permits) if acquires else ()
    name, obj = watch.label(resource), resource.ref()
    family = next(
        (each for each in ("Condition", "Event", "Queue", "Barrier") if isinstance(obj, _class(each))), "Lock"
    )
    phrase = _WORDS.get((family, wait.operation), "for {}").format(name)
    operation = wait.operation if "." in wait.operation else f"{resource.kind}.{wait.operation}"
    return Waiting(task, resource, name, operation, phrase, at or as_frame(wait.at), holders)


def _class(name: str) -> type:
    found: type = getattr(asyncio, name)
    return found


def _holder(permit: Permit, name_of: Callable[[Actor], str]) -> Holder:
    actor = permit.owner.ref()
    name = watch.owner_name(permit.owner) if actor is None else name_of(actor)
    ended = actor is None or (not actor.is_alive() if isinstance(actor, threading.Thread) else actor.done())
    return Holder(None if ended else actor, name, as_frame(permit.at))


def _behind(parked: Any, chain: Sequence[types.FrameType], pending: list[Task]) -> tuple[str, list[Task]] | None:
    """The unfinished tasks whose end would wake this future, and the operation that waits for them."""
    operation, futures = _combinator(parked, chain, pending)
    tasks = [each for future in futures for each in _tasks_of(future)]
    unfinished = sorted({id(task): task for task in tasks if not task.done()}.values(), key=_creation)
    return (operation, unfinished) if unfinished else None


def _creation(task: Task) -> tuple[int, str]:
    """Sorts sets of tasks: generated names in order of creation."""
    digits = task.get_name().rpartition("-")[2]
    return (int(digits) if digits.isdigit() else 0, task.get_name())


def _combinator(parked: Any, chain: Sequence[types.FrameType], pending: list[Task]) -> tuple[str, Iterable[Any]]:
    for frame in reversed(chain):
        module, function = frame.f_globals.get("__name__"), frame.f_code.co_qualname
        if module == "asyncio.taskgroups" and function.startswith("TaskGroup."):
            return "TaskGroup", frame.f_locals["self"]._tasks
        if module == "asyncio.tasks" and function == "_wait":
            first = frame.f_locals["return_when"] != asyncio.ALL_COMPLETED
            return ("first of" if first else "wait"), frame.f_locals["fs"]
        if module == "asyncio.tasks" and function == "wait_for" and "waiter" in frame.f_locals:  # before 3.12
            return "wait_for", [frame.f_locals.get("fut", parked)]
        if module == "asyncio.tasks" and function.endswith("_wait_for_one"):
            return "first of", _awaited_as_completed(frame, pending)
    return ("gather" if hasattr(parked, "_children") else "await"), [parked]


def _awaited_as_completed(frame: types.FrameType, pending: list[Task]) -> Iterable[Any]:
    if "self" in frame.f_locals:  # 3.13
        return tuple(frame.f_locals["self"]._todo)
    callbacks = (cb for task in pending for cb, _ in getattr(task, "_callbacks", None) or ())
    done = frame.f_locals.get("done")
    return [task for cb in callbacks if (own := _cells(cb)).get("done") is done for task in own.get("todo", ())]


def _tasks_of(future: Any) -> Iterator[Task]:
    if isinstance(future, asyncio.Task):
        yield future
    elif hasattr(future, "_children"):  # gather
        for child in future._children:
            yield from _tasks_of(child)
    else:
        for callback, _context in getattr(future, "_callbacks", None) or ():
            inner = _cells(callback).get("inner")  # shield
            if inner is not None:
                yield from _tasks_of(inner)


def _cells(function: Any) -> dict[str, Any]:
    """Closure variables of one of asyncio's own callbacks."""
    if getattr(function, "__module__", None) != "asyncio.tasks" or getattr(function, "__closure__", None) is None:
        return {}
    return {
        name: cell.cell_contents
        for name, cell in zip(function.__code__.co_freevars, function.__closure__, strict=True)
        if name in ("inner", "done", "todo")
    }
