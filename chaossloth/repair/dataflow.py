"""What statements read, bind and do: the few data-flow questions that decide whether code may move.

Everything here is conservative: an expression is *pure* only when its form says so (names, attributes, subscripts,
operators, a short list of builtins and read-only container methods). A property or an overloaded operator could still
do work; such a case is left to the execution of the candidate, which compares sequential behaviour.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from chaossloth.repair.source import own_nodes

__all__ = [
    "PURE_CALLS",
    "PURE_METHODS",
    "awaits",
    "bound_names",
    "is_exit",
    "is_pure",
    "loaded_names",
    "local_read",
    "parked_waits",
    "single_await",
    "stored_paths",
]

PURE_CALLS = frozenset(
    {"abs", "all", "any", "bool", "bytes", "dict", "float", "frozenset", "int", "isinstance", "len", "list", "max"}
    | {"min", "round", "set", "sorted", "str", "sum", "tuple"}
)
PURE_METHODS = frozenset(
    {"copy", "count", "endswith", "get", "index", "items", "keys", "lower", "startswith", "strip", "upper", "values"}
)
_PURE_NODES = (
    ast.Name,
    ast.Constant,
    ast.Attribute,
    ast.Subscript,
    ast.Slice,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.Tuple,
    ast.List,
    ast.Set,
    ast.Dict,
    ast.Starred,
    ast.JoinedStr,
    ast.FormattedValue,
    ast.keyword,
    ast.expr_context,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
)
_PARKING = frozenset(
    {"wait", "wait_for", "get", "acquire", "join", "read", "readline", "readexactly", "recv", "receive"}
)


def awaits(nodes: Iterable[ast.AST]) -> bool:
    """Can running these nodes suspend?"""
    for node in own_nodes(*nodes):
        if isinstance(node, (ast.Await, ast.AsyncFor, ast.AsyncWith)):
            return True
        if isinstance(node, ast.comprehension) and node.is_async:
            return True
    return False


def loaded_names(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that are read, nested functions included (they may be called)."""
    return {
        n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Store)
    }


def bound_names(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that running the nodes may bind or unbind in the function's scope."""
    found: set[str] = set()
    for node in own_nodes(*nodes):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            found.add(node.rest)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            found.update(node.names)
    return found


def stored_paths(nodes: Iterable[ast.AST]) -> set[str]:
    """Attribute names and subscripted bases that are assigned or deleted: `self.x[k] = 1` gives "x"."""
    found: set[str] = set()
    for node in own_nodes(*nodes):
        if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
            target: ast.expr = node
            while isinstance(target, ast.Subscript):
                target = target.value
            if isinstance(target, ast.Attribute):
                found.add(target.attr)
            elif isinstance(target, ast.Name):
                found.add(target.id)
    return found


def is_pure(node: ast.AST) -> bool:
    """True when evaluating the expression changes nothing and cannot suspend, judged by its form alone."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call):
            function = part.func
            named = isinstance(function, ast.Name) and function.id in PURE_CALLS
            method = isinstance(function, ast.Attribute) and function.attr in PURE_METHODS
            if not (named or method):
                return False
        elif not isinstance(part, _PURE_NODES):
            return False
    return True


def local_read(statement: ast.stmt) -> bool:
    """`name = <pure expression>` (also annotated, or unpacked into names): movable, if its names allow it."""
    if isinstance(statement, ast.Assign):
        targets, value = statement.targets, statement.value
    elif (
        isinstance(statement, ast.AnnAssign) and statement.value is not None and isinstance(statement.target, ast.Name)
    ):
        targets, value = [statement.target], statement.value
    else:
        return False
    parts = [e for t in targets for e in (t.elts if isinstance(t, (ast.Tuple, ast.List)) else [t])]
    return all(isinstance(p, ast.Name) for p in parts) and is_pure(value)


def is_exit(statement: ast.stmt) -> bool:
    return isinstance(statement, (ast.Return, ast.Raise, ast.Break, ast.Continue))


def parked_waits(nodes: Iterable[ast.AST]) -> list[ast.Await]:
    """Awaits that last until somebody else acts: `ev.wait()`, `queue.get()`, a bare future."""
    found: list[ast.Await] = []
    for node in own_nodes(*nodes):
        if not isinstance(node, ast.Await):
            continue
        call = node.value
        if isinstance(call, (ast.Name, ast.Attribute)):
            found.append(node)
        elif isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _PARKING:
            keyed_get = call.func.attr == "get" and (call.args or call.keywords)  # client.get(url) is no queue
            if not keyed_get:
                found.append(node)
    return found


def single_await(statement: ast.stmt) -> ast.Await | None:
    """The one await of an assignment that may be evaluated before the rest of it; None when there is no such await.

    It must run unconditionally, and nothing with an effect may run before it in the statement: only pure parts are
    overtaken, and those are the reads that are meant to be late.
    """
    if not isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr)) or statement.value is None:
        return None
    found = [n for n in own_nodes(statement) if isinstance(n, ast.Await)]
    if len(found) != 1 or found[0] not in list(_unconditional(statement.value)):
        return None
    return found[0] if _pure_but(statement, found[0]) else None


def _unconditional(node: ast.expr) -> Iterable[ast.expr]:
    """Sub-expressions that are evaluated whenever the expression is."""
    yield node
    parts: Sequence[ast.AST]
    if isinstance(node, ast.BoolOp):
        parts = node.values[:1]
    elif isinstance(node, ast.IfExp):
        parts = [node.test]
    elif isinstance(node, ast.Compare):
        parts = [node.left, *node.comparators[:1]]
    elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)):
        return
    else:
        parts = list(ast.iter_child_nodes(node))
    for part in parts:
        if isinstance(part, ast.keyword):
            part = part.value
        if isinstance(part, ast.expr):
            yield from _unconditional(part)


def _pure_but(statement: ast.stmt, hole: ast.Await) -> bool:
    """Everything in the statement outside of the await is pure, or runs after it (calls that enclose the await)."""
    around: set[ast.AST] = set()
    for node in own_nodes(statement):
        if node is not hole and any(part is hole for part in ast.walk(node)):
            around.add(node)
    for node in around:
        late = [*getattr(node, "targets", ())] if isinstance(node, ast.Assign) else []  # targets are evaluated last
        for child in ast.iter_child_nodes(node):
            if child in around or child is hole or child in late or isinstance(child, (ast.expr_context, ast.operator)):
                continue
            if not is_pure(child):
                return False
    return True
