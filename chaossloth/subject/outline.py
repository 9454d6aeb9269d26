"""What one file defines, as far as its syntax tree shows: functions, classes, methods (also inherited).

Names that only running could decide (imported, assigned, from a base class elsewhere) are marked, never guessed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

__all__ = ["Function", "Outline", "async_names", "can_be_called", "has_stale_window", "racy_methods", "required"]

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Outline:
    """Module-level functions, classes and imported names of one file (also under `if`, `try`, `with`)."""

    def __init__(self, tree: ast.Module, name: str) -> None:
        self.name = name
        self.functions: dict[str, Function] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        self.imported: set[str] = set()
        self.assigned: set[str] = set()
        self.star = False
        self.run_by_guard: list[str] = []  # functions called under `if __name__ == "__main__":`
        self._users: dict[str, set[str]] = {}  # name -> functions and classes of the module that use it
        for node in _statements(tree.body):
            self._add(node)

    def _add(self, node: ast.stmt) -> None:
        if isinstance(node, ast.If) and _is_main_guard(node.test):
            calls = (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))
            self.run_by_guard += [call.func.id for call in calls if isinstance(call.func, ast.Name)]
        elif isinstance(node, FUNCTIONS):
            self.functions[node.name] = node
            self._add_uses(node)
        elif isinstance(node, ast.ClassDef):
            self._add_class(node, "")
            self._add_uses(node)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.asname or alias.name.partition(".")[0] for alias in node.names]
            self.star |= "*" in names
            self.imported.update(names)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            self.assigned.update(t.id for t in targets if isinstance(t, ast.Name))

    def _add_uses(self, node: Function | ast.ClassDef) -> None:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
                self._users.setdefault(inner.id, set()).add(node.name)

    def entries(self) -> list[str]:
        """Public `async def` functions that need no argument, yield nothing, come to an end as far as one can see, and
        are used by nothing else here."""
        return [
            name
            for name, node in self.functions.items()
            if isinstance(node, ast.AsyncFunctionDef)
            and can_be_called(name, node)
            and not required(node)
            and not _is_generator(node)
            and not _runs_for_ever(node)
            and not self._users.get(name, set()) - {name}
        ]

    def _add_class(self, node: ast.ClassDef, prefix: str) -> None:
        self.classes[prefix + node.name] = node
        for inner in node.body:
            if isinstance(inner, ast.ClassDef):
                self._add_class(inner, f"{prefix}{node.name}.")

    def methods(self, cls: str) -> tuple[dict[str, Function], bool]:
        """Methods of a class with those inherited within the file; and whether that is all there can be."""
        found: dict[str, Function] = {}
        complete = True
        pending, seen = [cls], set()
        while pending:
            name = pending.pop(0)
            node = self.classes.get(name)
            if node is None:
                complete = complete and name in ("object", "ABC", "Generic", "Protocol", "Exception", "NamedTuple")
                continue
            if name in seen:
                continue
            seen.add(name)
            complete = complete and not node.keywords and not _has_dynamic_members(node)
            # Within one class the last definition counts, between classes the first in method resolution order.
            own = {s.name: s for s in _statements(node.body) if isinstance(s, FUNCTIONS)}
            found = {**own, **found}
            pending += [base_name(base) for base in node.bases]
        return found, complete

    def is_test_class(self, cls: str) -> bool:
        """As pytest would collect it: "Test..." without a constructor, or derived from a TestCase."""
        node = self.classes.get(cls)
        if node is not None and cls.startswith("Test") and not _has_init(node):
            return True
        return any(base.endswith("TestCase") for base in self._bases(cls))

    def _bases(self, cls: str) -> set[str]:
        found: set[str] = set()
        pending = [cls]
        while pending:
            node = self.classes.get(pending.pop())
            names = {base_name(base) for base in node.bases} - found if node is not None else set()
            found |= names
            pending += names
        return found


def _statements(body: Iterable[ast.stmt]) -> Iterable[ast.stmt]:
    """Statements of a body and of the plain blocks in it; not the guarded `if __name__ == "__main__"` block."""
    for node in body:
        yield node
        if isinstance(node, ast.If) and _is_main_guard(node.test):
            continue
        if isinstance(node, (ast.If, ast.Try, ast.TryStar, ast.With, ast.For, ast.While)):
            for name in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, name, []))
            for handler in getattr(node, "handlers", []):
                yield from _statements(handler.body)


def _is_main_guard(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def base_name(base: ast.expr) -> str:
    if isinstance(base, ast.Subscript):
        base = base.value
    return ast.unparse(base).rpartition(".")[2] if isinstance(base, ast.Attribute) else ast.unparse(base)


def _has_dynamic_members(node: ast.ClassDef) -> bool:
    names = {s.name for s in node.body if isinstance(s, FUNCTIONS)}
    # `grant = _checked(_grant)` may be a method; a literal is none.
    callable_values = (ast.Name, ast.Call, ast.Attribute, ast.Lambda)
    assigned = any(isinstance(s, ast.Assign) and isinstance(s.value, callable_values) for s in node.body)
    return "__getattr__" in names or assigned or any(not _is_plain_decorator(d) for d in node.decorator_list)


def _is_plain_decorator(node: ast.expr) -> bool:
    return "dataclass" in ast.unparse(node)


def _has_init(node: ast.ClassDef) -> bool:
    return any(isinstance(s, FUNCTIONS) and s.name == "__init__" for s in node.body)


def required(node: Function, *, method: bool = False) -> list[str]:
    """Names of parameters that a call has to fill."""
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    bare = positional[: len(positional) - len(arguments.defaults)]
    decorators = {base_name(d) for d in node.decorator_list}
    if method and "staticmethod" not in decorators:
        bare = bare[1:]
    keyword_only = [a for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is None]
    return [a.arg for a in (*bare, *keyword_only)]


def async_names(methods: Mapping[str, ast.AST]) -> list[str]:
    """Names of the `async def` methods."""
    return [name for name, node in methods.items() if isinstance(node, ast.AsyncFunctionDef)]


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """What a function's own body consists of, without the functions and classes defined inside it."""
    for inner in ast.iter_child_nodes(node):
        yield inner
        if not isinstance(inner, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
            yield from _own_nodes(inner)


def _is_generator(node: ast.AST) -> bool:
    return any(isinstance(inner, (ast.Yield, ast.YieldFrom)) for inner in _own_nodes(node))


def _runs_for_ever(node: ast.AST) -> bool:
    """Whether there is a `while True:` that nothing in it leaves: a server's or a poller's loop."""
    endless = (n for n in _own_nodes(node) if isinstance(n, ast.While) and isinstance(n.test, ast.Constant))
    leaves = (ast.Break, ast.Return, ast.Raise)
    return any(not any(isinstance(inner, leaves) for inner in _own_nodes(loop)) for loop in endless)


def can_be_called(name: str, node: Function) -> bool:
    """Whether discovery may call a method: public, and neither a property nor a context manager."""
    no_call = ("property", "cached_property", "setter", "getter", "asynccontextmanager", "fixture")
    return not name.startswith("_") and not any(base_name(d) in no_call for d in node.decorator_list)


def racy_methods(outline: Outline, cls: str) -> list[str]:
    """Public async methods that await, read and write the object's state, with the methods they call on it."""
    known, _ = outline.methods(cls)
    public = [n for n in async_names(known) if can_be_called(n, known[n])]
    return [n for n in public if _reads_and_writes_self(known, n)]


def has_stale_window(node: Function) -> bool:
    """Whether the method reads an attribute of the object, then awaits, then writes that attribute, in source order."""
    first = [*node.args.posonlyargs, *node.args.args][:1]
    owner = first[0].arg if first else "self"
    events: list[tuple[int, int, str, str]] = []
    for inner in ast.walk(node):
        if isinstance(inner, (ast.Await, ast.AsyncWith, ast.AsyncFor)):
            events.append((inner.lineno, inner.col_offset, "await", ""))
        elif _writes(inner, owner) and isinstance(inner, ast.expr):
            events.append((inner.lineno, _END_OF_LINE, "write", _root_attribute(inner, owner) or ""))
        elif isinstance(inner, ast.Attribute) and (attribute := _self_attribute(inner, owner)) is not None:
            events.append((inner.lineno, inner.col_offset, "read", attribute))
    read: set[str] = set()
    stale: set[str] = set()
    for _, _, what, attribute in sorted(events):
        if what == "write" and attribute in stale:
            return True
        stale |= read if what == "await" else set()
        read |= {attribute} if what == "read" else set()
    return False


_END_OF_LINE = 1 << 30  # a value is computed, and awaited, before it is stored


def _root_attribute(node: ast.AST, owner: str) -> str | None:
    """`x` of a store into `self.x[...]` or a mutating call on `self.x`."""
    inner: ast.AST = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else node
    while isinstance(inner, (ast.Attribute, ast.Subscript)):
        attribute = _self_attribute(inner, owner)
        if attribute is not None:
            return attribute
        inner = inner.value
    return None


def _reads_and_writes_self(known: Mapping[str, Function], name: str) -> bool:
    """Whether a method, with the methods of the same object that it calls, awaits, reads and writes `self`'s state."""
    reads = writes = awaits = False
    pending, seen = [name], set()
    while pending:
        method = pending.pop()
        if method in seen or method not in known:
            continue
        seen.add(method)
        node = known[method]
        first = [*node.args.posonlyargs, *node.args.args][:1]
        for inner in ast.walk(node):
            awaits |= isinstance(inner, (ast.Await, ast.AsyncWith, ast.AsyncFor))
            attribute = _self_attribute(inner, first[0].arg if first else "self")
            if attribute is None:
                continue
            if attribute in known:
                pending.append(attribute)
            reads = True
        writes |= any(_writes(inner, first[0].arg if first else "self") for inner in ast.walk(node))
    return reads and writes and awaits


_MUTATORS = frozenset(
    ("append", "add", "pop", "update", "clear", "remove", "discard", "extend", "insert", "setdefault")
    + ("popitem", "popleft", "appendleft", "sort")
)


def _self_attribute(node: ast.AST, self_name: str) -> str | None:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == self_name:
        return node.attr
    return None


def _writes(node: ast.AST, self_name: str) -> bool:
    if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del)):
        return _rooted_at(node, self_name)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _MUTATORS:
        return _rooted_at(node.func.value, self_name)
    return False


def _rooted_at(node: ast.expr, name: str) -> bool:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return isinstance(node, ast.Name) and node.id == name
