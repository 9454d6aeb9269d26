"""Where a lock lives, what it is called, and how it is created.

A lock's scope should equal the state's scope: one per instance for an attribute, one per class for a class attribute,
one per closure for a local variable, one per module for a global. Narrower scopes pass the scenario at hand and leave
the race between two objects; they rank behind. A module-level or class-level `asyncio.Lock` binds to the first event
loop in which it is contended (`asyncio.mixins._LoopBoundMixin`) and fails on a second one; the note says so.

`asyncio.Lock` is not re-entrant: a region that already holds the lock, or calls what takes it, would wait for itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from chaossloth.repair.declare import declare_closure, declare_in_class, declare_instance, declare_module, lock_names
from chaossloth.repair.render import Draft
from chaossloth.repair.sites import Function, State
from chaossloth.repair.source import FunctionNode, ModuleSource, own_nodes

__all__ = ["Lock", "acquiring", "called_names", "family", "locks_for", "receiver"]

_LOOP_NOTE = "the lock outlives an event loop: it binds to the first one that contends on it"


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock to hold: its expression in every function that shall hold it.

    kind: "instance", "class", "closure", "module". home: class or function that declares it, None for the module.
    penalty: how far its scope is from the state's. reused: it exists already and guards other accesses of the state.
    """

    kind: str
    name: str
    expressions: tuple[str, ...]
    penalty: int
    reused: bool = False
    home: ast.AST | None = None
    anchor: str = ""
    note: str = ""

    def declare(self, draft: Draft) -> None:
        """Edit text and tree so that the lock exists; nothing for a reused lock. Raises Refused."""
        if self.reused:
            return
        if self.kind == "instance":
            assert isinstance(self.home, ast.ClassDef)
            declare_instance(draft, self.home, self.name)
        elif self.kind == "class":
            assert isinstance(self.home, ast.ClassDef)
            declare_in_class(draft, self.home, self.name)
        elif self.kind == "closure":
            assert isinstance(self.home, (ast.FunctionDef, ast.AsyncFunctionDef))
            declare_closure(draft, self.home, self.name, self.anchor)
        else:
            assert self.home is not None
            declare_module(draft, self.home, self.name, self.anchor)


def receiver(module: ModuleSource, function: FunctionNode) -> tuple[ast.ClassDef, str] | None:
    """The class and the name of the instance that the function's code can use: `self`, also inside its closures."""
    owner = module.owner_class(function)
    if owner is not None:
        decorators = {getattr(d, "id", getattr(d, "attr", "")) for d in function.decorator_list}
        arguments = [*function.args.posonlyargs, *function.args.args]
        if decorators & {"staticmethod", "classmethod"} or not arguments:
            return None
        return owner, arguments[0].arg
    outer = module.enclosing_function(function)
    if outer is None:
        return None
    found = receiver(module, outer)
    return found if found and found[1] not in module.locals_of(function) else None


def family(module: ModuleSource, cls: ast.ClassDef) -> list[ast.ClassDef]:
    """The class and its bases that the module defines, nearest first."""
    found = [cls]
    for member in found:
        for base in member.bases:
            above = module.classes.get(getattr(base, "id", ""))
            if above is not None and above not in found:
                found.append(above)
    return found


def locks_for(state: State, functions: Sequence[Function]) -> list[Lock]:
    """The locks that could guard regions in these functions (all of one module), best scope first."""
    module = functions[0].module
    if any(f.module is not module for f in functions):
        return []
    nodes = [f.node for f in functions]
    word = state.attribute.strip("_").lower() or "state"
    found = [*_existing(module, state, nodes)]
    private = module.fresh_name(f"_{word}_lock")
    common = _common_class(module, nodes)
    if common is not None and state.scope not in ("class", "module"):  # narrower than the state: instances still race
        related = state.owner in family(module, common) or (
            isinstance(state.owner, ast.ClassDef) and state.module is module and common in family(module, state.owner)
        )
        penalty = {"instance": 0 if related else 1, "closure": 3}.get(state.scope, 0)
        names = [receiver(module, n) for n in nodes]
        name = private
        if not related and state.scope == "instance" and isinstance(state.owner, ast.ClassDef):
            name = module.fresh_name(f"_{state.owner.name.lower()}_lock")  # it guards another object: named after that
        expressions = tuple(f"{r[1]}.{name}" for r in names if r)
        found.append(Lock("instance", name, expressions, penalty, home=common))
    found += _on_named_object(module, state, functions, private)
    if state.scope == "class" and isinstance(state.owner, ast.ClassDef) and state.module is module:
        expression = f"{state.owner.name}.{private}"
        found.append(Lock("class", private, (expression,) * len(nodes), 0, home=state.owner, note=_LOOP_NOTE))
    found += _in_closure(module, state, nodes, word)
    if state.scope in ("module", "unknown", "class") and state.module in (module, None):
        penalty = {"module": 0, "class": 1}.get(state.scope, 2)
        top = _top_statement(module, nodes[0])
        found.append(
            Lock("module", private, (private,) * len(nodes), penalty, home=top, anchor=state.attribute, note=_LOOP_NOTE)
        )
    return sorted(found, key=lambda lock: (not lock.reused, lock.penalty))


