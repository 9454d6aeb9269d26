"""What the C methods of Python's containers read and write, before they run."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

from chaossloth.subject.containers import (
    add,
    extend,
    holds,
    index_in,
    key_of,
    kind_of,
    number_of,
    reach,
    read_all,
    read_item,
    read_keys,
    remove,
    resize,
    shift,
    write_all,
    write_item,
)
from chaossloth.subject.iteration import is_lazy, sources
from chaossloth.subject.recorder import READ, UPDATE, WRITE, recorder

__all__ = ["METHODS", "method", "reads_only"]

R = recorder


def _dict_method(o: Any, number: int, name: str, a: tuple[Any, ...], k: dict[str, Any], s: int) -> None:
    if name in _NO_ACCESS:
        return
    if name in ("get", "__getitem__", "__contains__") and a:
        key = key_of(a[0])
        R.put((number, key, READ, s))
        if holds(o, "dict", a[0]):
            reach(dict.__getitem__(o, a[0]), number, key)
    elif name in ("setdefault", "pop") and a:
        _dict_take(o, number, name, a[0], s)
    elif name == "__setitem__" and a:
        write_item(o, "dict", a[0], s)
    elif name == "__delitem__" and a:
        remove(o, number, "dict", a[0], s)
    elif name in ("update", "subtract"):
        _dict_update(o, number, a, k, s)
    elif name == "popitem":
        R.ordered.add(number)
        R.put((number, "#", UPDATE, s))
        _dict_popitem(o, number, a, k, s)
    elif name == "move_to_end":
        R.put((number, "#", WRITE, s))
    elif name in ("__len__", "__iter__", "__reversed__"):
        R.ordered.add(number)
        R.put((number, "#", READ, s))
    elif name in _READING:
        read_all(o, "dict", s)
    else:
        write_all(o, "dict", s)


def _dict_take(o: Any, number: int, name: str, k: Any, s: int) -> None:
    key, present = key_of(k), holds(o, "dict", k)
    if present:
        reach(dict.__getitem__(o, k), number, key)
    if name == "pop":
        remove(o, number, "dict", k, s)
    elif present:
        R.put((number, key, READ, s))
    else:
        R.put((number, key, UPDATE, s))
        resize(number, s)


def _dict_popitem(o: Any, number: int, a: tuple[Any, ...], k: dict[str, Any], s: int) -> None:
    last = a[0] if a else k.get("last", True)
    base: Any = collections.OrderedDict if isinstance(o, collections.OrderedDict) else dict
    found: Any = next(iter(base.__reversed__(o) if last else base.__iter__(o)), _NOTHING)
    if found is not _NOTHING:
        R.put((number, key_of(found), WRITE, s))


def _dict_update(o: Any, number: int, a: tuple[Any, ...], k: dict[str, Any], s: int) -> None:
    if a and kind_of(type(a[0])) == "dict":
        for key in [*dict.keys(a[0]), *k]:
            write_item(o, "dict", key, s)
        read_all(a[0], "dict", s)
    elif a:
        write_all(o, "dict", s)
        _read_arguments(a, s)
    else:
        for key in k:
            write_item(o, "dict", key, s)


def _set_method(o: Any, number: int, name: str, a: tuple[Any, ...], k: dict[str, Any], s: int) -> None:
    if name in ("discard", "remove") and a:
        remove(o, number, "set", a[0], s)
    elif name == "add" and a:
        add(o, number, a[0], s)
    elif name == "__contains__" and a:
        R.put((number, key_of(a[0]), READ, s))
    elif name in _READING:
        R.ordered.add(number)
        R.put((number, "#", READ, s))
        _read_arguments(a, s)
    elif name == "update" and all(type(x) in (set, frozenset, list, tuple, dict) for x in a):
        for x in a:
            for item in list(x):
                add(o, number, item, s)
        _read_arguments(a, s)
    else:
        write_all(o, "set", s)
        _read_arguments(a, s)


def _list_method(o: Any, number: int, name: str, a: tuple[Any, ...], k: dict[str, Any], s: int) -> None:
    n = list.__len__(o)
    if name == "append":
        R.put((number, n, WRITE, s))
        R.put((number, "#", WRITE, s))
    elif name == "pop":
        position = index_in(o, a[0] if a else -1)
        if position is None:
            R.put((number, "#", READ, s))
        else:
            reach(list.__getitem__(o, position), number, position)
            shift(o, number, position, s)
    elif name == "insert" and a and type(a[0]) is int:
        start = a[0] if a[0] >= 0 else max(a[0] + n, 0)
        shift(o, number, start, s)
        R.put((number, n, WRITE, s))
    elif name in ("extend", "__iadd__") and a:
        extend(o, number, a[0], s)
        _read_arguments(a, s)
    elif name == "__getitem__" and a:
        read_item(o, "list", a[0], s)
    elif name == "__setitem__" and a:
        write_item(o, "list", a[0], s)
    elif name == "__len__":
        R.put((number, "#", READ, s))
    elif name in _READING:
        read_keys(o, "list", s)
    else:
        write_all(o, "list", s)


def _coarse_method(o: Any, number: int, name: str, a: tuple[Any, ...], k: dict[str, Any], s: int) -> None:
    if isinstance(o, collections.deque) and name in ("pop", "popleft") and len(o):
        reach(o[0] if name == "popleft" else o[-1], number, name)
    if name in _READING or (isinstance(o, bytearray) and name not in _BYTEARRAY_WRITES):
        R.put((number, "#", READ, s))
    else:
        R.put((number, "#", UPDATE if name in ("pop", "popleft") else WRITE, s))
    _read_arguments(a, s)


def _read_arguments(a: tuple[Any, ...], s: int) -> None:
    for x in a:
        kind = kind_of(type(x))
        if kind:
            read_keys(x, kind, s)
        elif is_lazy(x):
            for source, values in sources(x):
                (read_all if values else read_keys)(source, kind_of(type(source)), s)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NOTHING = object()
_NO_ACCESS = frozenset({"keys", "values", "items", "fromkeys", "__init__", "__new__", "__class_getitem__"})
_READING = _words(
    "copy __copy__ count index __len__ __iter__ __contains__ __getitem__ __reversed__ __eq__ __ne__ __lt__ __le__"
    " __gt__ __ge__ __repr__ __str__ __format__ __add__ __mul__ __rmul__ __or__ __ror__ __and__ __sub__ __xor__"
    " __rand__ __rsub__ __rxor__ __sizeof__ __reduce__ __reduce_ex__ union intersection difference"
    " symmetric_difference issubset issuperset isdisjoint elements most_common total"
)
_BYTEARRAY_WRITES = _words("append clear extend insert pop remove reverse __setitem__ __delitem__ __iadd__ __imul__")
METHODS: dict[str, Callable[[Any, int, str, tuple[Any, ...], dict[str, Any], int], None]] = {
    "dict": _dict_method,
    "set": _set_method,
    "list": _list_method,
    "coarse": _coarse_method,
}


def reads_only(name: str) -> bool:
    """Whether the container method `name` changes nothing, on any container."""
    return name in _READING or name in ("get", "keys", "values", "items", "__missing__")


def method(o: Any, kind: str, name: str, a: tuple[Any, ...], k: dict[str, Any], s: int) -> None:
    """The call `o.name(*a, **k)` of a container's own (C) method."""
    METHODS[kind](o, number_of(o), name, a, k, s)
