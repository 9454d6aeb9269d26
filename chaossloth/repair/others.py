"""Who else writes the state: a lock protects only what every conflicting access holds.

The failing run shows the accesses of the racing tasks; other code of the class (for a global or a closure's variable:
of the module) may write the same attribute in another program. It is found in the source: stores to the attribute and
calls of mutating container methods on it, outside of constructors. A function that is only ever called under the lock
is protected by its callers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence

from chaossloth.repair.locks import acquiring, called_names, family, receiver
from chaossloth.repair.regions import Region, holds_forever, regions
from chaossloth.repair.sites import Function, Sites
from chaossloth.repair.source import FunctionNode, ModuleSource, own_nodes

__all__ = ["other_writers", "unprotected_note"]

_MUTATING = frozenset(
    {"add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove"}
    | {"reverse", "rotate", "setdefault", "sort", "update"}
)
_MAKERS = frozenset({"__init__", "__new__", "__post_init__", "__set_name__"})
_KEY = re.compile(r"\[('[^']*'|\"[^\"]*\"|-?\d+)\]$")
_NONE = "\0"  # the name of no lock: `acquiring` then follows calls only


def other_writers(sites: Sites, chosen: Sequence[Region]) -> tuple[list[Region], list[Function]]:
    """(regions to hold the same lock in, functions that stay unprotected) for a lock in the chosen regions."""
    module = chosen[0].function.module
    extra: list[Region] = []
    left: list[Function] = []
    for function in _writers(sites, chosen):
        if _called_under(module, function.node, [*chosen, *extra]):
            continue
        region = _region(module, function, [*chosen, *extra])
        if region is None:
            left.append(function)
        else:
            extra.append(region)
    return extra, left


def unprotected_note(sites: Sites, left: Iterable[Function]) -> str:
    names = ", ".join(f"{f.node.name} (line {min(f.lines)})" for f in left)
    return f"other users of {sites.diagnosis.pair[0].object} stay unprotected: {names}" if names else ""


def _writers(sites: Sites, chosen: Sequence[Region]) -> list[Function]:
    state, module = sites.state, chosen[0].function.module
    inside = {r.function.node for r in chosen}
    found: list[Function] = []
    for node in module.functions:
        if node in inside or node.name in _MAKERS or not _in_reach(sites, module, node, inside):
            continue
        lines, writes = _accesses(sites, module, node)
        if not writes:
            continue
        known = sites.functions.get(node)
        touched = {**dict.fromkeys(lines, ()), **(known.lines if known else {})}
        found.append(Function(module, node, touched, frozenset(lines)))
    return [f for f in found if state.module in (module, None)]


def _in_reach(sites: Sites, module: ModuleSource, node: FunctionNode, inside: set[FunctionNode]) -> bool:
    state = sites.state
    if state.scope in ("module", "closure"):
        return state.attribute not in module.locals_of(node) or node is state.owner
    held = receiver(module, node)
    if state.scope != "instance" or held is None or not isinstance(state.owner, ast.ClassDef):
        return False
    mine = family(module, held[0])
    return state.owner in mine or held[0] in family(module, state.owner)


def _accesses(sites: Sites, module: ModuleSource, node: FunctionNode) -> tuple[list[int], bool]:
    """Lines of the function that touch the state, and whether one of them writes it."""
    state = sites.state
    held = receiver(module, node)
    lines: set[int] = set()
    writes = False
    for part in own_nodes(*node.body):
        if isinstance(part, ast.Attribute) and state.scope == "instance":
            if part.attr != state.attribute or not isinstance(part.value, ast.Name):
                continue
            if held is None or part.value.id != held[1]:
                continue
        elif isinstance(part, ast.Name) and state.scope in ("module", "closure"):
            if part.id != state.attribute:
                continue
        else:
            continue
        verdict = _use(sites, module, part)
        if verdict is None:
            continue
        lines.add(part.lineno)
        writes |= verdict
    return sorted(lines), writes


def _use(sites: Sites, module: ModuleSource, part: ast.Attribute | ast.Name) -> bool | None:
    """Does this use write the contested location? None where it names another item of the container."""
    above = module.parents[part]
    if isinstance(above, ast.Subscript) and above.value is part:
        wanted = _KEY.search(sites.diagnosis.pair[0].object)
        if wanted and isinstance(above.slice, ast.Constant) and repr(above.slice.value) != wanted[1]:
            return None
        return not isinstance(above.ctx, ast.Load)
    if isinstance(above, ast.Attribute):
        return above.attr in _MUTATING and isinstance(module.parents[above], ast.Call)
    return not isinstance(part.ctx, ast.Load)


def _region(module: ModuleSource, function: Function, held: Sequence[Region]) -> Region | None:
    """The smallest run that holds all its uses, unless the lock would be taken twice there or waits for others."""
    if any(holds_forever(r) for r in held) or not isinstance(function.node, ast.AsyncFunctionDef):
        return None
    if function.node.name in _reached(module, [s for r in held for s in r.statements]):
        return None
    takers = acquiring(module, _NONE, [r.function.node for r in held])
    fit = [r for r in regions(function) if not holds_forever(r) and not called_names(r.statements) & takers]
    return fit[0] if fit else None


def _reached(module: ModuleSource, statements: Sequence[ast.stmt]) -> set[str]:
    """Names of the functions that running the statements may call, also through others of the module."""
    reached: set[str] = set()
    new = called_names(statements)
    while new:
        reached |= new
        new = {n for f in module.functions if f.name in new for n in called_names(f.body)} - reached
    return reached


def _called_under(module: ModuleSource, node: FunctionNode, held: Sequence[Region]) -> bool:
    """A helper (by its name not for others) all of whose calls in the module stand in the regions."""
    if not node.name.startswith("_") or node.name.startswith("__"):
        return False
    calls = [
        n
        for n in ast.walk(module.tree)
        if isinstance(n, (ast.Attribute, ast.Name)) and node.name == (n.attr if isinstance(n, ast.Attribute) else n.id)
    ]
    return bool(calls) and all(any(r.lines[0] <= n.lineno <= r.lines[1] for r in held) for n in calls)
