"""Watch on asyncio's primitives: who holds what since where, who waits for what, in which order locks are taken.

The hard part is to see without touching. A wrapper delegates to the original method, adds no suspension point (an
`await` of a coroutine that does not suspend does not suspend) and changes no waiter queue, so fairness, exceptions and
cancellation stay the standard library's own. Tasks and primitives are only referenced weakly: a lock reaches its
waiters' futures and through them their tasks, and a task that the subject let go must stay collectable.

Accesses are reported in the step in which they take effect, to the part of the primitive's state that they touch:

    Lock, Semaphore   queue: order of the waiters; free: permits. `acquire` updates queue when it asks and free when it
                      gets; `release` updates free; a cancelled `acquire` updates both.
    Event             flag; clear.       Condition   waiters (its own lock: "lock.free", "lock.queue").
    Queue             items, getters, putters, unfinished.      Barrier   count, and "cond.*" for its own condition.

A blocked operation has mode "blocked" on what it waits for (`chaossloth.explore.happens_before` says what that means):
the wake-up is ordered by who makes it anyway. A primitive's own parts (a condition's lock, a queue's
"finished" event) are reported as keys of the whole, because only the whole has an identity that the subject knows.
Queue contents are data too: `empty()` followed by `get_nowait()` is a check and an act; the checks that `get` and
`put` make themselves are repeated after every wake-up and only order.

Lock order as in Goodlock (Havelund 2000): an edge is noted when the second lock is *asked for*, with the locks held.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import sys
import sysconfig
import threading
import weakref
from asyncio import events, locks
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol, cast

from chaossloth.evidence import Frame, LockOrderEdge, Mode
from chaossloth.subject.holdings import (
    KINDS,
    Owner,
    Permit,
    Position,
    Resource,
    Task,
    Wait,
    as_frame,
    has_ended,
    kind_of,
)
from chaossloth.subject.primitive_wrappers import FREE_NOW, GOT, QUEUED, Effects, Part, is_free, wrappers
from chaossloth.subject.thread_locks import ThreadLocks

__all__ = [
    "LOOP_BOUNDARY",
    "OWN_LOOP",
    "AccessRecorder",
    "Permit",
    "PrimitiveWatch",
    "Resource",
    "Wait",
    "as_frame",
    "watch",
]


_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_FOREIGN = tuple(os.path.realpath(sysconfig.get_path(p)) + os.sep for p in ("stdlib", "platstdlib"))
_GENERATED = re.compile(r"Task-\d+")
OWN_LOOP = os.path.join(_PACKAGE, "loop") + os.sep
LOOP_BOUNDARY = events.Handle._run.__code__


class AccessRecorder(Protocol):
    """What the watch reports to; see `chaossloth.subject.record`."""

    def add_effects(self, obj: Any, effects: Effects, prefix: str = "") -> None: ...
    def add_sync(self, obj: Any, key: Any, mode: str) -> None: ...
    def add(self, obj: Any, key: Any, mode: str) -> None: ...
    def add_waiter(self, task: Any) -> None: ...
    def name_of(self, obj: Any) -> str | None: ...


def _outside_libraries(filename: str) -> bool:
    """True for files outside the standard library, site-packages and this package (the default `is_subject`)."""
    if filename.startswith("<frozen") or filename.startswith(_PACKAGE):
        return False
    if f"{os.sep}site-packages{os.sep}" in filename or f"{os.sep}dist-packages{os.sep}" in filename:
        return False
    return not os.path.realpath(filename).startswith(_FOREIGN)


def _running_task() -> Task | None:
    loop = events._get_running_loop()
    return None if loop is None else asyncio.current_task(loop)


def _name_or_coroutine(task: Task) -> str:
    """The name that the subject gave the task, else its coroutine's: generated names count through all runs."""
    name = task.get_name()
    return str(getattr(task.get_coro(), "__qualname__", name)) if _GENERATED.fullmatch(name) else name


