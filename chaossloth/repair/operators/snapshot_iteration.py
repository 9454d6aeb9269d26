"""SNAPSHOT_ITERATION: `for x in self.c.values():` with an await in the body becomes `for x in list(...)`.

Preconditions: the loop's source line is one of the critical pair's; the loop is a plain `for`
(or a comprehension that awaits); the source is a name, an attribute, a subscript, or a view or wrapper of one
(`.items()`, `enumerate`, `reversed`, `zip`), so copying it runs no other code. Not where a copy is made already
(`list`, `sorted`, ...).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

from chaossloth.diagnose.intents import SNAPSHOT_ITERATION
from chaossloth.evidence import RepairIntent
from chaossloth.repair.dataflow import awaits
from chaossloth.repair.proposal import Proposal
from chaossloth.repair.render import Draft
from chaossloth.repair.sites import Function, Sites
from chaossloth.repair.source import own_nodes

__all__ = ["propose"]

_VIEWS = frozenset({"items", "keys", "values"})
_WRAPPERS = frozenset({"enumerate", "reversed", "zip"})


def propose(sites: Sites, refused: list[str]) -> Iterable[Proposal]:
    for function in sites.direct_functions():
        for source in _sources(function):
            line = source.lineno
            if not _copyable(source):
                refused.append(f"{SNAPSHOT_ITERATION} {function.name}:{line}: copying the source would run other code")
                continue
            why = f"the loop at line {line} suspends while its collection may change"
            intent = RepairIntent(SNAPSHOT_ITERATION, function.name, (line, source.end_lineno or line), why)
            yield Proposal(function.module, intent, _make(function, source))


def _sources(function: Function) -> Iterator[ast.expr]:
    """What the awaiting loops at the critical lines iterate over."""
    for node in own_nodes(*function.node.body):
        if isinstance(node, ast.For) and awaits(node.body):
            sources = [node.iter]
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)) and awaits([node]):
            sources = [g.iter for g in node.generators if not g.is_async]
        else:
            continue
        for source in sources:
            if any(source.lineno <= line <= (source.end_lineno or source.lineno) for line in function.required):
                yield source


def _copyable(node: ast.expr) -> bool:
    if isinstance(node, (ast.Name, ast.Attribute)):
        return isinstance(node, ast.Name) or _copyable(node.value)
    if isinstance(node, ast.Subscript):
        return _copyable(node.value) and not isinstance(node.slice, ast.Slice)
    if not isinstance(node, ast.Call) or node.keywords:
        return False
    if isinstance(node.func, ast.Attribute):
        return node.func.attr in _VIEWS and not node.args and _copyable(node.func.value)
    wrapper = isinstance(node.func, ast.Name) and node.func.id in _WRAPPERS
    return wrapper and bool(node.args) and all(_copyable(a) for a in node.args)


def _make(function: Function, source: ast.expr) -> Callable[[Draft], None]:
    def make(draft: Draft) -> None:
        module = function.module
        shadowed = "list" in module.globals or "list" in module.locals_of(function.node)
        before, behind = ("[*", "]") if shadowed else ("list(", ")")
        draft.edit(module.start(source), module.start(source), before)
        draft.edit(module.end(source), module.end(source), behind)
        copied = draft.copy(source)
        assert isinstance(copied, ast.expr)
        new: ast.expr
        if shadowed:
            new = ast.List(elts=[ast.Starred(value=copied, ctx=ast.Load())], ctx=ast.Load())
        else:
            new = ast.Call(func=ast.Name(id="list", ctx=ast.Load()), args=[copied], keywords=[])
        draft.replace_expression(source, new)

    return make
