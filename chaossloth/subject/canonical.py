"""Canonical form of values: a flat map from paths to hashable leaves, equal when a caller would see no difference.

A path is a tuple whose first part names a root ("Wallet", "result of A") and whose others are "._row" or "['gold']".
No code of the subject runs: attributes are read from `__dict__` and slot descriptors, never through properties,
`__getattr__`, `__eq__`, `__hash__` or `__repr__`. Depth and size are bounded; what was cut is said (`Walker.cut`).
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import contextvars
import datetime
import decimal
import enum
import fractions
import functools
import io
import logging
import pathlib
import queue
import re
import socket
import sys
import threading
import types
import uuid
import weakref
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["Flat", "Path", "Walker", "show_leaf", "show_path"]

Path = tuple[str, ...]
Leaf = tuple[Any, ...]
Flat = dict[Path, Leaf]
OnRead = Callable[[object, object], None]

MAX_DEPTH = 12
MAX_LEAVES = 20_000

_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,16}\b")

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_BY_REPR = (
    bytearray,
    range,
    slice,
    decimal.Decimal,
    fractions.Fraction,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    datetime.tzinfo,
    uuid.UUID,
    pathlib.PurePath,
    re.Pattern,
    type(Ellipsis),
    type(NotImplemented),
)
_LOCK_TYPES = (type(threading.Lock()), type(threading.RLock()))
_NO_STATE: tuple[type, ...] = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ModuleType,
    types.CodeType,
    types.FrameType,
    types.TracebackType,
    types.CoroutineType,
    types.GeneratorType,
    types.AsyncGeneratorType,
    functools.partial,
    asyncio.Lock,
    asyncio.Event,
    asyncio.Condition,
    asyncio.Semaphore,
    asyncio.Barrier,
    asyncio.Future,
    asyncio.TaskGroup,
    asyncio.Timeout,
    asyncio.Runner,
    asyncio.AbstractEventLoop,
    asyncio.Handle,
    asyncio.BaseTransport,
    asyncio.BaseProtocol,
    asyncio.StreamReader,
    asyncio.StreamWriter,
    threading.Event,
    threading.Condition,
    threading.Semaphore,
    threading.Barrier,
    threading.Thread,
    threading.local,
    *_LOCK_TYPES,
    concurrent.futures.Executor,
    concurrent.futures.Future,
    contextvars.ContextVar,
    contextvars.Context,
    contextvars.Token,
    logging.Logger,
    logging.LoggerAdapter,
    logging.Handler,
    io.IOBase,
    socket.socket,
    weakref.ReferenceType,
)


class Walker:
    """Flattens one outcome: call `add` for each root, then read `flat`.

    on_read: called with (object, key) for each location that is looked at, so that a recorder can see the oracle read.
    opaque:  what holds state that cannot be looked at (objects of C extensions, open files), "path (class)".
    cut:     True when depth or size limits left something out.
    """

    def __init__(self, on_read: OnRead | None = None) -> None:
        self.flat: Flat = {}
        self.cut = False
        self.opaque: set[str] = set()
        self._on_read = on_read
        self._first: dict[int, Path] = {}
        self._active: dict[int, Path] = {}
        self._alive: list[object] = []  # ids are only unique among living objects

    def add(self, root: str, value: object) -> None:
        """Flatten `value` under the path (root,)."""
        if not self._visit((root,), value):
            self.flat.setdefault((root,), ("none",))

    def _visit(self, path: Path, value: object) -> bool:
        """Add leaves for `value`; False when it holds nothing observable."""
        cls = type(value)
        if cls in _PLAIN:
            self.flat[path] = _plain_leaf(value)
            return True
        match _category(cls):
            case "structure":
                return self._visit_mutable(path, value)
            case "none":
                return self._visit_stream(path, value)
            case "enum":
                assert isinstance(value, enum.Enum)
                self.flat[path] = ("enum", f"{qualified(cls)}.{value._name_}")
            case "class":
                assert isinstance(value, type)
                self.flat[path] = ("class", qualified(value))
            case _:
                self.flat[path] = ("value", qualified(cls), repr(value))
        return True

    def _visit_mutable(self, path: Path, value: object) -> bool:
        key = id(value)
        if key in self._active:
            self.flat[path] = ("same", self._active[key])
            return True
        shared = _compares_by_identity(value)
        if shared and key in self._first:
            self.flat[path] = ("same", self._first[key])
            return True
        if len(path) > MAX_DEPTH or len(self.flat) > MAX_LEAVES:
            self.cut = True
            self.flat[path] = ("cut", qualified(type(value)))
            return True
        self._alive.append(value)
        self._first.setdefault(key, path)
        self._active[key] = path
        try:
            return self._visit_inside(path, value)
        finally:
            del self._active[key]

    def _visit_inside(self, path: Path, value: object) -> bool:
        if isinstance(value, BaseException):
            return self._visit_exception(path, value)
        if isinstance(value, (set, frozenset)):
            return self._visit_set(path, value)
        items = self._items(value)
        if items is None:
            return self._visit_object(path, value)
        known = len(self.flat)
        kept = empty = 0
        for part, item in items:
            empty += 1
            kept += self._visit((*path, part), item)
        attributes = self._visit_attributes(path, value)
        if empty and not kept and not attributes:
            # Primitives only: no state for whoever holds it, but not to be taken for something that is missing.
            for inner in list(self.flat)[known:]:
                del self.flat[inner]
            self.flat[path] = ("primitives", qualified(type(value)))
            return False
        self.flat[path] = ("container", qualified(type(value)), kept)
        return True

    def _items(self, value: object) -> Iterator[tuple[str, object]] | None:
        if isinstance(value, dict):
            return self._dict_items(value)
        if isinstance(value, (list, tuple, collections.deque)):
            return self._sequence_items(value, value)
        if isinstance(value, (asyncio.Queue, queue.Queue)):
            waiting = getattr(value, "_queue", None) if isinstance(value, asyncio.Queue) else value.queue
            return self._sequence_items(value, list(waiting or ()))
        if isinstance(value, types.MappingProxyType):
            return self._dict_items(dict(value))
        if isinstance(value, (weakref.WeakValueDictionary, weakref.WeakKeyDictionary, weakref.WeakSet)):
            return iter(())
        return None

    def _sequence_items(self, owner: object, values: Any) -> Iterator[tuple[str, object]]:
        self._read(owner, "#")
        iterate = type(values).__iter__ if type(values) in _BUILTIN_SEQUENCES else _base_iter(values)
        for index, item in enumerate(list(iterate(values))):
            self._read(owner, index)
            yield f"[{index}]", item

    def _dict_items(self, value: dict[Any, Any]) -> Iterator[tuple[str, object]]:
        self._read(value, "#")
        ordered = isinstance(value, collections.OrderedDict)
        taken: dict[str, int] = {}
        for place, (key, item) in enumerate(list(dict.items(value))):
            self._read(value, key)
            text = self._key_text(key)
            taken[text] = taken.get(text, 0) + 1
            if taken[text] > 1:
                text = f"{text} #{taken[text]}"
            yield (f"[{text} at {place}]" if ordered else f"[{text}]"), item

    def _key_text(self, key: object) -> str:
        if type(key) in _PLAIN:
            return _ADDRESS.sub("0x...", repr(key))
        return _canonical_text(key)

    def _visit_set(self, path: Path, value: set[Any] | frozenset[Any]) -> bool:
        self._read(value, "#")
        members = []
        for member in list(set.__iter__(value) if isinstance(value, set) else frozenset.__iter__(value)):
            if not isinstance(member, _NO_STATE) or isinstance(member, type):
                members.append(self._key_text(member))
        if len(value) and not members:
            self.flat[path] = ("primitives", qualified(type(value)))
            return False
        self.flat[path] = ("set", qualified(type(value)), tuple(sorted(members)))
        return True

    def _visit_exception(self, path: Path, error: BaseException) -> bool:
        self.flat[path] = ("exception", qualified(type(error)))
        for index, argument in enumerate(error.args):
            self._visit((*path, f".args[{index}]"), argument)
        return True

    def _visit_object(self, path: Path, value: object) -> bool:
        if "unittest.mock" in sys.modules and isinstance(value, sys.modules["unittest.mock"].NonCallableMock):
            self.flat[path] = ("mock", len(value.mock_calls))
            return True
        content = _content(value)
        kind = qualified(type(value))
        self.flat[path] = ("object", kind) if content is None else ("content", kind, content)
        attributes = self._visit_attributes(path, value)
        if content is None and not attributes and _hides_state(type(value)):
            self.opaque.add(f"{show_path(path)} ({qualified(type(value))})")
        return True

    def _visit_stream(self, path: Path, value: object) -> bool:
        """No state of the object, except what a stream in memory holds; that others hold something is said."""
        content = _content(value)
        if content is not None:
            self.flat[path] = ("stream", qualified(type(value)), content)
            return True
        if isinstance(value, (io.IOBase, socket.socket)):
            self.opaque.add(f"{show_path(path)} ({qualified(type(value))})")
        return False

    def _visit_attributes(self, path: Path, value: object) -> bool:
        kept = False
        for name, item in attributes(value):
            self._read(value, name)
            kept |= self._visit((*path, f".{name}"), item)
        return kept

    def _read(self, value: object, key: object) -> None:
        if self._on_read is not None:
            self._on_read(value, key)


def _hides_state(cls: type) -> bool:
    """Neither `__dict__` nor slots: whatever an object of this class holds is in C."""
    return cls is not object and not cls.__dictoffset__ and not any("__slots__" in c.__dict__ for c in cls.__mro__)


def _content(value: object) -> object:
    """Bytes or text of an object that exposes them without running its code (buffers, streams in memory), or None."""
    if isinstance(value, (io.StringIO, io.BytesIO)):
        return None if value.closed else value.getvalue()
    if not _hides_state(type(value)):
        return None
    try:
        return (memoryview(value).tobytes(),)  # type: ignore[arg-type]
    except (TypeError, BufferError, ValueError):
        return None


_BUILTIN_SEQUENCES = (list, tuple, collections.deque)
_TRUSTED_REPR = frozenset(t.__repr__ for t in _BY_REPR) | {
    pathlib.PurePosixPath.__repr__,
    datetime.datetime.__repr__,
    datetime.timezone.__repr__,
}


def _base_iter(values: Any) -> Callable[[Any], Iterator[Any]]:
    """The built-in iteration of a subclass of list, tuple or deque, whatever the subclass overrides."""
    base = next(t for t in _BUILTIN_SEQUENCES if isinstance(values, t))
    return base.__iter__


def _category(cls: type) -> str:
    """What to do with values of a class; decided once per class, because it takes some sixty subclass checks."""
    known = _categories.get(cls)
    if known is None:
        if issubclass(cls, enum.Enum):
            known = "enum"
        elif issubclass(cls, type):
            known = "class"
        elif issubclass(cls, _BY_REPR) and cls.__repr__ in _TRUSTED_REPR:
            known = "value"
        else:
            known = "none" if issubclass(cls, _NO_STATE) else "structure"
        _categories[cls] = known
    return known


# Weak: classes of variants that are no longer loaded must be free to go.
_categories: weakref.WeakKeyDictionary[type, str] = weakref.WeakKeyDictionary()
_slots: weakref.WeakKeyDictionary[type, list[tuple[str, types.MemberDescriptorType]]] = weakref.WeakKeyDictionary()


def qualified(cls: type) -> str:
    """Module and qualified name of a class; built-ins without module."""
    module = cls.__module__
    return cls.__qualname__ if module == "builtins" else f"{module}.{cls.__qualname__}"


def attributes(value: object) -> Iterator[tuple[str, object]]:
    """Names and values of an object's own attributes (`__dict__` and slots), without running code of its class."""
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        own = None
    if isinstance(own, dict):
        yield from list(own.items())
    cls = type(value)
    members = _slots.get(cls)
    if members is None:
        members = _slots[cls] = [
            (name, member)
            for base in cls.__mro__
            if _is_python_class(base)
            for name, member in base.__dict__.items()
            if isinstance(member, types.MemberDescriptorType)
        ]
    for name, member in members:
        try:
            yield name, member.__get__(value, cls)
        except AttributeError:
            continue  # a slot that was never set


