"""Questions about syntax trees."""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from typing import TypeVar

__all__ = [
    "HOOKS",
    "bound_names",
    "captured_names",
    "copied",
    "holds_only_constants",
    "is_hook",
    "is_number",
    "last_name",
    "move_to_name",
]

HOOKS = "__chaossloth__"
_T = TypeVar("_T")


def is_hook(node: ast.expr, name: str) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != name:
        return False
    return isinstance(node.func.value, ast.Name) and node.func.value.id == HOOKS


def is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float, complex))


def holds_only_constants(node: ast.expr) -> bool:
    return isinstance(node, (ast.List, ast.Set)) and all(isinstance(element, ast.Constant) for element in node.elts)


def move_to_name(call: ast.Call, method: ast.Attribute) -> None:
    """The compiler gives a method call that spans lines the position of the method's name; so must we."""
    if method.end_lineno is not None and method.end_col_offset is not None and method.lineno != method.end_lineno:
        call.lineno = method.end_lineno
        call.col_offset = max(method.end_col_offset - len(method.attr), 0)


def copied(node: _T) -> _T:
    """A deep copy of a node, or of a list of nodes."""
    return copy.deepcopy(node)


def last_name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def bound_names(targets: Sequence[ast.expr]) -> list[str]:
    """The plain names that a store to `targets` binds."""
    names: list[str] = []
    for target in targets:
        if isinstance(target, ast.Name):
            names.append(target.id)
        elif isinstance(target, (ast.Tuple, ast.List)):
            names.extend(bound_names(target.elts))
        elif isinstance(target, ast.Starred):
            names.extend(bound_names([target.value]))
    return names


def captured_names(pattern: ast.pattern) -> list[str]:
    parts = list(ast.walk(pattern))
    names = [p.name for p in parts if isinstance(p, (ast.MatchAs, ast.MatchStar))]
    names += [p.rest for p in parts if isinstance(p, ast.MatchMapping)]
    return [name for name in names if name]
