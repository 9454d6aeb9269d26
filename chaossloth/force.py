"""Force a failing schedule on the stock loop, in real time, by delaying nothing but awaits.

A schedule of the `stock` and `latency` models is a sequence of deliveries: which timers fire together, in which order.
Here each group of timers gets a slot on the real clock, a gap apart, and `loop.call_at` gives every planned timer the
slot of its group. Rounds between two slots take microseconds, the gap is milliseconds (epoll rounds up to whole ones),
so the stock loop goes through the same rounds as the schedule did. On a loaded machine the process may sleep through a
slot: a delivery that is then out of turn is put off until it is its turn. What else a schedule may hold:

* a bare yield that took time: the task's next step gets a slot instead of a place in the ready queue;
* a delivery while the loop was busy (*stall*): the named step sleeps until the slot of the next group is reached;
* a cancellation (`loop.cancelling`): the task is cancelled after the same step, at the end of that round, when the
  loop is about to poll (kind x), or in the slot of the group in which it came (kind z);
* collections: what nobody references is collected each time the loop is about to poll;
* timers that were not delivered before the failure: they keep their deadline, or come after the last slot.

An await may be extended, never shortened. A rehearsal run (not counted) learns how long each planned timer wants to
wait and after which group it is created; from that the slots are spread so that no timer fires before its own deadline.
Where the whole would take too long (a program that sleeps for minutes), the slots stay close and `how` says so: that
run shows the order, not the durations.

Draws are replayed from the schedule's seed, per task; clocks are left alone. Identities are those of `loop.identity`.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from chaossloth.evidence import Forced, Outcome
from chaossloth.loop import identity
from chaossloth.loop.collecting import collecting
from chaossloth.loop.quiet import QuietSelector
from chaossloth.loop.stock import Actor, Program, StockRun
from chaossloth.loop.virtual import real_monotonic, real_sleep, sources
from chaossloth.natural import judge_run
from chaossloth.plural import count

__all__ = ["Rehearsal", "StockPlan", "force", "force_outcomes"]

Delivery = tuple[str, int]

_SPREAD_S = 1e-7  # between timers of one group: above the clock's resolution, far below any wake-up's
_LIMIT_S = 5.0  # what a forced run may take beyond its last slot
_LONGEST_RUN_S = 0.5
_LONGEST_S = 20.0  # of all runs together
_PATIENCE_S = 0.25
_TASK_STEPS = frozenset({"TaskStepMethWrapper", "TaskWakeupMethWrapper", "__step", "__wakeup", "task_wakeup"})


@dataclass(frozen=True, slots=True)
class StockPlan:
    """A failing schedule as the stock loop needs it; JSON-able.

    seed:   of the draws; None leaves randomness alone.
    timers: groups in order of delivery; a group is delivered at one round boundary. An entry is (task identity, n): the
            n-th timer which that task or callback created (from 1), or with n < 0 its |n|-th bare yield.
    yields: bare yields (task identity, n > 0) that took time. Those without a place in `timers` come after all groups.
    stalls: (task identity, step ordinal, µs): this step lasts until the next group is due, at least so long.
    cancels: (task identity, step ordinal, kind "x" or "z"). One of kind z is in `timers` as (identity of the victim's
            callback 0, step ordinal).
    collect: collect what nobody references, see `loop.collecting`.
    """

    seed: int | None = None
    timers: tuple[tuple[Delivery, ...], ...] = ()
    yields: Collection[Delivery] = frozenset()
    stalls: tuple[tuple[str, int, float], ...] = ()
    cancels: tuple[tuple[str, int, str], ...] = ()
    collect: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain lists; `from_json` takes them back."""
        return {
            "seed": self.seed,
            "timers": [[list(entry) for entry in group] for group in self.timers],
            "yields": [list(entry) for entry in sorted(self.yields)],
            "stalls": [list(entry) for entry in self.stalls],
            "cancels": [list(entry) for entry in self.cancels],
            "collect": self.collect,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StockPlan:
        """The plan that `to_json` wrote."""
        groups = tuple(tuple((str(task), int(n)) for task, n in group) for group in value["timers"])
        yields = frozenset((str(task), int(n)) for task, n in value["yields"])
        stalls = tuple((str(task), int(step), float(us)) for task, step, us in value["stalls"])
        cancels = tuple((str(task), int(step), str(kind)) for task, step, kind in value.get("cancels", ()))
        return cls(value["seed"], groups, yields, stalls, cancels, bool(value.get("collect")))


@dataclass(slots=True)
class Rehearsal:
    """What a run showed of planned timers: {entry: (groups delivered when it was created, seconds it asked for)}."""

    asked: dict[Delivery, tuple[int, float]] = field(default_factory=dict)


def force(
    program: Program,
    plan: StockPlan,
    times: int = 20,
    gap_s: float = 0.004,
    *,
    is_subject: Callable[[str], bool],
) -> Forced:
    """Run the program `times` times under the plan; how many of the runs fail, and what was delayed.

    Fewer runs where they take long together (a run that waits for a timer far away ends by its limit).

    gap_s: seconds between two slots, not below 0.002 (epoll's granularity is 1 ms). KeyboardInterrupt passes through.
    """
    outcomes, how = force_outcomes(program, plan, times, gap_s, is_subject=is_subject)
    return Forced(len(outcomes), sum(not outcome.ok for outcome in outcomes), how)


def force_outcomes(
    program: Program, plan: StockPlan, times: int = 20, gap_s: float = 0.004, *, is_subject: Callable[[str], bool]
) -> tuple[tuple[Outcome, ...], str]:
    """As `force`: the outcome of each run, and the sentence about what was delayed."""
    even = [(k + 1) * gap_s for k in range(len(plan.timers))]
    slots, shortened = even, False
    if plan.timers:
        rehearsal = Rehearsal()
        _run(program, plan, even, gap_s, is_subject, rehearsal)
        spread = _spread(plan, rehearsal, gap_s)
        shortened = spread[-1] > max(_LONGEST_RUN_S, even[-1])
        slots = even if shortened else spread
    outcomes: list[Outcome] = []
    end = real_monotonic() + _LONGEST_S
    with collecting() if plan.collect else nullcontext():
        while len(outcomes) < times and (not outcomes or real_monotonic() < end):
            outcomes.append(_run(program, plan, slots, gap_s, is_subject, Rehearsal()))
    return tuple(outcomes), _how(plan, gap_s, shortened)


def _spread(plan: StockPlan, rehearsal: Rehearsal, gap_s: float) -> list[float]:
    """Slots (seconds from the start), a gap apart or more, each at or after the deadlines of its timers."""
    slots: list[float] = []
    for group in plan.timers:
        slot = (slots[-1] if slots else 0.0) + gap_s
        for entry in group:
            created_after, seconds = rehearsal.asked.get(entry, (0, 0.0))
            # Half a gap: the timer is created shortly after that slot, by a chain of steps.
            created = slots[created_after - 1] if 0 < created_after <= len(slots) else 0.0
            if seconds > 0:
                slot = max(slot, created + seconds + gap_s / 2)
        slots.append(slot)
    return slots


def _how(plan: StockPlan, gap_s: float, shortened: bool) -> str:
    added = {(identity.callback(task, 0), step) for task, step, _ in plan.cancels}
    timers = sum(n > 0 and (task, n) not in added for group in plan.timers for task, n in group)
    parts = []
    if timers:
        groups = count(len(plan.timers), "group")
        parts.append(f"{count(timers, 'timer')} delivered in {groups}, {gap_s * 1e3:g} ms apart")
    if plan.yields:
        parts.append(f"{count(len(plan.yields), 'sleep(0)')} extended")
    if plan.stalls:
        parts.append(f"{count(len(plan.stalls), 'step')} stalled")
    if plan.cancels:
        parts.append(f"{count(len(plan.cancels), 'task')} cancelled at the same suspension")
    if plan.collect:
        parts.append("garbage collected before each poll")
    if plan.seed is not None:
        parts.append(f"draws of seed {plan.seed}")
    if shortened:
        parts.append("long sleeps shortened: the order is shown, not the durations")
    return "; ".join(parts) or "nothing delayed"


def _run(
    program: Program,
    plan: StockPlan,
    slots: list[float],
    gap_s: float,
    is_subject: Callable[[str], bool],
    rehearsal: Rehearsal,
) -> Outcome:
    run = _ForcedRun(plan, slots, gap_s, is_subject, rehearsal)
    if plan.seed is None:
        return _judge(run, program, *run.execute(program))
    sources.enter(real_monotonic, real_sleep, plan.seed, lambda: run.current.identity, clocks=False)
    try:
        return _judge(run, program, *run.execute(program))
    finally:
        sources.leave()


def _judge(run: _ForcedRun, program: Program, result: Any, error: BaseException | None) -> Outcome:
    """As a natural run. Who ended by awaiting a task that the plan cancelled has not failed."""
    if run.cancelled and run.stop is None:
        if isinstance(error, asyncio.CancelledError):
            return Outcome(True)
        if error is None and program.kind == "calls":
            outcome: Outcome = program.judge_cancelled(result, frozenset(run.cancelled))  # type: ignore[attr-defined]
            return outcome
    return judge_run(run, program, result, error)


class _ForcedRun(StockRun):
    """A stock run whose planned timers come in slots; see the module docstring."""

    def __init__(
        self,
        plan: StockPlan,
        slots: list[float],
        gap_s: float,
        is_subject: Callable[[str], bool],
        rehearsal: Rehearsal,
    ) -> None:
        super().__init__(is_subject, _LIMIT_S + (slots[-1] if slots else 0.0))
        self._slots = slots
        self._gap = gap_s
        self._rehearsal = rehearsal
        self._places = {
            entry: (number, place) for number, group in enumerate(plan.timers) for place, entry in enumerate(group)
        }
        self._yields = set(plan.yields) | {(task, -n) for group in plan.timers for task, n in group if n < 0}
        self._stalls = {(task, step): us / 1e6 for task, step, us in plan.stalls}
        self._start: float | None = None
        self._reached = 0  # groups of which a timer has fired
        self._fired_at = 0  # the poll that delivered the last of them
        self._planned: list[_Fires] = []  # scheduled and not fired
        self._stalled: set[int] = set()  # groups that are to be delivered while the loop is busy
        self._cancels = {(task, step): kind for task, step, kind in plan.cancels}
        self._collect = plan.collect
        self.cancelled: list[str] = []  # names of the tasks that were cancelled
        self._at_round_end: list[_Cancels] = []
        self._real_select: Callable[..., Any] | None = None
        self._yielding: Actor | None = None  # its task has just made a bare yield that shall take time
        self._real_call_at: Callable[..., Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def hook(self, loop: asyncio.AbstractEventLoop, selector: QuietSelector) -> None:
        super().hook(loop, selector)
        self._loop, self._real_call_at = loop, loop.call_at
        self._real_select = selector.select
        if self._cancels or self._collect:
            selector.select = self._poll  # type: ignore[method-assign]
        selector.ready = loop._ready  # type: ignore[attr-defined]
        if self._start is None:
            self._start = loop.time()
        call_soon, run_in_executor = loop.call_soon, loop.run_in_executor
        create_task = loop.create_task

        def created(coro: Any, **kwargs: Any) -> asyncio.Task[Any]:
            task = create_task(coro, **kwargs)
            actor = getattr(task.get_coro(), "actor", None)
            if self._cancels and actor is not None:
                self._cancel_at(task, actor.identity, 0)
            return task

        def identified(callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:
            if not _is_task_step(callback):
                return call_soon(_Callback(self, callback), *args, context=context)
            actor, self._yielding = self._yielding, None
            if actor is None or args:
                return call_soon(callback, *args, context=context)
            return self._schedule((actor.identity, -actor.yields), loop.time(), callback, args, context)

        def counted(executor: Any, function: Callable[..., Any], *args: Any) -> Any:
            self.current.timers += 1  # work in a thread is one delivery of its creator, like a timer
            self.current.callbacks += 1
            return run_in_executor(executor, function, *args)

        loop.create_task = created  # type: ignore[method-assign]
        loop.call_soon = identified  # type: ignore[method-assign, assignment]
        loop.call_at = self._call_at  # type: ignore[method-assign, assignment]
        loop.run_in_executor = counted  # type: ignore[method-assign, assignment]

    # ------------------------------------------------------------------ timers

    def _call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:
        actor = self.current
        actor.timers += 1
        return self._schedule((actor.identity, actor.timers), when, _Callback(self, callback), args, context)

    def _schedule(
        self, entry: Delivery, when: float, callback: Callable[..., Any], args: Iterable[Any], context: Any
    ) -> Any:
        assert self._loop is not None and self._real_call_at is not None and self._start is not None
        place = self._places.get(entry)
        if place is None:
            if self._slots and self.judging:
                when = max(when, self._start + self._slots[-1] + self._gap)
        else:
            self._rehearsal.asked.setdefault(entry, (self._reached, when - self._loop.time()))
            number, position = place
            delivery = _Fires(self, number, callback)
            when = self._start + self._slots[number] + position * _SPREAD_S
            handle = delivery.handle = self._real_call_at(when, delivery, *args, context=context)
            self._planned.append(delivery)
            return handle
        return self._real_call_at(when, callback, *args, context=context)

    def postponed(self, delivery: _Fires, args: tuple[Any, ...]) -> bool:
        """True when this delivery would come out of turn (the process was not scheduled in time); it comes again.

        In turn means: no timer of an earlier group is left, none fired at this poll, and the loop had come to rest
        since then, unless the plan stalls a step for this group. A loop that never rests is given `_PATIENCE_S`.
        """
        assert self._loop is not None and self._real_call_at is not None and self._start is not None
        selector, group, now = self.selector, delivery.group, self._loop.time()
        assert selector is not None
        late = now - self._start - self._slots[group]
        if late > _PATIENCE_S:
            return False
        busy = group >= self._reached and selector.busy and group not in self._stalled
        same_poll = group >= self._reached > 0 and self._fired_at == selector.polled_ns
        if not (busy or same_poll or any(other.group < group and other.pending() for other in self._planned)):
            return False
        self._real_call_at(now if busy or same_poll else now + self._gap / 8, delivery, *args)
        return True

    def fired(self, delivery: _Fires) -> None:
        """A planned timer is delivered."""
        assert self.selector is not None
        self._planned.remove(delivery)
        self._reached = max(self._reached, delivery.group + 1)
        self._fired_at = self.selector.polled_ns

    # ------------------------------------------------------------------ cancellations

    def _cancel_at(self, task: asyncio.Task[Any], name: str, step: int) -> None:
        """The task is suspended after this step: have it cancelled, if the plan says so."""
        kind = self._cancels.get((name, step))
        if kind is None or not self.judging:
            return
        assert self._loop is not None and self.selector is not None
        actor = Actor(identity.callback(name, 0))
        if kind == "z":
            if (actor.identity, step) in self._places:
                cancel = _Cancels(self, task, actor, step)
                self._schedule((actor.identity, step), self._loop.time(), cancel, (), None)
            return
        self._at_round_end.append(_Cancels(self, task, actor, step))

    def _poll(self, timeout: float | None = None) -> Any:
        """The loop has run all that was ready: what is to happen at the end of that round happens now."""
        assert self._real_select is not None
        while self._at_round_end:
            self._at_round_end.pop(0)()
            timeout = 0
        if self._collect and self.judging:  # the main task has not ended
            gc.collect()
        return self._real_select(timeout)

    # ------------------------------------------------------------------ yields and stalls

    def suspended(self, delegate: Any, yielded: Any) -> Any:
        if self._cancels:
            task = asyncio.current_task()
            stepped: Any = task.get_coro() if task is not None else None
            if task is not None and stepped is delegate:
                self._cancel_at(task, stepped.actor.identity, stepped.actor.steps)
        if yielded is None:
            actor: Actor = delegate.actor
            actor.yields += 1
            if self.judging and (actor.identity, actor.yields) in self._yields:
                self._yielding = actor  # asyncio schedules the task's next step at once: see `hook`
        return yielded

    def step_ended(self, delegate: Any, started: int, ended: int) -> None:
        super().step_ended(delegate, started, ended)
        self.stall(delegate.actor)

    def stall(self, actor: Actor) -> None:
        """Keep the loop busy where the plan says so: the step lasts until the next group is due."""
        seconds = self._stalls.get((actor.identity, actor.steps))
        if seconds is None or not self.judging:
            return
        assert self._loop is not None and self._start is not None
        if self._reached < len(self._slots):
            self._stalled.add(self._reached)
            due = self._start + self._slots[self._reached] + len(self._places) * _SPREAD_S
            seconds = max(seconds, due - self._loop.time()) + 1e-4
        real_sleep(min(seconds, _LIMIT_S))


def _is_task_step(callback: Any) -> bool:
    """True for a step or wake-up of a task; a bound `task.cancel` is an ordinary callback."""
    if not isinstance(getattr(callback, "__self__", None), asyncio.Task):
        return False
    return type(callback).__name__ in _TASK_STEPS or getattr(callback, "__name__", "") in _TASK_STEPS


class _Callback:
    """A callback under the identity that it has by its creator."""

    __slots__ = ("__wrapped__", "_run", "actor")

    def __init__(self, run: _ForcedRun, callback: Callable[..., Any]) -> None:
        self.__wrapped__ = callback
        self._run = run
        creator = run.current
        creator.callbacks += 1
        self.actor = Actor(identity.callback(creator.identity, creator.callbacks))

    def __call__(self, *args: Any) -> None:
        run = self._run
        outer, run.current = run.current, self.actor
        self.actor.steps += 1
        try:
            self.__wrapped__(*args)
        finally:
            run.current = outer
            run.stall(self.actor)


class _Cancels:
    """Cancels a task that is still where it was, under the identity that the schedule gives to that."""

    __slots__ = ("_actor", "_run", "_step", "_task")

    def __init__(self, run: _ForcedRun, task: asyncio.Task[Any], actor: Actor, step: int) -> None:
        self._run, self._task, self._actor, self._step = run, weakref.ref(task), actor, step

    def __call__(self) -> None:
        run, task = self._run, self._task()
        delegate: Any = task.get_coro() if task is not None else None
        if task is None or task.done() or delegate.actor.steps != self._step:
            return
        outer, run.current = run.current, self._actor
        run.cancelled.append(task.get_name())
        try:
            task.cancel()
        finally:
            run.current = outer


class _Fires:
    """A planned delivery: says that its group is reached, then calls on; postponed when it would come out of turn."""

    __slots__ = ("__wrapped__", "_run", "group", "handle")

    def __init__(self, run: _ForcedRun, group: int, callback: Callable[..., Any]) -> None:
        self.__wrapped__ = callback
        self._run = run
        self.group = group
        self.handle: asyncio.TimerHandle | None = None  # what the program holds, and may cancel

    def pending(self) -> bool:
        """Neither fired nor cancelled."""
        return self.handle is not None and not self.handle.cancelled()

    def __call__(self, *args: Any) -> None:
        if self.pending() and not self._run.postponed(self, args):
            self._run.fired(self)
            self.handle = None
            self.__wrapped__(*args)
