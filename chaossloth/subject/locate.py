"""What the user means by a target, found without running anything.

`locate` reads and parses one file and answers with ranked choices: things that can be run. Whatever a syntax tree can
decide is decided here, in the command's own process, within milliseconds, so that a wrong name costs no worker start;
what it cannot (a class that is imported, a base class from elsewhere, a decorator's effect) is left to the worker,
which checks again with the real objects (`entry`).
Discovery prefers what says itself when it went wrong: `scenario`, `main`, test functions; only then classes, whose
outcome the serializability oracle has to judge; last other async functions that nothing in the file uses.
"""

from __future__ import annotations

import ast
import difflib
import io
import os
import tokenize
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from chaossloth.errors import UsageError
from chaossloth.subject.context import ImportContext, import_context, own_modules
from chaossloth.subject.outline import (
    Outline,
    async_names,
    can_be_called,
    has_stale_window,
    racy_methods,
    required,
)

__all__ = ["Choice", "ImportContext", "Located", "import_context", "locate", "own_modules", "parse_target"]

Kind = Literal["function", "test-method", "calls"]
_ROOM = 8  # names listed in an error message


@dataclass(frozen=True, slots=True)
class Choice:
    """One thing that can be run.

    kind:    "function" (module level, no parameters), "test-method" (of a test class), "calls" (concurrent calls).
    name:    as a user would write it after "::", e.g. "scenario", "TestStore.test_two", "Wallet.grant".
    is_async: what the source says; decorators may change it (the worker looks at the real object).
    checked: False when the syntax tree could not show that class and methods exist.
    """

    kind: Kind
    name: str
    cls: str | None = None
    methods: tuple[str, ...] = ()
    is_async: bool = True
    line: int = 0
    checked: bool = True

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": self.name,
            "cls": self.cls,
            "methods": list(self.methods),
            "is_async": self.is_async,
            "line": self.line,
            "checked": self.checked,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Choice:
        return cls(**{**value, "methods": tuple(value["methods"])})


@dataclass(frozen=True, slots=True)
class Located:
    """A file, how it is imported, and what in it can be run.

    choices:      best first; `choice` is the first.
    how_chosen:   one sentence for the report.
    alternatives: names of the other choices, and what was passed over with the reason.
    source:       the decoded text that was analysed.
    """

    path: Path
    context: ImportContext
    choices: tuple[Choice, ...]
    how_chosen: str
    alternatives: tuple[str, ...] = ()
    source: str = ""

    @property
    def choice(self) -> Choice:
        return self.choices[0]

    def to_json(self) -> dict[str, Any]:
        """Plain values for the channel; the source text stays behind."""
        return {
            "path": str(self.path),
            "context": self.context.to_json(),
            "choices": [choice.to_json() for choice in self.choices],
            "how_chosen": self.how_chosen,
            "alternatives": list(self.alternatives),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Located:
        return cls(
            path=Path(value["path"]),
            context=ImportContext.from_json(value["context"]),
            choices=tuple(Choice.from_json(entry) for entry in value["choices"]),
            how_chosen=value["how_chosen"],
            alternatives=tuple(value["alternatives"]),
        )


def parse_target(text: str) -> tuple[str, str | None]:
    """ "file.py::Class::method" to ("file.py", "Class.method"); the selector is None when there is none."""
    path, *parts = text.split("::")
    if not path:
        raise UsageError(f"{text!r} names no file; write path/to/file.py or path/to/file.py::name")
    if any(not part for part in parts):
        raise UsageError(f"{text!r} has an empty name after '::'; write path/to/file.py::name")
    if parts and "[" in parts[-1]:
        raise UsageError(
            f"{parts[-1]!r} is one case of a parametrized test, which needs pytest's fixtures; "
            "name a function without parameters"
        )
    return path, ".".join(parts) or None


def locate(
    path: str | os.PathLike[str],
    selector: str | None = None,
    cls: str | None = None,
    methods: Sequence[str] = (),
) -> Located:
    """Find what to run in one file. Raises UsageError, one sentence with a remedy, when there is nothing."""
    file = Path(path)
    source = _read(file)
    tree = _parse(source, file)
    outline = Outline(tree, file.name)
    found = _select(outline, selector, cls, tuple(dict.fromkeys(methods)))
    return replace(found, path=Path(os.path.abspath(file)), context=import_context(file), source=source)


# --- reading ---------------------------------------------------------------------------------------------------


def _read(file: Path) -> str:
    if file.is_dir():
        raise UsageError(f"{file} is a directory; name one Python file in it, e.g. {_example(file)}")
    if not file.exists():
        near = difflib.get_close_matches(file.name, _python_files(file.parent), n=1)
        hint = f"; did you mean {file.parent / near[0]}?" if near else "; check the path"
        raise UsageError(f"there is no file {file}{hint}")
    if not file.is_file():
        raise UsageError(f"{file} is no regular file; name a Python source file")
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}; check its permissions") from None
    if file.suffix not in (".py", ".pyw"):
        raise UsageError(f"{file} is no Python source file (its name does not end in .py); name a .py file")
    if b"\0" in data:
        raise UsageError(f"{file} is binary, not Python source text; name a .py file with source text")
    return _decode(data, file)