def _common_class(module: ModuleSource, nodes: Sequence[FunctionNode]) -> ast.ClassDef | None:
    """The class in which a lock reaches all the functions: the one that defines them, or a common base."""
    found: list[ast.ClassDef] | None = None
    for node in nodes:
        held = receiver(module, node)
        if held is None:
            return None
        mine = family(module, held[0])
        found = mine if found is None else [c for c in found if c in mine]
    return found[0] if found else None


def _on_named_object(module: ModuleSource, state: State, functions: Sequence[Function], name: str) -> Iterable[Lock]:
    """A lock in the state's class, reached as `account.lock` where every function uses `account.balance` itself."""
    if state.scope != "instance" or not isinstance(state.owner, ast.ClassDef) or state.module is not module:
        return
    expressions = []
    for function in functions:
        held = receiver(module, function.node)
        bases = {
            n.value.id
            for n in own_nodes(*function.node.body)
            if isinstance(n, ast.Attribute) and n.attr == state.attribute and isinstance(n.value, ast.Name)
        }
        rebound = {
            n.id for n in own_nodes(*function.node.body) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        usable = sorted(bases - rebound - {held[1] if held else ""})
        if len(usable) != 1:
            return
        expressions.append(f"{usable[0]}.{name}")
    yield Lock("instance", name, tuple(expressions), 0, home=state.owner)


def _in_closure(module: ModuleSource, state: State, nodes: Sequence[FunctionNode], word: str) -> Iterable[Lock]:
    if state.scope not in ("closure", "unknown"):
        return
    chains = [[a for a in module.ancestors(n) if isinstance(a, (ast.FunctionDef, ast.AsyncFunctionDef))] for n in nodes]
    shared = [a for a in chains[0] if all(a in chain for chain in chains)]
    if state.scope == "closure":
        shared = [a for a in shared if a is state.owner]
    if shared:
        name = module.fresh_name(f"{word}_lock")
        penalty = 0 if state.scope == "closure" else 1
        yield Lock("closure", name, (name,) * len(nodes), penalty, home=shared[0], anchor=state.attribute)


def _existing(module: ModuleSource, state: State, nodes: Sequence[FunctionNode]) -> Iterable[Lock]:
    """Locks that the module already takes around accesses of the state."""
    for name in sorted(lock_names(module)):
        taken = [
            (node, item.context_expr)
            for node in ast.walk(module.tree)
            if isinstance(node, ast.AsyncWith)
            for item in node.items
            if _last_name(item.context_expr) == name
        ]
        guards = [expr for node, expr in taken if any(_mentions(s, state.attribute) for s in node.body)]
        if not guards:
            continue
        held = [receiver(module, n) for n in nodes]
        if isinstance(guards[0], ast.Name):
            yield Lock("module", name, (name,) * len(nodes), 0, reused=True, note="uses the existing lock")
        elif _common_class(module, nodes) is not None and all(held):
            expressions = tuple(f"{r[1]}.{name}" for r in held if r)
            yield Lock("instance", name, expressions, 0, reused=True, note="uses the existing lock")


def acquiring(module: ModuleSource, name: str, wrapped: Iterable[FunctionNode] = ()) -> set[str]:
    """Names of the functions that take a lock called `name`, directly or through what they call on `self` or by
    name."""
    takers = {f.name for f in wrapped}
    takers |= {f.name for f in module.functions if any(_takes(n, name) for n in own_nodes(*f.body))}
    grown = True
    while grown:
        grown = False
        for function in module.functions:
            if function.name not in takers and called_names(function.body) & takers:
                takers.add(function.name)
                grown = True
    return takers


def called_names(nodes: Iterable[ast.AST]) -> set[str]:
    """Functions called by name, and methods called on a plain name or on `super()`."""
    found: set[str] = set()
    for node in own_nodes(*nodes):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found.add(node.func.id)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            target = node.func.value
            if isinstance(target, ast.Name) or (isinstance(target, ast.Call) and _last_name(target.func) == "super"):
                found.add(node.func.attr)
    return found


def _takes(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.AsyncWith):
        return any(_last_name(i.context_expr) == name for i in node.items)
    acquire = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "acquire"
    return acquire and _last_name(node.func.value) == name  # type: ignore[attr-defined]


def _last_name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _mentions(node: ast.AST, attribute: str) -> bool:
    return any(isinstance(n, (ast.Name, ast.Attribute)) and _last_name(n) == attribute for n in ast.walk(node))


def _top_statement(module: ModuleSource, node: ast.AST) -> ast.AST:
    for above in module.ancestors(node):
        if isinstance(above, ast.Module):
            return node
        node = above
    return node