def _is_python_class(cls: type) -> bool:
    """Heap types made by a class statement have a `__module__` of their own dictionary and `__slots__`."""
    return "__slots__" in cls.__dict__


def _compares_by_identity(value: object) -> bool:
    return type(value).__eq__ is object.__eq__


def _plain_leaf(value: Any) -> Leaf:
    if isinstance(value, str):
        return ("plain", "str", _ADDRESS.sub("0x...", value))
    if isinstance(value, float) and value != value:
        return ("plain", "float", "nan")
    return ("plain", type(value).__name__, value)


def _canonical_text(value: object) -> str:
    walker = Walker()
    walker.add("", value)
    parts = [f"{show_path(path)}={show_leaf(leaf)}" for path, leaf in sorted(walker.flat.items(), key=lambda i: i[0])]
    return parts[0].removeprefix("=") if len(parts) == 1 else "(" + ", ".join(parts).removeprefix("=") + ")"


def show_path(path: Path) -> str:
    """For people: "Wallet._row['gold']"."""
    return "".join(path)


def show_leaf(leaf: object) -> str:
    """For people: the value itself where it is plain, else what kind of thing it is."""
    match leaf:
        case None:
            return "absent"
        case ("none",):
            return "nothing observable"
        case ("plain", "float", "nan"):
            return "nan"
        case ("plain", _, value):
            return _short(repr(value))
        case ("value", _, text):
            return _short(str(text))
        case ("container", cls, size):
            name = str(cls).rpartition(".")[2]
            return f"a {name} of {size}" if size else f"an empty {name}"
        case ("primitives", cls):
            return f"a {str(cls).rpartition('.')[2]} that holds only tasks, locks or functions"
        case ("set", cls, ()):
            return f"an empty {str(cls).rpartition('.')[2]}"
        case ("set", _, members) if isinstance(members, tuple):
            return _short("{" + ", ".join(members) + "}")
        case ("same", path) if isinstance(path, tuple):
            return f"the same object as {show_path(path)}"
        case ("exception", cls):
            return f"the exception {str(cls).rpartition('.')[2]}"
        case ("content" | "stream", _, (bytes() as content,)):
            return _short(repr(content))
        case ("object", cls):
            return f"a {str(cls).rpartition('.')[2]} of its own"
        case ("mock", calls):
            return f"a mock called {calls} times"
        case tuple():
            return _short(str(leaf[-1]))
    return _short(str(leaf))


def _short(text: str) -> str:
    return text if len(text) <= 120 else text[:117] + "..."
