"""Cancellations that a schedule adds to an execution: where they arrive, and whom they may reach.

A `Cancel` says: while task V is suspended after its n-th step (0: before its first), V is cancelled. Somebody outside
does that (a client that hung up, a supervisor), so it is one more completion of the environment. How it arrives:

    x  at the end of the round in which V took that step (in `reorder`: right after it). The stock loop can do that: a
       completion delivered last at the boundary before that round runs after everything that was ready there, and
       before whatever the round scheduled.
       So it falls between a wake-up and the woken task's step, the window of most hand-over faults.
    z  at any later boundary (any later step in `reorder`): it waits among the loop's free completions, and the search
       over orders decides. It is withdrawn when V goes on before it arrived: what would follow is another `Cancel`.
    t, u  as x and z, but the innermost timeout around V fires instead (`asyncio.timeout`, `wait_for`, a cancel scope's
       deadline): the body took that long. Time advances to the deadline.

A position between two handles of one round belongs to `reorder` (there z covers it).

Whom a cancellation may reach. `V.cancel()` goes inwards, through what V waits for. The tasks on that way were doing V's
work, and who waits for V itself expects its end: neither is a failure. A task that is cancelled because it waited for
something *inside*, which V shared with it, is innocent; `stray` names such tasks. Nobody is counted whose last step was
not woken by a future of that way, so a task that awaits V can never be mistaken for one.

After the main task. A scenario that awaits V ends with V's CancelledError; that is no failure, but what the others do
then is still to be seen. So the loop goes on, under the schedule, until every task that ends by itself when nothing is
cancelled (`Victims.finished`, learnt from such runs) has ended, or for `MORE_STEPS` steps. If nothing can run any more
before that, the rest is stranded: a deadlock. Tasks that wait for ever anyhow (servers, workers) are not waited for.

No task is held: identities and weak references only.
"""

from __future__ import annotations

import asyncio
import heapq
import re
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from chaossloth.loop.identity import callback as callback_identity
from chaossloth.loop.run import Handle, Proc
from chaossloth.subject.cancelling import note_cancel
from chaossloth.subject.record import recorder

if TYPE_CHECKING:
    from chaossloth.loop.controlled import ControlledLoop

__all__ = ["KINDS", "LATER", "MORE_STEPS", "TIMEOUTS", "Cancel", "Injector", "Landing", "Victims"]

KINDS = "xztu"
LATER = "zu"
TIMEOUTS = "tu"
MORE_STEPS = 2_000

_COUNTED = re.compile(r"Task-\d+")  # asyncio's own names

Frames = list[tuple[str, int, str]]
Place = tuple[str, int]  # (identity of a task, number of its steps so far)


@dataclass(frozen=True, slots=True, order=True)
class Cancel:
    """victim: the task's identity; step: after which of its steps, 0 before the first; kind: see the module."""

    victim: str
    step: int
    kind: str = "x"


@dataclass(frozen=True, slots=True)
class Landing:
    """A cancellation that arrived.

    name: the task's, for people; index: the step that it was; frames: where the task stood, outermost first.
    state: "waiting" (for something that is not done), "woken" (what it waited for is done, it has not run since),
    "yielding" (`sleep(0)`), "new" (not started). result: type name of what the woken task was to be given.
    """

    cancel: Cancel
    name: str
    index: int
    frames: Frames
    state: str
    result: str | None = None


