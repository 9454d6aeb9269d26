"""Which names of a module are variables that more than one activation may see: recorded globals and closure variables.

The scopes are computed from the tree itself. `symtable` reports them too, but can only be joined to the tree by name
and line, which is ambiguous (two lambdas on one line, PEP 695 scopes, comprehensions inlined since 3.12).

A closure variable counts as shared only if it can change while an inner function exists: it is assigned `nonlocal`,
or bound twice, in a loop, or after the first inner function that captures it. A global counts if the module binds it
to data or a function declares it `global`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

__all__ = ["Function", "Scope", "ScopeTree", "analyse", "mangled", "suspends"]

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Comprehension: TypeAlias = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Kind = Literal["module", "class", "function", "lambda", "comprehension", "generator", "type parameters"]
Position = tuple[int, int]
_BEFORE: Position = (0, 0)
_DEFERRED = ("function", "lambda", "generator")


@dataclass(eq=False, slots=True)
class Scope:
    """One scope. bindings: name -> places where it is bound, each with whether that place is in a loop."""

    kind: Kind
    parent: Scope | None
    position: Position
    class_name: str | None  # of the innermost class, for name mangling
    bindings: dict[str, list[tuple[Position, bool]]] = field(default_factory=dict)
    definitions: set[str] = field(default_factory=set)
    plain_definitions: dict[str, ast.AST] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)  # name -> the module it names, "" if it names no module
    imported_values: set[str] = field(default_factory=set)  # by `from` something that is not the standard library
    globals: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)
    captured: dict[str, Position] = field(default_factory=dict)  # own variable -> first capturing scope
    assigned_from_inside: set[str] = field(default_factory=set)
    children: list[Scope] = field(default_factory=list)
    uses: set[str] = field(default_factory=set)

    def owner(self, name: str) -> Scope | None:
        """The function scope (or class) whose variable `name` means here; None for a global or builtin."""
        if name in self.globals:
            return None
        if name in self.bindings and name not in self.nonlocals:
            return self if self.kind != "module" else None
        scope = self.parent
        while scope is not None and scope.kind != "module":
            if scope.kind != "class" and name in scope.bindings and name not in scope.nonlocals:
                return None if name in scope.globals else scope
            if scope.kind != "class" and name in scope.globals:
                return None
            scope = scope.parent
        return None

    def shared_variables(self) -> tuple[str, ...]:
        """Own variables to be recorded (only functions have any)."""
        if self.kind != "function":
            return ()
        return tuple(sorted(name for name in self.captured if self._can_change(name)))

    def _can_change(self, name: str) -> bool:
        places = self.bindings[name]
        if name in self.assigned_from_inside or len(places) != 1:
            return True
        position, in_loop = places[0]
        return in_loop or position > self.captured[name]


@dataclass(eq=False, slots=True)
class ScopeTree:
    module: Scope
    of: dict[ast.AST, Scope]
    written_globals: set[str]  # declared `global` in a function that binds them
    data_globals: set[str]  # bound at module level to something that is no function, class or import


def mangled(name: str, class_name: str | None) -> str:
    """The name that the compiler makes of a private `name` inside class `class_name`."""
    if class_name is None or not name.startswith("__") or name.endswith("__") or "." in name:
        return name
    stripped = class_name.lstrip("_")
    return f"_{stripped}{name}" if stripped else name


def suspends(nodes: Iterable[ast.AST]) -> bool:
    """Whether running `nodes` can suspend the function they are in (inner functions do not count)."""
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.Await, ast.Yield, ast.YieldFrom, ast.AsyncFor, ast.AsyncWith)):
            return True
        if isinstance(node, ast.comprehension) and node.is_async:
            return True
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            pending.extend(ast.iter_child_nodes(node))
    return False


def analyse(tree: ast.Module) -> ScopeTree:
    """The scopes of a module."""
    builder = _Builder()
    builder.visit(tree)
    builder.resolve(builder.module)
    module = builder.module
    data = (set(module.bindings) - module.definitions - set(module.imports)) | module.imported_values
    return ScopeTree(module, builder.of, builder.written, data)


class _Builder(ast.NodeVisitor):
    def __init__(self) -> None:
        self.module = Scope("module", None, _BEFORE, None)
        self.scope = self.module
        self.of: dict[ast.AST, Scope] = {}
        self.written: set[str] = set()
        self.loops = 0

    # -- uses of names

    def bind(self, name: str, node: ast.AST, position: Position | None = None) -> None:
        scope = self.scope
        name = mangled(name, scope.class_name)
        place = position if position is not None else (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
        scope.bindings.setdefault(name, []).append((place, self.loops > 0))

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.scope.uses.add(mangled(node.id, self.scope.class_name))
        else:
            self.bind(node.id, node)

    def visit_Global(self, node: ast.Global) -> None:
        self.scope.globals.update(mangled(name, self.scope.class_name) for name in node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.scope.nonlocals.update(mangled(name, self.scope.class_name) for name in node.names)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        inner = self.scope
        while self.scope.kind in ("comprehension", "generator") and self.scope.parent is not None:
            self.scope = self.scope.parent
        target = self.scope
        self.loops += inner is not target
        self.bind(node.target.id, node.target)
        self.loops -= inner is not target
        self.scope = inner
        if inner is not target:
            inner.uses.add(mangled(node.target.id, inner.class_name))

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            self.bind(name, node)
            whole = isinstance(node, ast.Import) and (alias.asname is not None or "." not in alias.name)
            self.scope.imports[name] = alias.name if whole else ""
            if isinstance(node, ast.ImportFrom) and not (node.level == 0 and _is_standard(node.module or "")):
                self.scope.imported_values.add(name)

    visit_Import = visit_ImportFrom = _import

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.bind(node.name, node)
            self.bind(node.name, node)  # bound, and unbound at the end
        self.generic_visit(node)

    def _capture(self, node: ast.MatchAs | ast.MatchStar) -> None:
        if node.name:
            self.bind(node.name, node)
        self.generic_visit(node)

    visit_MatchAs = visit_MatchStar = _capture

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        if node.rest:
            self.bind(node.rest, node)
        self.generic_visit(node)

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While) -> None:
        if not isinstance(node, ast.While):
            self.visit(node.iter)
        self.loops += 1
        for part in [node.test] if isinstance(node, ast.While) else [node.target]:
            self.visit(part)
        for statement in node.body:
            self.visit(statement)
        self.loops -= 1
        for statement in node.orelse:
            self.visit(statement)

    visit_For = visit_AsyncFor = visit_While = _loop

    # -- scopes

    def _enter(self, kind: Kind, node: ast.AST, class_name: str | None) -> tuple[Scope, int]:
        place = (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
        scope = Scope(kind, self.scope, place, class_name)
        self.scope.children.append(scope)
        before = self.scope, self.loops
        self.scope, self.loops = scope, 0
        return before

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._define(node)
        for decorator in node.decorator_list:
            self.visit(decorator)
        self._defaults(node.args)
        self._type_parameters(node, lambda: self._body(node, "function"))

    visit_FunctionDef = visit_AsyncFunctionDef = _function

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._defaults(node.args)
        self._body(node, "lambda")

    def _define(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self.bind(node.name, node)
        name = mangled(node.name, self.scope.class_name)
        self.scope.definitions.add(name)
        if not node.decorator_list:
            self.scope.plain_definitions[name] = node

    def _defaults(self, arguments: ast.arguments) -> None:
        for default in [*arguments.defaults, *arguments.kw_defaults]:
            if default is not None:
                self.visit(default)

    def _body(self, node: Function, kind: Literal["function", "lambda"]) -> None:
        before = self._enter(kind, node, self.scope.class_name)
        self.of[node] = self.scope
        a = node.args
        for argument in [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg]:
            if argument is not None:
                self.bind(argument.arg, argument, _BEFORE)
        for part in node.body if isinstance(node.body, list) else [node.body]:
            self.visit(part)
        self.scope, self.loops = before

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._define(node)
        for decorator in node.decorator_list:
            self.visit(decorator)
        self._type_parameters(node, lambda: self._class_body(node))

    def _class_body(self, node: ast.ClassDef) -> None:
        for part in [*node.bases, *node.keywords]:
            self.visit(part)
        before = self._enter("class", node, node.name)
        self.of[node] = self.scope
        for statement in node.body:
            self.visit(statement)
        self.scope, self.loops = before

    def _type_parameters(self, node: ast.AST, then: object) -> None:
        parameters = getattr(node, "type_params", [])
        assert callable(then)
        if not parameters:
            then()
            return
        before = self._enter("type parameters", node, self.scope.class_name)
        for parameter in parameters:
            self.bind(parameter.name, parameter, _BEFORE)
        then()
        self.scope, self.loops = before

    def _comprehension(self, node: Comprehension) -> None:
        first = node.generators[0]
        self.visit(first.iter)
        kind: Kind = "generator" if isinstance(node, ast.GeneratorExp) else "comprehension"
        before = self._enter(kind, node, self.scope.class_name)
        self.of[node] = self.scope
        for generator in node.generators:
            if generator is not first:
                self.visit(generator.iter)
            self.visit(generator.target)
            for condition in generator.ifs:
                self.visit(condition)
        for part in [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]:
            self.visit(part)
        self.scope, self.loops = before

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
        if node.value is not None or isinstance(node.target, ast.Name):
            self.visit(node.target)

    def visit_arg(self, node: ast.arg) -> None:
        """Annotations of arguments have no part in this."""

    # -- resolution

    def resolve(self, scope: Scope) -> None:
        bound = set(scope.bindings)
        if scope.kind != "module":
            self.written.update(scope.globals & bound)
        for name in scope.uses | bound:
            owner = scope.owner(name)
            if owner is None or owner is scope:
                continue
            if name in scope.nonlocals and name in bound:
                owner.assigned_from_inside.add(name)
            deferred = _first_deferred(scope, owner)
            if deferred is not None:
                owner.captured[name] = min(owner.captured.get(name, deferred), deferred)
        for child in scope.children:
            self.resolve(child)


def _is_standard(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


def _first_deferred(scope: Scope, owner: Scope) -> Position | None:
    """Where the outermost function between `owner` and `scope` starts; None if there is only code that runs at once."""
    found = None
    step: Scope | None = scope
    while step is not None and step is not owner:
        if step.kind in _DEFERRED:
            found = step.position
        step = step.parent
    return found
