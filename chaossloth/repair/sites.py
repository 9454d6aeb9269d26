"""Where the contested state is touched, and what it belongs to: the sites that operators work on.

Edits are tied to the critical pair (a search over all sites of a class finds patches that pass by luck). An access has
a stack, innermost first: `_load` read it, but `grant` called `_load` and then `_save`, so `grant` holds the transition.
Every function of the stacks is a possible place; how far out it lies from the access ("depth") is a rank, not a filter.

The state's scope (instance, class, module, closure) decides where a lock for it must live: a lock of narrower scope
than the state passes the test at hand and still leaves the race between two objects.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from chaossloth.diagnose.patterns import Diagnosis, Touch
from chaossloth.evidence import CriticalAccess, Frame
from chaossloth.repair.source import FunctionNode, ModuleSource

__all__ = ["Function", "Sites", "State"]

_ATTRIBUTE = re.compile(r"[.]<?([A-Za-z_]\w*)>?|^<?([A-Za-z_]\w*)>?")


@dataclass(frozen=True, slots=True)
class State:
    """What the contested location belongs to.

    scope: "instance", "class", "module", "closure" or "unknown". owner: the class, module or function that holds it.
    attribute: the first name below the owner ("sessions" of SharedSessionStore.sessions['u1']).
    """

    scope: str
    owner: ast.AST | None
    module: ModuleSource | None
    attribute: str


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the subject in which contested accesses happened. lines: touches by line, in this function."""

    module: ModuleSource
    node: FunctionNode
    lines: dict[int, tuple[Touch, ...]]
    required: frozenset[int]  # lines of the critical pair

    @property
    def name(self) -> str:
        return self.module.qualified_name(self.node)

    def touches_between(self, first: int, last: int) -> list[Touch]:
        return [t for line, touches in self.lines.items() if first <= line <= last for t in touches]

    def direct(self, line: int, reads: bool) -> bool:
        """Does this function itself (no callee) read (or write) the location at the line?"""
        return any(
            (t.reads if reads else t.writes) and t.stack and t.stack[0].line == line for t in self.lines.get(line, ())
        )


@dataclass
class Sites:
    """Questions about one diagnosis, answered with nodes of the parsed sources."""

    diagnosis: Diagnosis
    modules: dict[str, ModuleSource] = field(default_factory=dict)
    unparsed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        named = {f.file for t in self.diagnosis.touches for f in t.stack}
        named |= {f.file for c in self.diagnosis.pair for f in _frames(c)}
        for path, text in self.diagnosis.sources.items():
            if path in named:
                try:
                    self.modules[path] = ModuleSource(path, text)
                except (SyntaxError, ValueError) as error:
                    self.unparsed.append(f"{path}: {error}")

    def function_of(self, frame: Frame) -> tuple[ModuleSource, FunctionNode] | None:
        module = self.modules.get(frame.file)
        node = module.function_at(frame.line) if module else None
        return (module, node) if module and node else None

    def chain(self, frames: Iterable[Frame]) -> list[FunctionNode]:
        """The distinct functions of a stack, innermost first."""
        found: list[FunctionNode] = []
        for frame in frames:
            held = self.function_of(frame)
            if held and held[1] not in found:
                found.append(held[1])
        return found

    @cached_property
    def pair_chains(self) -> tuple[list[FunctionNode], list[FunctionNode]]:
        """The functions of the first and of the second critical access; empty lists without a pair."""
        pair = self.diagnosis.pair
        if len(pair) < 2:
            return [], []
        return self.chain(_frames(pair[0])), self.chain(_frames(pair[1]))

    @cached_property
    def functions(self) -> dict[FunctionNode, Function]:
        """Every function in which the location was touched, directly or through calls."""
        lines: dict[FunctionNode, dict[int, list[Touch]]] = {}
        where: dict[FunctionNode, ModuleSource] = {}
        required: dict[FunctionNode, set[int]] = {}
        for touch in self.diagnosis.touches:
            for module, node, line in self._positions(touch.stack):
                where[node] = module
                lines.setdefault(node, {}).setdefault(line, []).append(touch)
        for critical in self.diagnosis.pair:
            for module, node, line in self._positions(_frames(critical)):
                where[node] = module
                required.setdefault(node, set()).add(line)
                lines.setdefault(node, {}).setdefault(line, [])
        return {
            node: Function(
                where[node], node, {n: tuple(ts) for n, ts in by_line.items()}, frozenset(required.get(node, ()))
            )
            for node, by_line in lines.items()
        }

    def _positions(self, frames: Iterable[Frame]) -> list[tuple[ModuleSource, FunctionNode, int]]:
        seen: set[FunctionNode] = set()
        found: list[tuple[ModuleSource, FunctionNode, int]] = []
        for frame in frames:
            held = self.function_of(frame)
            if held and held[1] not in seen:
                seen.add(held[1])
                found.append((*held, frame.line))
        return found

    def direct_functions(self) -> list[Function]:
        """Functions whose own lines the critical pair names (innermost frames), first access first."""
        found: list[Function] = []
        for chain in self.pair_chains:
            for node in chain[:1]:
                if self.functions[node] not in found:
                    found.append(self.functions[node])
        return found

    # -- the state's scope -----------------------------------------------------------------------------------------

    @cached_property
    def state(self) -> State:
        pair = self.diagnosis.pair
        name = pair[0].object if pair else ""
        path = [a or b for a, b in _ATTRIBUTE.findall(name.split("[", 1)[0])]
        path = [p for p in path if p != "locals"]
        for module in self.modules.values():
            if (found := _named_state(module, path)) is not None:
                return found
        return State("unknown", None, None, path[-1] if path else "state")