@dataclass(slots=True)
class Victims:
    """Which tasks may be cancelled, and what the runs so far showed of them.

    pattern: of task names or their coroutines' names; labels: names of the calls under test; neither: every task that
    the main task creates. Never the main task itself.
    places: suspensions of victims met; timeouts: those of any task that an unexpired timeout surrounds.
    finished: tasks that ended by themselves before the main task did, where nothing was cancelled.
    keep: (task, primitive) for permits that tasks do not give back where nothing is cancelled either.
    """

    pattern: str | None = None
    labels: frozenset[str] = frozenset()
    places: dict[Place, None] = field(default_factory=dict)
    timeouts: dict[Place, None] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    finished: set[str] = field(default_factory=set)
    keep: set[tuple[str, str]] = field(default_factory=set)
    _known: dict[str, bool] = field(default_factory=dict)

    def matches(self, proc: Proc) -> bool:
        known = self._known.get(proc.key)
        if known is None:
            known = self._known[proc.key] = self._decide(proc)
            if known:
                self.names[proc.key] = proc.label
        return known

    def _decide(self, proc: Proc) -> bool:
        creator, _, _ = proc.key.rpartition(".")
        if not creator:
            return False
        if self.pattern is not None:
            task = proc.ref() if proc.ref is not None else None
            coroutine = getattr(task.get_coro(), "__qualname__", "") if task is not None else ""
            names = (proc.name, proc.label, coroutine, coroutine.rpartition("<locals>.")[2])
            return any(fnmatchcase(name, self.pattern) for name in names)
        if self.labels and not (proc.given and proc.name in self.labels):
            return False
        return "." not in creator and "c" not in creator