def _decode(data: bytes, file: Path) -> str:
    try:
        # Without a coding line it is UTF-8; asked for here, because detect_encoding would not say which byte is wrong.
        declared = any(b"coding" in line for line in data.splitlines()[:2])
        encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0] if declared else "utf-8-sig"
        text = data.decode(encoding)
    except SyntaxError as error:
        raise UsageError(
            f"{file} cannot be decoded: {error.msg}; correct its coding line or save it as UTF-8"
        ) from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        name = "utf-8" if error.encoding == "utf-8-sig" else error.encoding
        raise UsageError(
            f"{file}:{line} is not valid {name}: byte {data[error.start]:#04x}; "
            "save the file as UTF-8 or declare its encoding in the first line"
        ) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _parse(source: str, file: Path) -> ast.Module:
    if not source.strip():
        raise UsageError(f"{file} is empty; there is nothing to run in it")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the interpreter that runs the subject will show them
            return ast.parse(source, str(file))
    except SyntaxError as error:
        raise UsageError(f"{file}:{error.lineno} does not parse: {error.msg}; correct it first") from None
    except (RecursionError, MemoryError):
        raise UsageError(f"{file} is nested too deeply to be parsed; split the deepest expression") from None


def _python_files(directory: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in directory.iterdir() if entry.suffix == ".py")
    except OSError:
        return []


def _example(directory: Path) -> str:
    files = _python_files(directory)
    return str(directory / (files[0] if files else "file.py"))


# --- selection -------------------------------------------------------------------------------------------------


def _found(choices: Sequence[Choice], how: str, alternatives: Sequence[str] = ()) -> Located:
    nowhere = Path()
    context = ImportContext(nowhere, (), (), "", None, nowhere, True)
    return Located(nowhere, context, tuple(choices), how, tuple(alternatives))


def _select(outline: Outline, selector: str | None, cls: str | None, methods: tuple[str, ...]) -> Located:
    if selector is not None and (cls is not None or methods):
        raise UsageError(f"'::{selector}' and --cls/--method both say what to run; give one of them")
    if cls is None and methods:
        cls = _class_of_methods(outline, methods)
        return _found([_calls(outline, cls, methods)], f"{cls} is the one class with {_join(methods)}")
    if cls is not None:
        return _select_class(outline, cls, methods, f"--cls {cls}")
    if selector is not None:
        return _select_named(outline, selector)
    return _discover(outline)


def _select_class(outline: Outline, cls: str, methods: tuple[str, ...], asked: str) -> Located:
    _check_class(outline, cls)
    if methods:
        return _found([_calls(outline, cls, methods)], f"asked for: {', '.join(f'{cls}.{m}' for m in methods)}")
    choices = _test_methods(outline, cls) if outline.is_test_class(cls) else _class_choices(outline, cls)
    if not choices and cls in outline.classes:
        known, complete = outline.methods(cls)
        if complete:
            sync = [n for n in known if not n.startswith("_")]
            has = f"; its methods {_join(sync)} are not async" if sync else ""
            raise UsageError(
                f"class {cls} in {outline.name} has no public async method to call concurrently{has}; "
                "name another class, or a method with --method"
            )
    if not choices:
        raise UsageError(f"the methods of {cls} are not visible in {outline.name}; name one with --method")
    best = choices[0]
    return _found(choices, f"{asked}: {_why(outline, best)}", [c.name for c in choices[1:]])


def _select_named(outline: Outline, selector: str) -> Located:
    head, _, tail = selector.rpartition(".")
    if selector in outline.functions:
        return _found([_function_choice(outline, selector)], f"asked for: {selector}")
    if selector in outline.classes:
        return _select_class(outline, selector, (), f"asked for: class {selector}")
    if head in outline.classes and outline.is_test_class(head):
        return _found([_test_method(outline, head, tail)], f"asked for: {selector}")
    if head and (head in outline.classes or _may_exist(outline, head)):
        return _select_class(outline, head, (tail,), "")
    if not head and _may_exist(outline, selector):
        return _found([Choice("function", selector, checked=False)], f"asked for: {selector}")
    if head:
        _check_class(outline, head)
    names = [*outline.functions, *outline.classes]
    listed = f"; there are: {_join(names)}" if names else "; it defines no function and no class"
    raise UsageError(f"no function or class {selector!r} in {outline.name}{_near(selector, names)}{listed}")