def _named_state(module: ModuleSource, path: list[str]) -> State | None:
    """Match a display name such as Class.attr, module.NAME or function.variable with the module's own definitions."""
    for position, part in enumerate(path[:-1]):
        owner = module.classes.get(part)
        if owner is not None and position == 0:
            attribute = path[position + 1]
            scope = "class" if _class_level(module, owner, attribute) else "instance"
            return State(scope, owner, module, attribute)
    stem = os.path.splitext(os.path.basename(module.path))[0]
    if stem == "__init__":
        stem = os.path.basename(os.path.dirname(module.path))
    for position, part in enumerate(path[:-1]):
        if part in (stem, "__main__") and path[position + 1] in module.globals:
            return State("module", module.tree, module, path[position + 1])
    for part, variable in zip(path[-2::-1], path[:0:-1], strict=False):
        for function in module.functions:
            holder = _binder(module, function, variable) if function.name == part else None
            if holder is not None:
                return State("closure", holder, module, variable)
    return None


def _binder(module: ModuleSource, function: FunctionNode, variable: str) -> FunctionNode | None:
    """The function that binds the variable: the named one, or one around it (`nonlocal`)."""
    at: FunctionNode | None = function
    while at is not None and variable not in module.locals_of(at):
        at = module.enclosing_function(at)
    return at


def _class_level(module: ModuleSource, owner: ast.ClassDef, attribute: str) -> bool:
    """Is the attribute one object for all instances: set in the class body and never through `self`?"""
    in_body = any(
        isinstance(t, ast.Name) and t.id == attribute
        for s in owner.body
        for t in (
            s.targets if isinstance(s, ast.Assign) else [s.target] if isinstance(s, ast.AnnAssign) and s.value else []
        )
    )
    if not in_body or any("dataclass" in ast.dump(d) for d in owner.decorator_list):
        return False
    for method in owner.body:
        if not isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)) or not method.args.args:
            continue
        first = method.args.args[0].arg
        for node in ast.walk(method):
            stores = isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and node.attr == attribute
            if stores and isinstance(node.value, ast.Name) and node.value.id == first and first != "cls":  # type: ignore[attr-defined]
                return False
    return True


def _frames(critical: CriticalAccess) -> tuple[Frame, ...]:
    return critical.stack or (Frame(critical.file, critical.line, critical.function),)
