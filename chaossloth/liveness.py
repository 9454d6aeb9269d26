"""Deadlock and livelock: who waits for whom when nothing can run, and which lock orders could get there.

The hard part is what a suspended task waits for. The watch on primitives knows operations and holders; everything else
is read from the suspended task: `_fut_waiter` is the future it parks on, and the frames of its await chain tell a
gather, a TaskGroup, `wait`, `wait_for`, `as_completed` or `shield` and so the tasks behind that future.

Wait-for graph: nodes are tasks, an edge T -> H says that H holds what T waits for, or is what T waits for (Holt 1972).
The audit is asked when no task can run, so every holder is stuck itself and a cycle is a deadlock even where one of
several holders (a semaphore) would do. Waiters of an event, a condition, a queue or a bare future have no holder.
Conditions are the four of Coffman, Elphick and Shoshani (1971).

Lock order: a cycle is a possible deadlock only if its edges come from different tasks and no lock is held in two of
them (a gate lock), as in Goodlock (Havelund 2000) and iGoodlock (Joshi, Park, Sen and Naik 2009).
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from chaossloth.evidence import DeadlockReport, Frame, LockOrderEdge, WaitEdge
from chaossloth.subject.primitives import Permit, Resource, Wait, as_frame, watch

__all__ = ["describe_deadlock", "detect_livelock", "lock_order_cycles", "suspended_at"]

Task = asyncio.Task[Any]
_SUSPENDED = (types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType)
_MAX_CYCLES = 1000  # cycles looked at, and edge combinations per cycle
_MAX_LENGTH = 8  # tasks in one cycle of the lock order
_SHOWN = 5  # waiters named in one sentence

_WORDS = {
    ("Condition", "wait"): "to be notified on {}",
    ("Event", "wait"): "for {} to be set",
    ("Queue", "get"): "for an item from {}",
    ("Queue", "put"): "for room in {}",
    ("Queue", "join"): "for {} to be worked off (task_done)",
    ("Barrier", "wait"): "at barrier {}",
}


@dataclass(frozen=True, slots=True)
class _Holder:
    """Whom a wait depends on: a task, or (task None) one that ended and took the permit with it."""

    task: Task | None
    name: str
    since: Frame | None


@dataclass(frozen=True, slots=True)
class _Waiting:
    """One waiting task. resource None: it waits for tasks or a bare future; phrase: what follows "waits"."""

    task: Task
    resource: Resource | None
    name: str
    operation: str
    phrase: str
    at: Frame | None
    holders: tuple[_Holder, ...]

    def edge(self, name_of: Callable[[Task], str], holder: _Holder | None) -> WaitEdge:
        since = holder.since if holder else None
        return WaitEdge(name_of(self.task), self.name, self.operation, self.at, holder.name if holder else None, since)


def describe_deadlock(tasks: list[Task], name_of: Callable[[Task], str]) -> DeadlockReport:
    """What the unfinished tasks wait for, now that none of them can run.

    kind: "self-deadlock", "cycle", "lost-wakeup" (waiters that nobody holds up and nobody is left to wake), else
    "all-waiting". Read-only; the result holds no reference to a task.
    """
    pending = [task for task in tasks if not task.done()]
    name_of = _distinct(pending, name_of)
    waits = [each for each in (_what_for(task, pending, name_of) for task in pending) if each is not None]
    cycle = _wait_cycle(waits, name_of)
    if cycle is not None:
        return _cycle_report(cycle, name_of)
    edges = tuple(each.edge(name_of, each.holders[0] if each.holders else None) for each in waits)
    orphans = [each for each in waits if not each.holders]
    if orphans and len(waits) == len(pending) and any(_is_signal(each) for each in orphans):
        return DeadlockReport("lost-wakeup", edges, _lost_wakeup_sentence(orphans, waits, name_of))
    return DeadlockReport("all-waiting", edges, _all_waiting_sentence(waits, name_of))


def _distinct(tasks: Sequence[Task], name_of: Callable[[Task], str]) -> Callable[[Task], str]:
    """The same names, numbered in the given order where several of these tasks share one."""
    shared: dict[str, list[Task]] = {}
    for task in tasks:
        shared.setdefault(name_of(task), []).append(task)
    numbered = {
        id(task): f"{name} #{number}"
        for name, group in shared.items()
        if len(group) > 1
        for number, task in enumerate(group, 1)
    }
    return lambda task: numbered.get(id(task)) or name_of(task)


# -- what one task waits for -------------------------------------------------------------------------------------------


def suspended_at(task: Task) -> Frame | None:
    """The deepest subject frame of the task's await chain (`watch.is_subject`), None if it has none or has ended."""
    innermost = None
    for frame in _await_chain(task):
        if watch.is_subject(frame.f_code.co_filename):
            innermost = Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname)
    return innermost