class Injector:
    """One execution's cancellations. The loop tells it where rounds begin and steps end."""

    def __init__(self, victims: Victims, plan: tuple[Cancel, ...]) -> None:
        self.plan = plan
        self.landed: list[Landing] = []
        self.stray: list[tuple[str, Frames]] = []  # (name, where it last waited) of innocents that were cancelled
        self.died: list[tuple[str, str, str, int]] = []  # filled in by who judges the end of a run in detail
        self.places_after: list[Place] = []  # suspensions of the victim after its cancellation
        self.main_cancelled = False  # the main task ended by a cancellation that nobody asked of it
        self.after_main = False
        self.cut = False  # the others were not followed to their end
        self._victims = victims
        self._next = 0  # in the plan
        self._waiting: Handle | None = None
        self._known = 0  # procs of the run that were looked at
        self._at_round_end: list[Handle] = []
        self._limit = 0
        self._inside: weakref.WeakSet[Any] = weakref.WeakSet()
        self._stood: dict[str, Frames] = {}
        self._by_themselves: set[str] = set()  # tasks that ended, and not by a cancellation

    # ------------------------------------------------------------------ what the loop tells

    def round_ends(self, loop: ControlledLoop) -> None:
        """Everything that was ready at its beginning has run."""
        while self._at_round_end:
            handle = self._at_round_end.pop(0)
            if not handle._cancelled:
                loop._execute(handle)

    def step_ended(self, loop: ControlledLoop, handle: Handle) -> None:
        """After the callback of a step, while its accesses are still being collected."""
        run, proc = loop.run, handle.proc
        if not run.judging:
            return
        for new in run.procs[self._known :]:
            if new.is_task:
                _take_name(new)
                if new is not proc:
                    self._suspended(loop, new)
        self._known = len(run.procs)
        if proc.is_task:
            task = proc.ref() if proc.ref is not None else None
            if self._waiting is not None and self._waiting.args[1].victim == proc.key:
                self._waiting.cancel()  # the task went on
                self._waiting = None
            if task is not None and task.done():
                self._ended(task, handle)
            elif task is not None:
                self._suspended(loop, proc)
        if self.after_main and (run.count >= self._limit or not self.awaited(loop)):
            self.cut = run.count >= self._limit
            loop.stop()

    def main_ended(self, loop: ControlledLoop, task: asyncio.Future[Any]) -> None:
        """The future that the loop was to run until is done; see the module docstring."""
        run = loop.run
        if not run.judging or self.after_main or not isinstance(task, asyncio.Task):
            return
        if not self.plan:
            self._victims.finished |= self._by_themselves
            return
        timed_out = any(landing.cancel.kind in TIMEOUTS for landing in self.landed)
        self.main_cancelled = bool(self.landed) and task.cancelled() and not task.cancelling()
        expired = timed_out and not task.cancelled() and isinstance(task.exception(), TimeoutError)
        if (self.main_cancelled or expired) and self.awaited(loop):
            self.after_main = True
            self._limit = run.count + MORE_STEPS
            loop.run_forever()

    def awaited(self, loop: ControlledLoop) -> list[asyncio.Task[Any]]:
        """Tasks that have still to end once the main task has, victims excepted."""
        finished, cancelled = self._victims.finished, {cancel.victim for cancel in self.plan}
        found = []
        for task in loop.unfinished():
            proc = loop.proc_of(task)
            if proc is not None and proc.key in finished and proc.key not in cancelled:
                found.append(task)
        return found

    # ------------------------------------------------------------------ where it arrives

    def _suspended(self, loop: ControlledLoop, proc: Proc) -> None:
        task = proc.ref() if proc.ref is not None else None
        if task is None or task.done():
            return
        place = (proc.key, proc.steps)
        if self._inside:
            self._stood[proc.key] = _frames(task)  # of those that took part at the landing it is known from then
        victim = self._victims.matches(proc)
        if victim:
            if any(landing.cancel.victim == proc.key for landing in self.landed):
                self.places_after.append(place)
            else:
                self._victims.places.setdefault(place)
        timer = _timeout_around(loop, task)
        if timer is not None:
            self._victims.timeouts.setdefault(place)
            self._victims.names.setdefault(proc.key, proc.label)
        if self._next < len(self.plan) and (self.plan[self._next].victim, self.plan[self._next].step) == place:
            cancel = self.plan[self._next]
            self._next += 1
            if cancel.kind not in TIMEOUTS or timer is not None:
                self._release(loop, proc, cancel)

    def _release(self, loop: ControlledLoop, proc: Proc, cancel: Cancel) -> None:
        handle = Handle(loop, self._land, (loop, cancel, proc), None)
        key = callback_identity(proc.key, 0)  # real callbacks of the task count from 1
        handle.proc = self._own_proc(loop, key, proc)
        handle.cause = "external" if cancel.kind in LATER else "cancel"
        handle.creator, handle.clock = loop.run.index, loop.run.clock
        handle.deadline, handle.seq, handle.owner, handle.ordinal = 0.0, 0, key, proc.steps
        if cancel.kind in LATER:
            self._waiting = handle
            loop._free.append(handle)
            return
        self._at_round_end.append(handle)

    def _own_proc(self, loop: ControlledLoop, key: str, victim: Proc) -> Proc:
        known = next((proc for proc in loop.run.procs if proc.key == key), None)
        return known or loop._proc(key, f"cancellation of {victim.label}", False)

    def _land(self, loop: ControlledLoop, cancel: Cancel, proc: Proc) -> None:
        if self._waiting is not None and self._waiting.args[1] is cancel:
            self._waiting = None
        task = proc.ref() if proc.ref is not None else None
        if task is None or task.done() or proc.steps != cancel.step:
            return
        timer = _timeout_around(loop, task) if cancel.kind in TIMEOUTS else None
        if cancel.kind in TIMEOUTS and timer is None:
            return
        state, result = _state(task, proc)
        self.landed.append(Landing(cancel, proc.label, loop.run.index, _frames(task), state, result))
        for inner in _reached(task):
            self._inside.add(inner)
        note_cancel(recorder, task)
        for other in loop.unfinished():
            known = loop.proc_of(other)
            if known is not None:
                self._stood[known.key] = _frames(other)
        if timer is None:
            task.cancel()
            return
        loop._timers.remove(timer)
        heapq.heapify(loop._timers)
        timer.arrived, timer.ran = True, loop.run.index
        loop.run.clock = (loop.run.clock[0], max(loop.run.clock[1], timer.clock[1]))
        loop.run.now = max(loop.run.now, loop.run.clock[1])
        if loop.run.current is not None:
            loop.run.current.clock = loop.run.clock
        try:
            timer.context.run(timer.callback, *timer.args)
        finally:
            timer._cancelled = True

    # ------------------------------------------------------------------ whom it reached

    def _ended(self, task: asyncio.Task[Any], handle: Handle) -> None:
        proc = handle.proc
        if not task.cancelled():
            self._by_themselves.add(proc.key)
        if not self._inside or not task.cancelled() or task.cancelling() or not handle.args:
            return
        if proc.key in {landing.cancel.victim for landing in self.landed}:
            return
        woken_by = handle.args[0]
        if any(future in self._inside for future in (woken_by, *getattr(woken_by, "_children", ()))):
            self.stray.append((proc.label, self._stood.get(proc.key, [])))