def _how(first: Permit, wait: Wait) -> str:
    """See `LockOrderEdge.how`."""
    if first.owner.is_thread:
        return "thread"
    return "step" if first.step == wait.step and wait.resource.kind in KINDS.values() else "await"


class PrimitiveWatch:
    """Wraps asyncio's primitives between `install()` and `uninstall()`; all knowledge is about the current run.

    recorder:   where accesses go; None: only holdings and waits are kept.
    is_subject: predicate on a code object's file name; positions are the innermost subject frame.
    task_name:  names a task when it first touches a primitive; equal in every run, or edges of several runs cannot be
                put together (asyncio's own "Task-7" counts through all runs).
    on_block:   told of a wait that stops the loop's thread for ever (`subject.thread_locks`); has to raise. None: such
                waits are left alone.
    step:       number of the step that runs now; the default knows of none, so that no two things share a step.
    virtual_sleep: lets time pass where time is virtual.
    """

    def __init__(self) -> None:
        self.recorder: AccessRecorder | None = None
        self.task_name: Callable[[Task], str] = _name_or_coroutine
        self.active = False
        self.on_block: Callable[[Wait], None] | None = None
        self.step: Callable[[], int] = itertools.count().__next__
        self.virtual_sleep: Callable[[float], None] | None = None
        self.threads = ThreadLocks(self)
        self._is_subject: Callable[[str], bool] = _outside_libraries
        self._files: dict[str, str] = {}  # file name -> "subject", "loop" (this package's), "library"
        self._originals: list[tuple[type, str, Any]] = []
        self._resources: dict[int, Resource] = {}
        self._owners: dict[int, Owner] = {}
        self._owners_named: dict[str, int] = {}
        self._edges: dict[tuple[Any, ...], tuple[Permit, Wait, tuple[Resource, ...]]] = {}
        self._numbers: dict[str, int] = {}
        self._numbers_before_runs: dict[str, int] | None = None
        self._run = 0
        self._locks_seen: set[Resource] = set()

    @property
    def is_subject(self) -> Callable[[str], bool]:
        return self._is_subject

    @is_subject.setter
    def is_subject(self, predicate: Callable[[str], bool]) -> None:
        self._is_subject = predicate
        self._files = {}

    def install(self) -> None:
        """Replace the methods of asyncio's primitives. A second call does nothing."""
        if self.active:
            return
        self.active = True
        for cls, name, wrap in wrappers(self):
            original = cls.__dict__[name]
            self._originals.append((cls, name, original))
            setattr(cls, name, wrap(original))
        self.threads.install()

    def uninstall(self) -> None:
        """Put the exact originals back. A second call does nothing."""
        self.active = False
        while self._originals:
            cls, name, original = self._originals.pop()
            setattr(cls, name, original)
        self.threads.uninstall()

    def start_run(self) -> None:
        """Forget the last run. Primitives that outlive it (module globals) keep number and place of creation."""
        if self._numbers_before_runs is None:
            self._numbers_before_runs = dict(self._numbers)
        self._numbers = dict(self._numbers_before_runs)
        self._resources = {key: each for key, each in self._resources.items() if each.ref() is not None}
        for resource in self._resources.values():
            resource.permits = []
        self._owners, self._owners_named, self._edges, self._locks_seen = {}, {}, {}, set()
        self._run += 1
        self.threads.start_run()

    @property
    def locks_seen(self) -> int:
        """How many locks and semaphores this run acquired."""
        return len(self._locks_seen)

    # -- what the audit asks ------------------------------------------------------------------------------------------

    def waiting(self, task: Task) -> Wait | None:
        """The innermost primitive operation that the task has begun and not ended."""
        owner = self._owners.get(id(task))
        return owner.waits[-1] if owner is not None and owner.ref() is task and owner.waits else None

    def held(self, task: Task) -> tuple[Permit, ...]:
        """The permits that the task holds, oldest first."""
        owner = self._owners.get(id(task))
        return tuple(owner.held) if owner is not None and owner.ref() is task else ()

    def thread_owners(self) -> list[Owner]:
        """Threads that took a lock or waited for one."""
        return [owner for owner in self._owners.values() if owner.is_thread]

    def waiting_threads(self) -> list[Owner]:
        """Threads that wait without a limit."""
        return [owner for owner in self.thread_owners() if owner.waits]

    def abandoned(self) -> list[tuple[str, str, Frame | None]]:
        """Permits whose owner has ended without giving them back: (its name, the primitive's label, where taken)."""
        permits = [permit for resource in self._resources.values() for permit in resource.permits]
        ended = [permit for permit in permits if has_ended(permit.owner)]
        return [(self.owner_name(p.owner), self.label(p.resource), as_frame(p.at)) for p in ended]

    def lock_order(self) -> tuple[LockOrderEdge, ...]:
        """Edges (first held, second asked for) of this run, among locks and semaphores of value 1."""
        if not self._edges:
            return ()
        involved = {
            r: None for first, wait, gates in self._edges.values() for r in (first.resource, wait.resource, *gates)
        }
        names = self._distinct_names(list(involved))
        return tuple(
            LockOrderEdge(
                names[first.resource],
                names[wait.resource],
                self.owner_name(first.owner),
                as_frame(first.at),
                as_frame(wait.at),
                tuple(sorted(names[gate] for gate in gates)),
                _how(first, wait),
                wait.resource.kind == "threading.RLock",
            )
            for first, wait, gates in self._edges.values()
        )

    def label(self, resource: Resource) -> str:
        """Display name: access path where the recorder knows one, else kind, number and place of creation."""
        whole = resource.part_of and resource.part_of()
        if whole is not None:
            return self.label(self._resource(whole))
        obj = resource.ref()
        if resource.path is None and obj is not None and self.recorder is not None:
            resource.path = self.recorder.name_of(obj)
        if resource.path is not None:
            return resource.path
        where = as_frame(resource.created)
        place = f" created at {os.path.basename(where.file)}:{where.line}" if where else ""
        return f"{resource.kind}#{resource.number}{place}"

    def owner_name(self, owner: Owner) -> str:
        """The task's name, numbered by first use of a primitive where several tasks of this run have it."""
        return owner.name if self._owners_named.get(owner.name, 1) == 1 else f"{owner.name} #{owner.number}"

    def _distinct_names(self, resources: list[Resource]) -> dict[Resource, str]:
        """Two entries' locks may share one access path ("Entry._gate"); they must stay two nodes of the graph."""
        names = {each: self.label(each) for each in resources}
        shared = list(names.values())
        return {each: name if shared.count(name) == 1 else f"{name} #{each.number}" for each, name in names.items()}

    # -- what the wrappers tell ---------------------------------------------------------------------------------------

    def created(self, obj: Any, parts: tuple[Part, ...], hidden: bool) -> None:
        """A primitive was constructed; `parts` are the primitives that it made for itself."""
        resource = self._resources[id(obj)] = self._new_resource(obj, self.position(3), born=True)
        resource.hidden = hidden  # a queue uses its event before its own constructor has ended
        for attribute, prefix, hidden in parts:
            self._adopt(obj, getattr(obj, attribute), prefix, hidden)

    def _adopt(self, whole: Any, part: Any, prefix: str, hidden: bool) -> None:
        resource = self._resource(part)
        resource.part_of, resource.prefix, resource.hidden = weakref.ref(whole), prefix, hidden
        if self._numbers[resource.kind] == resource.number:
            self._numbers[resource.kind] -= 1  # numbers count what the subject made itself
        if hidden and isinstance(part, locks.Condition):
            self._adopt(part, part._lock, "lock.", hidden)  # type: ignore[attr-defined]

    def touch(self, obj: Any, effects: Effects) -> None:
        """Report the effects of one operation, now."""
        recorder = self.recorder
        if recorder is None:
            return
        resource, prefix = self._resource(obj), ""
        if resource.hidden and not resource.prefix:
            return
        if resource.part_of is None:
            recorder.add_effects(obj, effects)
            return
        while resource.part_of is not None and (whole := resource.part_of()) is not None:
            obj, prefix, resource = whole, resource.prefix + prefix, self._resource(whole)
        recorder.add_effects(obj, effects, prefix)

    def touch_items(self, queue: Any, mode: Mode) -> None:
        """Report an access to a queue's contents as data."""
        if self.recorder is not None:
            self.recorder.add(queue, "items", mode)

    def looked_at(self, future: Any) -> None:
        """The subject, or asyncio for it, reads whether `future` is done."""
        if self.recorder is not None:
            self.recorder.add_sync(future, "done", "read")

    def begin(self, obj: Any, operation: str, effects: Effects, depth: int = 3) -> Wait:
        """The current task asks for an operation that may suspend it. depth: see `position`."""
        self.touch(obj, effects)
        owner = self._current_owner()
        wait = Wait(owner, self._resource(obj), operation, self.position(depth), self._run)
        if owner is not None and not wait.resource.hidden:
            owner.waits.append(wait)
        return wait

    def begin_acquire(self, obj: Any) -> Wait:
        """As `begin`, and note the order of locks."""
        free = is_free(obj)
        wait = self.begin(obj, "acquire", FREE_NOW if free else QUEUED, 4)
        wait.queued = not free
        owner, resource = wait.owner, wait.resource
        if resource.hidden:
            return wait
        self._locks_seen.add(resource)
        if owner is not None and owner.held and resource.mutex:
            self._note_order(owner, wait)
        return wait

    def end(self, wait: Wait, effects: Effects) -> bool:
        """The operation is over, in whatever way. False: its run is over too (a late `close()`), nothing counts."""
        if wait.run != self._run:
            return False
        owner = wait.owner
        if owner is not None and owner.waits:
            if owner.waits[-1] is wait:
                owner.waits.pop()
            elif wait in owner.waits:
                owner.waits.remove(wait)
        obj = wait.resource.ref()
        if effects and obj is not None:
            self.touch(obj, effects)
        return True

    def acquired(self, wait: Wait) -> None:
        """The task got its permit."""
        if self.end(wait, GOT if wait.queued else ()) and wait.owner is not None and not wait.resource.hidden:
            permit = Permit(wait.owner, wait.resource, wait.at, self.step())
            wait.resource.permits.append(permit)
            wait.owner.held.append(permit)

    def released(self, obj: Any) -> None:
        """A permit was given back: the current task's youngest, else (hand-over between tasks) the oldest of all."""
        permits = self._resource(obj).permits
        if not permits:
            return
        if len(permits) == 1:
            permit = permits.pop()
        else:
            owner = self._current_owner()
            permit = next((each for each in reversed(permits) if each.owner is owner), permits[0])
            permits.remove(permit)
        permit.owner.held.remove(permit)

    # -- what the wrappers of thread locks tell ------------------------------------------------------------------------

    def begin_blocking(self, obj: Any, operation: str) -> Wait:
        """The current task or thread waits in an operation that stops its thread."""
        owner = self._current_owner()
        wait = Wait(owner, self._resource(obj), operation, self.position(), self._run, self.step())
        if owner is not None:
            owner.waits.append(wait)
            if wait.resource.mutex:
                self._note_order(owner, wait)
        return wait

    def acquired_in_thread(self, lock: Any, at: Position) -> None:
        """The current task or thread holds a `threading` lock from here on."""
        owner = self._current_owner()
        if owner is None:
            return
        resource = self._resource(lock)
        self._locks_seen.add(resource)
        if owner.held:
            self._note_order(owner, Wait(owner, resource, "acquire", at, self._run, self.step()))
        permit = Permit(owner, resource, at, self.step())
        resource.permits.append(permit)
        owner.held.append(permit)
        if not owner.is_thread:
            self.touch(lock, (("free", "update"),))

    def released_in_thread(self, lock: Any) -> None:
        """A `threading` lock is about to be given back."""
        resource = self._resources.get(id(lock))
        if resource is None or not resource.permits or resource.ref() is not lock:
            return
        taken_by = resource.permits[0].owner
        self.released(lock)
        if not taken_by.is_thread:
            self.touch(lock, (("free", "update"),))

    # -- where ---------------------------------------------------------------------------------------------------------

    def position(self, depth: int = 2) -> Position | None:
        """Innermost subject frame of the running task, or None; ends where the loop begins.

        depth: how many frames above this one to start: those of the watch and its wrappers are not worth a look.
        """
        frame: FrameType | None = sys._getframe(depth)
        known = self._files
        while frame is not None and (code := frame.f_code) is not LOOP_BOUNDARY:
            kind = known.get(code.co_filename) or self.classify(code.co_filename)
            if kind == "subject":
                return code, frame.f_lineno
            if kind == "loop":
                return None
            frame = frame.f_back
        return None

    def classify(self, filename: str) -> str:
        """Whose file it is: "subject", "loop" (this package's) or "library"."""
        kind = self._files.get(filename)
        if kind is not None:
            return kind
        kind = "subject" if self._is_subject(filename) else "loop" if filename.startswith(OWN_LOOP) else "library"
        self._files[filename] = kind
        return kind

    # -- bookkeeping --------------------------------------------------------------------------------------------------

    def _note_order(self, owner: Owner, wait: Wait) -> None:
        holdings = [each for each in owner.held if each.resource.mutex]
        if any(each.resource is wait.resource for each in holdings):
            return  # a second acquisition of the same lock is a self-deadlock, not an order
        for first in holdings:
            gates = tuple(each.resource for each in holdings if each is not first)
            key = (first.resource, wait.resource, owner, first.at, wait.at, frozenset(gates), _how(first, wait))
            if key not in self._edges:
                self._edges[key] = (first, wait, gates)
                for each in (first.resource, wait.resource, *gates):
                    self.label(each)  # asked for now: the lock may be gone at the end of the run

    def _current_owner(self) -> Owner | None:
        actor: Any = _running_task()
        is_thread = actor is None
        if actor is None:
            if threading.get_ident() == self.threads.loop_thread:
                return None
            actor = threading.current_thread()
        owner = self._owners.get(id(actor))
        if owner is None or owner.ref() is not actor:
            name = f"thread {self._outermost() or actor.name}" if is_thread else self.task_name(actor)
            number = self._owners_named[name] = self._owners_named.get(name, 0) + 1
            owner = self._owners[id(actor)] = Owner(weakref.ref(actor), name, number, is_thread)
        return owner

    def _outermost(self) -> str:
        """The subject's function that the current thread runs: the names of threads count through all runs."""
        found, frame = "", cast("FrameType | None", sys._getframe(2))
        while frame is not None:
            if self.classify(frame.f_code.co_filename) == "subject":
                found = frame.f_code.co_qualname
            frame = frame.f_back
        return found.rpartition("<locals>.")[2]

    def _resource(self, obj: Any) -> Resource:
        resource = self._resources.get(id(obj))
        if resource is None or resource.ref() is not obj:
            resource = self._resources[id(obj)] = self._new_resource(obj, None)
        return resource

    def _new_resource(self, obj: Any, created: Position | None, born: bool = False) -> Resource:
        kind = kind_of(type(obj))
        number = self._numbers[kind] = self._numbers.get(kind, 0) + 1
        # A semaphore met only after its creation may have had any value: no claim is made about its order.
        mutex = isinstance(obj, (locks.Lock, *KINDS)) or (born and isinstance(obj, locks.Semaphore) and obj._value == 1)
        return Resource(weakref.ref(obj), kind, number, created, mutex)


watch = PrimitiveWatch()
