"""Instrumentation of one module: source text in, code object out.

The code refers to one injected global, `__chaossloth__` (`record.hooks`). Where a function cannot be rewritten (the
result does not compile, nesting beyond the compiler's limits), it is left as it was, and named.
"""

from __future__ import annotations

import ast
import contextlib
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType

from chaossloth.subject import hooks
from chaossloth.subject.attributes import exposed_modules
from chaossloth.subject.foreign import trust_module
from chaossloth.subject.outside import contexts_shared
from chaossloth.subject.recorder import FILES, Site
from chaossloth.subject.scopes import analyse
from chaossloth.subject.statements import Rewriter

__all__ = ["Instrumented", "Site", "instrument"]

_DEEPEST = 20_000
_FAULTS = (SyntaxError, RecursionError, ValueError, MemoryError)


@dataclass(frozen=True, slots=True)
class Instrumented:
    """code: what to execute in the module's namespace. skipped: "name (line n): why", for what was left as it was."""

    code: CodeType
    skipped: tuple[str, ...] = ()


def instrument(source: str, filename: str, module: str) -> Instrumented:
    """Compile `source` with hooks. Raises what `compile` raises (SyntaxError, ValueError) for unusable source."""
    plain = compile(source, filename, "exec", dont_inherit=True)
    try:
        code, skipped = _compiled(_rewritten(source, filename, module), filename), tuple[str, ...]()
    except _FAULTS:
        code, skipped = _piecewise(source, filename, module, plain)
    FILES.add(filename)
    trust_module(module)
    hooks.forget_types()
    return Instrumented(code, skipped)


@contextlib.contextmanager
def _deep_recursion() -> Iterator[None]:
    """The compiler accepts deeper nesting than a Python function can visit by default; Python frames are cheap."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _DEEPEST))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def _compiled(tree: ast.Module, filename: str) -> CodeType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # compiling the source itself has said it all
        return compile(tree, filename, "exec", dont_inherit=True)


def _rewritten(source: str, filename: str, module: str, only: frozenset[int] | None = None) -> ast.Module:
    """The tree with hooks; `only`: rewrite just these top-level statements (by position in the body)."""
    tree = ast.parse(source, filename)
    with _deep_recursion():
        scopes = analyse(tree)
        rewriter = Rewriter(scopes, filename, module)
        rewriter.survey(tree)
        body: list[ast.stmt] = []
        for position, statement in enumerate(tree.body):
            if only is None or position in only:
                visited = rewriter.visit(statement)
                body.extend(visited if isinstance(visited, list) else [visited])
            else:
                body.append(statement)
        tree.body = body
    hooks.written_globals.update((module, name) for name in scopes.written_globals)
    hooks.imported_globals.update((module, name) for name in scopes.module.imports)
    hooks.module_attribute_stores.update(rewriter.stored)
    if rewriter.exposes:
        exposed_modules.add(module)
    if rewriter.shares_contexts:
        contexts_shared.add(module)
    return tree


def _piecewise(source: str, filename: str, module: str, plain: CodeType) -> tuple[CodeType, tuple[str, ...]]:
    """Rewrite each top-level statement that can be rewritten alone."""
    try:
        statements = ast.parse(source, filename).body
    except _FAULTS as fault:
        return plain, (f"{module} (line 1): {type(fault).__name__}",)
    good, skipped = set[int](), []
    for position, statement in enumerate(statements):
        try:
            _compiled(_rewritten(source, filename, module, frozenset({position})), filename)
        except _FAULTS as fault:
            name = getattr(statement, "name", type(statement).__name__)
            skipped.append(f"{name} (line {statement.lineno}): {type(fault).__name__}: {fault}")
        else:
            good.add(position)
    try:
        return _compiled(_rewritten(source, filename, module, frozenset(good)), filename), tuple(skipped)
    except _FAULTS as fault:
        return plain, (f"{module} (line 1): {type(fault).__name__}: {fault}",)