def _await_chain(task: Task) -> Iterator[types.FrameType]:
    """Frames from the task's coroutine inwards to where it is suspended."""
    here: Any = task.get_coro()
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


def _what_for(task: Task, pending: list[Task], name_of: Callable[[Task], str]) -> _Waiting | None:
    """None: the task is not suspended, it could run."""
    parked = getattr(task, "_fut_waiter", None)
    if parked is None or parked.done():
        return None
    at = suspended_at(task)
    chain = list(_await_chain(task))
    found = _behind(parked, chain, pending)
    if found is not None:
        operation, others = found
        name = " or ".join(name_of(each) for each in others) if operation == "first of" else _listed(others, name_of)
        label = f"task {name}" if len(others) == 1 else f"tasks {name}"
        holders = tuple(_Holder(each, name_of(each), None) for each in others)
        return _Waiting(task, None, label, operation, f"for {label}", at, holders)
    wait = watch.waiting(task)
    if wait is not None:
        return _on_primitive(task, wait, at, name_of)
    name = _future_name(parked)
    return _Waiting(task, None, name, "await", f"for {name}", at, ())


def _listed(tasks: Sequence[Task], name_of: Callable[[Task], str]) -> str:
    names = [name_of(task) for task in tasks]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _future_name(future: Any) -> str:
    known = watch.recorder.name_of(future) if watch.recorder is not None else None
    return f"future {known}" if known else "a future"


def _on_primitive(task: Task, wait: Wait, at: Frame | None, name_of: Callable[[Task], str]) -> _Waiting:
    resource = wait.resource
    holders = tuple(_holder(permit, name_of) for permit in resource.permits) if wait.operation == "acquire" else ()
    name, obj = watch.label(resource), resource.ref()
    family = next(
        (each for each in ("Condition", "Event", "Queue", "Barrier") if isinstance(obj, _class(each))), "Lock"
    )
    phrase = _WORDS.get((family, wait.operation), "for {}").format(name)
    operation = f"{resource.kind}.{wait.operation}"
    return _Waiting(task, resource, name, operation, phrase, at or as_frame(wait.at), holders)


def _class(name: str) -> type:
    found: type = getattr(asyncio, name)
    return found


def _holder(permit: Permit, name_of: Callable[[Task], str]) -> _Holder:
    task = permit.owner.ref()
    name = watch.owner_name(permit.owner) if task is None else name_of(task)
    return _Holder(None if task is None or task.done() else task, name, as_frame(permit.at))


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


# -- the wait-for graph ------------------------------------------------------------------------------------------------

_Cycle = list[tuple[_Waiting, _Holder]]


def _wait_cycle(waits: Sequence[_Waiting], name_of: Callable[[Task], str]) -> _Cycle | None:
    """The shortest cycle, a self-deadlock first; among equals the one that starts with the first name."""
    import networkx as nx

    graph: Any = nx.DiGraph()
    by_task = {id(each.task): each for each in waits}
    for each in waits:
        for holder in each.holders:
            if holder.task is not None and id(holder.task) in by_task:
                graph.add_edge(id(each.task), id(holder.task), holder=holder)
    names = {key: name_of(each.task) for key, each in by_task.items()}
    cycles = list(itertools.islice(nx.simple_cycles(graph), _MAX_CYCLES))
    if not cycles:
        return None
    rotated = [_from_smallest(cycle, names) for cycle in cycles]
    best = min(rotated, key=lambda cycle: (len(cycle), [names[key] for key in cycle]))
    steps = zip(best, [*best[1:], best[0]], strict=True)
    return [(by_task[here], graph.edges[here, there]["holder"]) for here, there in steps]


def _from_smallest(cycle: Sequence[int], names: dict[int, str]) -> list[int]:
    start = min(range(len(cycle)), key=lambda i: names[cycle[i]])
    return [*cycle[start:], *cycle[:start]]


def _cycle_report(cycle: _Cycle, name_of: Callable[[Task], str]) -> DeadlockReport:
    edges = tuple(waiting.edge(name_of, holder) for waiting, holder in cycle)
    locks = all(waiting.resource is not None for waiting, _ in cycle)
    if len(cycle) == 1:
        return DeadlockReport("self-deadlock", edges, _self_sentence(*cycle[0], edges[0]), _coffman(cycle, edges))
    clauses = [_cycle_clause(cycle[i - 1], cycle[i], edges[i].task) for i in range(len(cycle))]
    return DeadlockReport("cycle", edges, "; ".join(clauses), _coffman(cycle, edges) if locks else ())


