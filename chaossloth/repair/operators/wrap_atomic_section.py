"""WRAP_ATOMIC_SECTION: `async with self._lock:` around the state transition, and no more.

Preconditions: the region stands in an async function, holds an await and the critical pair's lines, yields nothing,
and lies under no thread lock; no call in it takes the same lock, and the lock is not held there already. Where the
pair's two accesses have no function in common, both functions get a region under the same lock (one patch).
Ranking: scope of the lock against scope of the state, waits and nesting under the lock, reuse of a lock that
guards the state elsewhere, the function nearest to the accesses (a caller's one line holds all of its callee), a region
without foreign statements at its ends, then the smaller region.
Other code that writes the same state takes the lock too; what cannot is named in the candidate's reason (`others`).
An extra variant moves awaits that nothing in the region needs in front of the lock: delays stay outside.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product

from chaossloth.diagnose.intents import WRAP_ATOMIC_SECTION
from chaossloth.evidence import RepairIntent
from chaossloth.repair.dataflow import awaits, bound_names, loaded_names, local_read, parked_waits, stored_paths
from chaossloth.repair.locks import Lock, acquiring, called_names, locks_for
from chaossloth.repair.others import other_writers, unprotected_note
from chaossloth.repair.proposal import Proposal
from chaossloth.repair.regions import Region, holds_forever, regions, under_async_with
from chaossloth.repair.render import Draft, Item, Keep, Suite
from chaossloth.repair.sites import Function, Sites
from chaossloth.repair.source import own_nodes

__all__ = ["propose"]

_WAITS, _WEAK, _NESTED = 6, 4, 2
_MAX_COMBINED = 6


def propose(sites: Sites, refused: list[str]) -> Iterable[Proposal]:
    for depth, group in _groups(sites):
        for chosen in _choices(sites, group):
            if sites.diagnosis.pattern == "lost-update" and not any(r.strong for r in chosen):
                continue  # no task both reads and writes under this lock: nothing becomes atomic
            extra, left = other_writers(sites, chosen)
            yield from _under_locks(sites, chosen, extra, left, depth, refused)
            if extra:
                rest = [*left, *(r.function for r in extra)]
                yield from _under_locks(sites, chosen, [], rest, depth, refused)


def _under_locks(
    sites: Sites,
    chosen: Sequence[Region],
    extra: Sequence[Region],
    left: Sequence[Function],
    depth: int,
    refused: list[str],
) -> Iterator[Proposal]:
    """One proposal per lock that could guard the regions; `left` are writers of the state that none of them holds."""
    held = [*chosen, *extra]
    for lock in locks_for(sites.state, [r.function for r in held]):
        reason = _unfit(lock, held)
        if reason:
            refused.append(f"{WRAP_ATOMIC_SECTION} {_where(held)}: {reason}")
            continue
        note = unprotected_note(sites, [f for f in left if not _holds(lock, f)])
        yield _proposal(lock, chosen, depth, extra=extra, open_note=note, open_count=len(left))
        if len(chosen) == 1 and (moved := _independent_awaits(chosen[0])):
            yield _proposal(lock, chosen, depth, moved, extra, note, len(left))


def _holds(lock: Lock, function: Function) -> bool:
    """Does the function take the reused lock already around all its uses of the state?"""
    nodes = list(own_nodes(*function.node.body))
    wraps = [
        n
        for n in nodes
        if isinstance(n, ast.AsyncWith) and any(ast.unparse(i.context_expr) in lock.expressions for i in n.items)
    ]
    return lock.reused and all(
        any(w.lineno <= line <= (w.end_lineno or w.lineno) for w in wraps) for line in function.lines
    )


def _groups(sites: Sites) -> Iterator[tuple[int, list[Function]]]:
    """(depth, functions to lock in): every function both accesses went through, and pairs that only one went
    through."""
    first, second = sites.pair_chains
    for node in first:
        if node in second:
            yield max(first.index(node), second.index(node)), [sites.functions[node]]
    for a, b in product(first, second):
        if a not in second and b not in first:
            yield max(first.index(a), second.index(b)), [sites.functions[a], sites.functions[b]]


def _choices(sites: Sites, group: Sequence[Function]) -> Iterator[tuple[Region, ...]]:
    """One region per function. A partner that only touches the state once may be locked without an await in it."""
    options = [regions(f) for f in group]
    if len(group) == 1:
        singles = [r for r in options[0] if r.awaits]
        yield from ((r,) for r in singles)
        for region in singles[:_MAX_COMBINED]:
            others = _uncovered(sites, region)
            if others:
                yield (region, *others)
        return
    combined = [c for c in product(*(o[:_MAX_COMBINED] for o in options)) if any(r.awaits for r in c)]
    combined.sort(key=lambda c: (not any(r.strong for r in c), sum(not r.tight for r in c), sum(r.size for r in c)))
    yield from combined[:_MAX_COMBINED]


def _uncovered(sites: Sites, region: Region) -> list[Region]:
    """Tight regions in sibling methods whose conflicting accesses do not run under the region."""
    function, (first, last) = region.function, region.lines
    held = {t.order for t in function.touches_between(first, last)}
    cls = function.module.owner_class(function.node)
    found: list[Region] = []
    for other in sites.functions.values():
        sibling = cls is not None and other.module is function.module and function.module.owner_class(other.node) is cls
        if other.node is function.node or not sibling:
            continue
        loose = [t for ts in other.lines.values() for t in ts if t.order not in held]
        inner = [r for r in regions(other) if r.strong]
        if loose and inner:
            found.append(inner[0])
    return found[:3]


def _unfit(lock: Lock, chosen: Sequence[Region]) -> str:
    module = chosen[0].function.module
    wrapped = [r.function.node for r in chosen]
    takers = acquiring(module, lock.name, wrapped)
    for region, expression in zip(chosen, lock.expressions, strict=True):
        if called_names(region.statements) & takers:
            return "a call in the region takes the same lock, which is not re-entrant"
        inner = [
            ast.unparse(i.context_expr)
            for n in own_nodes(*region.statements)
            if isinstance(n, ast.AsyncWith)
            for i in n.items
        ]
        if expression in [*inner, *under_async_with(region.function, region.statements[0])]:
            return f"{expression} is held there already"
    return ""


def _where(chosen: Sequence[Region]) -> str:
    return ", ".join(f"{r.function.name}:{r.lines[0]}" for r in chosen)


def _penalty(lock: Lock, chosen: Sequence[Region]) -> int:
    total = lock.penalty
    total += _WAITS * any(holds_forever(r) for r in chosen)
    total += _WEAK * (not any(r.strong for r in chosen))
    nested = any(
        under_async_with(r.function, r.statements[0])
        or any(isinstance(n, ast.AsyncWith) for n in own_nodes(*r.statements))
        for r in chosen
    )
    return total + _NESTED * nested


def _proposal(
    lock: Lock,
    base: Sequence[Region],
    depth: int,
    moved: Sequence[ast.stmt] = (),
    extra: Sequence[Region] = (),
    open_note: str = "",
    open_count: int = 0,
) -> Proposal:
    chosen = [*base, *extra]
    region = chosen[0]
    spans = [r.lines for r in base]
    where = " and ".join(f"lines {a} to {b}" if a != b else f"line {a}" for a, b in spans)
    why = f"{where} must not be interleaved: {lock.expressions[0]} is held from the first to the last access"
    why += f" ({lock.note})" if lock.note else ""
    if extra:
        also = ", ".join(f"{r.function.name} (line {r.lines[0]})" for r in extra)
        why += f"; the same lock in the other writers: {also}"
    why += f"; {open_note}" if open_note else ""
    target = ", ".join(dict.fromkeys(r.function.name for r in chosen))
    intent = RepairIntent(WRAP_ATOMIC_SECTION, target, spans[0], why)
    size = sum(r.size for r in chosen) - len(moved)
    preference = (
        not lock.reused,
        open_count if open_note else 0,
        len(base),
        depth,
        sum(not r.tight for r in chosen),
        size,
    )
    notes = [note for note in (lock.note, open_note) if note]
    if moved:
        notes.append(f"the await at line {moved[0].lineno} moves in front of the lock")
    return Proposal(
        region.function.module, intent, _make(lock, chosen, moved), _penalty(lock, chosen), preference, "; ".join(notes)
    )


def _make(lock: Lock, chosen: Sequence[Region], moved: Sequence[ast.stmt]) -> Callable[[Draft], None]:
    def make(draft: Draft) -> None:
        lock.declare(draft)
        for region, expression in zip(chosen, lock.expressions, strict=True):
            run = region.statements
            inside = [s for s in run if s not in moved]
            header = f"async with {expression}:"
            plan: list[Item] = [*map(Keep, moved), Suite(header, tuple(map(Keep, inside)))]
            draft.rewrite(region.block, region.first, region.last, plan)
            copies = {s: draft.copy(s) for s in run}
            section = ast.AsyncWith(
                items=[ast.withitem(context_expr=_expression(expression), optional_vars=None)],
                body=[copies[s] for s in inside],  # type: ignore[misc]
            )
            draft.replace_run(region.block, run[0], run[-1], [*(copies[s] for s in moved), section])

    return make


def _expression(dotted: str) -> ast.expr:
    first, *rest = dotted.split(".")
    node: ast.expr = ast.Name(id=first, ctx=ast.Load())
    for name in rest:
        node = ast.Attribute(value=node, attr=name, ctx=ast.Load())
    return node


def _independent_awaits(region: Region) -> list[ast.stmt]:
    """Awaits in the region that could as well run before it: they touch no state and need nothing computed in it."""
    touched = set(region.function.lines)
    moved: list[ast.stmt] = []
    passed: list[ast.stmt] = []
    for statement in region.statements:
        own = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
        plain = isinstance(statement, ast.Expr | ast.Assign) and isinstance(statement.value, ast.Await)
        if plain and not touched & set(own) and passed and _overtakes(statement, passed):
            moved.append(statement)
        else:
            passed.append(statement)
    rest_awaits = awaits(passed)
    return moved if rest_awaits else []


def _overtakes(statement: ast.stmt, passed: Sequence[ast.stmt]) -> bool:
    names, loads = bound_names([statement]), loaded_names([statement])
    return (
        all(local_read(s) for s in passed)
        and not loads & bound_names(passed)
        and not names & (bound_names(passed) | loaded_names(passed))
        and not stored_paths([statement])
        and not parked_waits([statement])
    )