def _may_exist(outline: Outline, name: str) -> bool:
    first = name.partition(".")[0]
    return first in outline.imported or first in outline.assigned or outline.star


def _check_class(outline: Outline, cls: str) -> None:
    if cls in outline.classes or _may_exist(outline, cls):
        return
    if cls in outline.functions:
        raise UsageError(f"{cls} in {outline.name} is a function, not a class; run it with {outline.name}::{cls}")
    names = list(outline.classes)
    listed = f"; classes there: {_join(names)}" if names else "; it defines no class"
    raise UsageError(f"no class {cls!r} in {outline.name}{_near(cls, names)}{listed}")


def _calls(outline: Outline, cls: str, methods: tuple[str, ...]) -> Choice:
    """Concurrent calls of named methods, each checked as far as the file shows it."""
    _check_class(outline, cls)
    name = f"{cls}.{'+'.join(methods)}"
    if cls not in outline.classes:
        return Choice("calls", name, cls, methods, checked=False)
    known, complete = outline.methods(cls)
    for method in methods:
        node = known.get(method)
        if node is None and complete:
            usable = async_names(known)
            listed = f"; its async methods: {_join(usable)}" if usable else "; it has no async method"
            raise UsageError(
                f"class {cls} in {outline.name} has no method {method!r}{_near(method, list(known))}{listed}"
            )
        if isinstance(node, ast.FunctionDef) and not node.decorator_list:
            usable = async_names(known)
            remedy = f"pass an async method: {_join(usable)}" if usable else f"{cls} has no async method"
            place = f"{cls}.{method} ({outline.name}:{node.lineno})"
            raise UsageError(f"{place} is not async, so calls of it cannot interleave; {remedy}")
    line = known[methods[0]].lineno if methods[0] in known else outline.classes[cls].lineno
    return Choice("calls", name, cls, methods, line=line, checked=all(m in known for m in methods))


def _class_of_methods(outline: Outline, methods: tuple[str, ...]) -> str:
    holders = [c for c in outline.classes if all(m in outline.methods(c)[0] for m in methods)]
    if len(holders) == 1:
        return holders[0]
    if holders:
        raise UsageError(
            f"--method {methods[0]} is in several classes of {outline.name}; add --cls, one of: {_join(holders)}"
        )
    names = sorted({m for c in outline.classes for m in async_names(outline.methods(c)[0])})
    raise UsageError(
        f"no class in {outline.name} has a method {methods[0]!r}{_near(methods[0], names)}; say which class with --cls"
    )


def _function_choice(outline: Outline, name: str) -> Choice:
    node = outline.functions[name]
    missing = required(node)
    if missing:
        raise UsageError(
            f"{name} ({outline.name}:{node.lineno}) takes {_join(missing)}, which a fixture or a caller has to give; "
            "name a function without parameters that calls it"
        )
    return Choice("function", name, is_async=isinstance(node, ast.AsyncFunctionDef), line=node.lineno)


def _test_method(outline: Outline, cls: str, name: str) -> Choice:
    known, complete = outline.methods(cls)
    node = known.get(name)
    if node is None:
        if not complete:
            return Choice("test-method", f"{cls}.{name}", cls, (name,), checked=False)
        tests = _join([n for n in known if n.startswith("test")])
        near = _near(name, list(known))
        raise UsageError(f"class {cls} in {outline.name} has no method {name!r}{near}; its tests: {tests}")
    missing = required(node, method=True)
    if missing:
        raise UsageError(
            f"{cls}.{name} ({outline.name}:{node.lineno}) takes {_join(missing)}, which needs a fixture; "
            "name a test without parameters"
        )
    is_async = isinstance(node, ast.AsyncFunctionDef)
    return Choice("test-method", f"{cls}.{name}", cls, (name,), is_async, node.lineno)


def _test_methods(outline: Outline, cls: str) -> list[Choice]:
    known, _ = outline.methods(cls)
    tests = [(n, node) for n, node in known.items() if n.startswith("test") and not required(node, method=True)]
    tests.sort(key=lambda pair: not isinstance(pair[1], ast.AsyncFunctionDef))
    return [_test_method(outline, cls, n) for n, _ in tests]


# --- discovery -------------------------------------------------------------------------------------------------


