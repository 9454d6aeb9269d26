"""Questions to the subject's source at the lines of an access: is it a test, does it iterate, what comes next?

The answers refine what the order of the accesses shows. They are asked of the tree only; a source that is not known or
does not parse answers no.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Protocol

from chaossloth.evidence import Frame

__all__ = ["Accessed", "Lines"]


class Accessed(Protocol):
    """An access with its subject frames, innermost first."""

    @property
    def stack(self) -> tuple[Frame, ...]: ...


class Lines:
    """Questions to the source at a line; answers False where the source is not known or does not parse."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = sources
        self._trees: dict[str, ast.Module | None] = {}

    def tree(self, path: str) -> ast.Module | None:
        if path not in self._trees:
            try:
                self._trees[path] = ast.parse(self._sources[path].removeprefix("\ufeff"))
            except (KeyError, SyntaxError, ValueError):
                self._trees[path] = None
        return self._trees[path]

    def iterates_over_await(self, frame: Frame) -> bool:
        """The line is the header of a `for` (or a comprehension's source) whose body awaits."""
        for node in self._nodes(frame):
            if isinstance(node, ast.For) and _covers(node.iter, frame.line):
                return _awaits(node.body)
            if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)) and _awaits([node]):
                return any(_covers(g.iter, frame.line) for g in node.generators)
        return False

    def awaits_at(self, frame: Frame) -> bool:
        """Does the innermost statement at the line await?"""
        found = [n for n in self._nodes(frame) if isinstance(n, ast.stmt)]
        return bool(found) and _awaits([max(found, key=lambda n: n.lineno)])

    def is_check(self, before: Accessed, after: Accessed) -> bool:
        """Is `before` a test that stands before `after`, in any function that both stacks share?"""
        later = {(f.file, f.function): f.line for f in after.stack}
        return any(self._tests(frame, later.get((frame.file, frame.function))) for frame in before.stack)

    def guards_await(self, before: Accessed) -> bool:
        """Does the read stand in the test of an `if` or `while` with an await in its body?"""
        nodes = [(n, f.line) for f in before.stack for n in self._nodes(f) if isinstance(n, (ast.If, ast.While))]
        return any(_covers(node.test, line) and _awaits(node.body) for node, line in nodes)

    def _tests(self, frame: Frame, until: int | None) -> bool:
        if until is None:
            return False
        names: set[str] = set()
        for node in self._nodes(frame):
            if isinstance(node, (ast.If, ast.While)) and _covers(node.test, frame.line) and until >= frame.line:
                return True
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and _covers(node, frame.line):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names |= {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        if not names:
            return False
        tree = self.tree(frame.file)
        tests = [n for n in ast.walk(tree) if isinstance(n, (ast.If, ast.While))] if tree else []
        return any(
            frame.line <= node.lineno <= until
            and any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(node.test))
            for node in tests
        )

    def stores(self, path: str, name: str) -> list[int]:
        """Lines of the file, outside of constructors, that store to a location so called ("Shop.rows['a']": any
        `x.rows[...] = `)."""
        tree = self.tree(path)
        made = {
            id(n)
            for f in (ast.walk(tree) if tree else ())
            if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef)) and f.name in ("__init__", "__post_init__")
            for n in ast.walk(f)
        }
        nodes = ast.walk(tree) if tree else iter(())
        return sorted({n.lineno for n in nodes if isinstance(n, ast.expr) and id(n) not in made and _stores(n, name)})

    def next_store(self, frame: Frame, name: str) -> int | None:
        """Line of an assignment to the location that must be reached once the await at the frame's line is over."""
        for node in self._nodes(frame):
            for field in ("body", "orelse"):
                run = getattr(node, field, None)
                if not isinstance(run, list) or not isinstance(node, ast.stmt):
                    continue
                here = [i for i, s in enumerate(run) if _covers(s, frame.line)]
                if not here or not isinstance(run[here[0]], (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign)):
                    continue
                for statement in run[here[0] + 1 :]:
                    if isinstance(statement, (ast.Assign, ast.AugAssign)):
                        if any(_stores(n, name) for n in ast.walk(statement) if isinstance(n, ast.expr)):
                            return statement.lineno
                    elif not isinstance(statement, (ast.Expr, ast.AnnAssign)) or _awaits([statement]):
                        return None
        return None

    def _nodes(self, frame: Frame) -> list[ast.AST]:
        tree = self.tree(frame.file)
        nodes = ast.walk(tree) if tree is not None else iter(())
        return [n for n in nodes if isinstance(n, (ast.stmt, ast.expr)) and _covers(n, frame.line)]


def _covers(node: ast.stmt | ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _awaits(nodes: Sequence[ast.AST]) -> bool:
    kinds = (ast.Await, ast.AsyncFor, ast.AsyncWith)
    return any(isinstance(n, kinds) for node in nodes for n in ast.walk(node))


def _stores(node: ast.expr, name: str) -> bool:
    """Is the node the target of an assignment to `<anything>.attr` or `<anything>.attr[...]`, as the name has it?"""
    if not isinstance(getattr(node, "ctx", None), ast.Store):
        return False
    head, bracket, _ = name.partition("[")
    if bracket:
        if not isinstance(node, ast.Subscript):
            return False
        node = node.value
    return isinstance(node, ast.Attribute) and node.attr == head.rpartition(".")[2]