def _take_name(proc: Proc) -> None:
    """`asyncio.create_task` of Python 3.11 gives a task its name only when the loop has made it."""
    task = proc.ref() if proc.ref is not None and not proc.given else None
    if task is not None and not _COUNTED.fullmatch(task.get_name()):
        proc.called, proc.given = task.get_name(), True


def _reached(task: asyncio.Task[Any]) -> Iterator[Any]:
    """The unfinished futures and tasks that `task.cancel()` goes through, without the task itself."""
    pending, seen = [getattr(task, "_fut_waiter", None)], set()
    while pending:
        each = pending.pop()
        if each is None or id(each) in seen or each.done():
            continue
        seen.add(id(each))
        yield each
        pending.append(getattr(each, "_fut_waiter", None))
        pending.extend(getattr(each, "_children", ()))


def _state(task: asyncio.Task[Any], proc: Proc) -> tuple[str, str | None]:
    if not proc.steps:
        return "new", None
    awaited = getattr(task, "_fut_waiter", None)
    if awaited is None:
        return "yielding", None
    if not awaited.done():
        return "waiting", None
    if awaited.cancelled() or awaited.exception() is not None:
        return "woken", None
    return "woken", type(awaited.result()).__name__


def _frames(task: asyncio.Task[Any]) -> Frames:
    """The suspended chain of awaits, outermost first."""
    return [(f.f_code.co_filename, f.f_lineno, f.f_code.co_qualname) for f in _chain(task)]


def _chain(task: asyncio.Task[Any]) -> Iterator[Any]:
    awaited: Any = task.get_coro()
    while awaited is not None:
        frame = _either(awaited, "cr_frame", "gi_frame", "ag_frame")
        if frame is not None:
            yield frame
        awaited = _either(awaited, "cr_await", "gi_yieldfrom", "ag_await")


def _either(value: Any, *names: str) -> Any:
    return next((found for name in names if (found := getattr(value, name, None)) is not None), None)


def _timeout_around(loop: ControlledLoop, task: asyncio.Task[Any]) -> Handle | None:
    """The pending timer of the innermost timeout whose body `task` runs."""
    around = [timer for timer in loop._timers if not timer._cancelled and _body_of(timer) is task]
    return max(around, key=lambda timer: timer.seq, default=None)


def _body_of(timer: Handle) -> Any:
    """The task that a timeout's timer would cancel; None for another timer.

    `asyncio.timeout` keeps it as `_task`, a cancel scope of anyio as `_host_task`, async_timeout hands it over;
    `wait_for` before 3.12 resolves a future, on which the waiting frame knows what it runs.
    """
    callback = timer.callback
    name = getattr(callback, "__name__", "")
    if name in ("_on_timeout", "_timeout"):
        owner = getattr(callback, "__self__", None)
        held = (getattr(owner, "_task", None), getattr(owner, "_host_task", None), *timer.args)
        return next((each for each in held if isinstance(each, asyncio.Task)), None)
    if name == "_release_waiter" and timer.args:
        for waiting, _ in getattr(timer.args[0], "_callbacks", None) or ():
            task = getattr(waiting, "__self__", None)
            if isinstance(task, asyncio.Task):
                locals_of = [f.f_locals for f in _chain(task) if f.f_code is asyncio.wait_for.__code__]
                body = locals_of[-1].get("fut") if locals_of else None
                return body if isinstance(body, asyncio.Task) else task
    return None