def _discover(outline: Outline) -> Located:
    choices, passed_over = _function_choices(outline)
    for cls in outline.classes:
        if outline.is_test_class(cls):
            choices += _test_methods(outline, cls)
    of_classes: list[Choice] = []
    for cls in sorted(outline.classes, key=lambda c: not racy_methods(outline, c)):
        if not outline.is_test_class(cls):
            of_classes += _class_choices(outline, cls)
    choices += sorted(of_classes, key=lambda choice: not _is_suspicious(outline, choice))
    reason = (
        ""
        if choices
        else ", which nothing else in the file uses; there is no scenario, main, test or class with async methods"
    )
    known = {c.name for c in choices}
    choices += [_function_choice(outline, name) for name in outline.entries() if name not in known]
    if not choices:
        raise UsageError(_nothing_found(outline, passed_over))
    best, others = choices[0], [c.name for c in choices[1:]]
    more = f" ({len(others)} more: {_join(others, 4)})" if others else ""
    return _found(choices, f"{_why(outline, best)}{reason}{more}", [*others, *passed_over])


def _function_choices(outline: Outline) -> tuple[list[Choice], list[str]]:
    """`scenario`, `main`, what the main guard runs, tests, a `main` with its own loop; and what needs arguments."""
    chosen: list[Choice] = []
    passed_over: list[str] = []
    coroutines = [n for n, node in outline.functions.items() if isinstance(node, ast.AsyncFunctionDef)]
    tests = [n for n in outline.functions if n.startswith("test_")]
    tests.sort(key=lambda n: n not in coroutines)
    first = [n for n in ("scenario", "main", *outline.run_by_guard) if n in coroutines]
    last = [n for n in ("main", *outline.run_by_guard) if n in outline.functions and n not in coroutines]
    for name in dict.fromkeys([*first, *tests, *(n for n in last if _runs_a_loop(outline.functions[n]))]):
        node = outline.functions[name]
        missing = required(node)
        if missing:
            need = "needs a fixture" if name in tests else "has no default"
            passed_over.append(f"{name} (takes {_join(missing)}, which {need})")
        else:
            chosen.append(Choice("function", name, is_async=name in coroutines, line=node.lineno))
    return chosen, passed_over


def _runs_a_loop(node: ast.AST) -> bool:
    names = {inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}
    names |= {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    return bool(names & {"asyncio", "run_until_complete", "Runner"})


def _class_choices(outline: Outline, cls: str) -> list[Choice]:
    """One choice per async method, those that read and write the object first, and a mixture of all."""
    known, _ = outline.methods(cls)
    public = [n for n in async_names(known) if can_be_called(n, known[n])]
    racy = racy_methods(outline, cls)
    calm = [n for n in public if n not in racy]
    line = outline.classes[cls].lineno if cls in outline.classes else 0
    singles = [Choice("calls", f"{cls}.{n}", cls, (n,), line=known[n].lineno) for n in racy]
    mixed = (
        [Choice("calls", f"{cls}.{'+'.join([*racy, *calm])}", cls, (*racy, *calm), line=line)]
        if len(public) > 1
        else []
    )
    rest = [Choice("calls", f"{cls}.{n}", cls, (n,), line=known[n].lineno) for n in calm]
    return [*singles, *mixed, *rest]


def _is_suspicious(outline: Outline, choice: Choice) -> bool:
    """One method that reads an attribute before an await and writes it after."""
    if choice.cls is None or len(choice.methods) != 1:
        return False
    known, _ = outline.methods(choice.cls)
    return has_stale_window(known[choice.methods[0]])


def _why(outline: Outline, choice: Choice) -> str:
    if choice.kind == "function":
        kind = "async function" if choice.is_async else "function"
        return f"{kind} {choice.name} (line {choice.line})"
    if choice.kind == "test-method":
        return f"test {choice.name} (line {choice.line})"
    if len(choice.methods) > 1:
        return f"concurrent calls of {choice.cls}.{_join(choice.methods)}"
    racy = choice.cls is not None and choice.methods[0] in racy_methods(outline, choice.cls)
    reason = ", which reads and writes the object around an await" if racy else ""
    return f"concurrent calls of {choice.name} (line {choice.line}){reason}"


def _nothing_found(outline: Outline, passed_over: Sequence[str]) -> str:
    if passed_over:
        found = f"nothing in {outline.name} can be run without arguments: {_join(passed_over)}"
        return f"{found}; write an `async def scenario():` that makes them"
    functions = [n for n, node in outline.functions.items() if isinstance(node, ast.AsyncFunctionDef)]
    if functions:
        found = f"{outline.name} has no scenario, main or test function and no class with async methods"
        return f"{found}; name what to run, e.g. {outline.name}::{functions[0]}"
    found = f"{outline.name} holds nothing asynchronous to run"
    return f"{found}; it needs an `async def scenario():`, a test function, or a class with async methods"


def _near(name: str, names: Sequence[str]) -> str:
    matches = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def _join(names: Sequence[str], room: int = _ROOM) -> str:
    shown = ", ".join(names[:room])
    return f"{shown} and {len(names) - room} more" if len(names) > room else shown