def _self_sentence(waiting: _Waiting, holder: _Holder, edge: WaitEdge) -> str:
    kind = waiting.resource.kind if waiting.resource else "it"
    return (
        f"{edge.task} holds {edge.resource}{_since(holder.since)} and waits for it again{_at(waiting.at)}; "
        f"asyncio.{kind} is not reentrant"
    )


def _cycle_clause(before: tuple[_Waiting, _Holder], here: tuple[_Waiting, _Holder], task: str) -> str:
    wanted, held = before
    holds = f"{task} holds {wanted.name}{_since(held.since)} and waits" if wanted.resource else f"{task} waits"
    return f"{holds} {here[0].phrase}{_at(here[0].at)}"


def _coffman(cycle: _Cycle, edges: tuple[WaitEdge, ...]) -> tuple[str, ...]:
    tasks = [edge.task for edge in edges]
    kinds = dict.fromkeys(f"{w.name} ({w.resource.kind}, {_capacity(w.resource)})" for w, _ in cycle if w.resource)
    held = [
        f"{edge.task} keeps {before.resource}{_since(before.held_at)} while it waits for {edge.resource}{_at(edge.at)}"
        for before, edge in zip((edges[-1], *edges[:-1]), edges, strict=True)
    ]
    return (
        f"mutual exclusion: {', '.join(kinds)}",
        f"hold and wait: {'; '.join(held)}",
        f"no preemption: only release() frees these, and {_names(tasks)} cannot reach {_theirs(tasks)}",
        f"circular wait: {' → '.join([*tasks, tasks[0]])}",
    )


def _capacity(resource: Resource) -> str:
    return "one holder at a time" if resource.mutex else f"all {len(resource.permits)} permits taken"


def _theirs(tasks: Sequence[str]) -> str:
    return "its own" if len(tasks) == 1 else "theirs"


# -- sentences ---------------------------------------------------------------------------------------------------------


def _place(frame: Frame) -> str:
    return f"{os.path.basename(frame.file)}:{frame.line}"


def _at(frame: Frame | None) -> str:
    return f" at {_place(frame)}" if frame else ""


def _since(frame: Frame | None) -> str:
    return f" (since {_place(frame)})" if frame else ""


def _names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _is_signal(each: _Waiting) -> bool:
    """Somebody would have to act to end this wait; a lock without a known holder is another matter."""
    mutex = each.resource is not None and each.resource.mutex
    return not mutex


def _lost_wakeup_sentence(orphans: list[_Waiting], waits: list[_Waiting], name_of: Callable[[Task], str]) -> str:
    signals = [each for each in orphans if _is_signal(each)]
    rest = [each for each in waits if each not in signals]
    first = _clauses(signals, name_of)
    others = f"; {_clauses(rest, name_of)}" if rest else ""
    deed = {"wait": "wake", "get": "put an item for", "put": "take an item for", "join": "call task_done() for"}
    verbs = {deed.get(each.operation.rpartition(".")[2], "wake") for each in signals}
    verb = verbs.pop() if len(verbs) == 1 else "wake"
    whom = "it" if len(signals) == 1 else "them"
    return f"{first}{others}; every other task has ended, so nobody is left to {verb} {whom}"


def _all_waiting_sentence(waits: list[_Waiting], name_of: Callable[[Task], str]) -> str:
    return _clauses(waits, name_of) or "no unfinished task waits for anything that is known"


def _clauses(waits: list[_Waiting], name_of: Callable[[Task], str]) -> str:
    clauses = [f"{name_of(each.task)} waits {each.phrase}{_at(each.at)}{_held_by(each)}" for each in waits[:_SHOWN]]
    more = len(waits) - _SHOWN
    return "; ".join([*clauses, *([f"{more} more wait"] if more > 0 else [])])


def _held_by(each: _Waiting) -> str:
    if each.resource is None or not each.holders:
        return ", which no task is known to hold" if each.resource is not None and each.resource.mutex else ""
    ended = [f"{h.name}{_since(h.since)}" + (", which has ended" if h.task is None else "") for h in each.holders]
    return f", held by {'; '.join(ended)}"


# -- lock order --------------------------------------------------------------------------------------------------------


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


# -- livelock ----------------------------------------------------------------------------------------------------------


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
    shown = [f"{task} at {_place(at)} ({at.function})" if at.line else task for task, at in part[start:] + part[:start]]
    more = f" → … {period - 12} more" if period > 12 else ""
    return f"{' → '.join(shown[:12])}{more}, {covered // period} times"


def _periodic(tail: Sequence[tuple[str, Frame]], period: int) -> int:
    """Length of the longest suffix that has this period; 0 if it is shorter than three of them."""
    equal = 0
    last = len(tail) - 1
    while last - equal - period >= 0 and tail[last - equal] == tail[last - equal - period]:
        equal += 1
    return equal + period if equal >= 2 * period else 0
