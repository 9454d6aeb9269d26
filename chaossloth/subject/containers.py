"""What the operations of Python's containers read and write, key by key.

A container has one location per key (dict key, set element, list index) and one, "#", for its structure: which keys
there are and in what order. Adding or removing a key writes "#" and the key; iteration, length and truth read "#";
overwriting writes only the key; looking for an absent key reads only that key. List operations that shift items write
"#" and every index that moves. Deques and bytearrays are coarse: everything is "#".

Everything here runs before the operation itself, which the subject's own frame performs. So it may only look, and
only with the base class's own methods: never run the subject's `__hash__`, `__eq__` or overridden methods. Where a
key's hash is the subject's code, presence is not looked up and the operation counts as one that changes the
structure.
"""

from __future__ import annotations

import collections
from collections.abc import Hashable
from typing import Any

from chaossloth.subject import keys
from chaossloth.subject.keys import SCALARS, VALUE_TYPES, can_look_up, operation
from chaossloth.subject.recorder import COMMUTES, READ, UPDATE, WRITE, recorder

__all__ = [
    "EXACT",
    "KINDS",
    "SCALARS",
    "UNKNOWN",
    "add",
    "contains",
    "delete_item",
    "extend",
    "grows",
    "holds",
    "index_in",
    "key_of",
    "kind_of",
    "number_of",
    "operation",
    "peek_item",
    "put_range",
    "reach",
    "read_all",
    "read_item",
    "read_keys",
    "remove",
    "resize",
    "shift",
    "structure",
    "write_all",
    "write_in_place",
    "write_item",
]

R = recorder
N = recorder.names
IDS = recorder.names.ids

# exact type, or found by kind_of for a subclass -> "dict", "set", "list", "coarse", or "" for no container
KINDS: dict[type, str] = {
    dict: "dict",
    collections.OrderedDict: "dict",
    collections.defaultdict: "dict",
    collections.Counter: "dict",
    set: "set",
    list: "list",
    collections.deque: "coarse",
    bytearray: "coarse",
}
EXACT = frozenset(KINDS)  # the built-in ones: none of their operations is the subject's code
_BASES: tuple[tuple[type, str], ...] = (
    (dict, "dict"),
    (set, "set"),
    (list, "list"),
    (collections.deque, "coarse"),
    (bytearray, "coarse"),
)


def kind_of(t: type) -> str:
    """The kind of container that instances of `t` are, "" for none."""
    found = KINDS.get(t)
    if found is None:
        found = KINDS[t] = next((kind for base, kind in _BASES if issubclass(t, base)), "")
    return found


def number_of(o: Any) -> int:
    return IDS.get(id(o)) or N.seen(o)


# -- keys


def key_of(k: Any) -> Hashable:
    """`k` as part of a location, see `keys.key_of`."""
    t = type(k)
    if t is str:
        return k if k != "#" else "'#'"
    return k if t in SCALARS else keys.key_of(k, N)


def holds(o: Any, kind: str, k: Any) -> bool | None:
    """Whether `k` is a key of `o`; None where only the subject's code could tell."""
    if not can_look_up(k):
        return None
    return dict.__contains__(o, k) if kind == "dict" else set.__contains__(o, k)


def reach(o: Any, number: int, key: Hashable) -> None:
    t = type(o)
    if t not in SCALARS and t is not tuple and t not in VALUE_TYPES:
        N.reached(o, number, key)


# -- items


def index_in(o: list[Any], i: Any) -> int | None:
    """The location key of index `i` of list `o`; None if it is out of range or no plain index."""
    if type(i) is not int and type(i) is not bool:
        return None
    i = int(i)
    n = list.__len__(o)
    if i < 0:
        i += n
    return i if 0 <= i < n else None


def put_range(number: int, start: int, stop: int, mode: int, s: int) -> None:
    put = R.put
    for i in range(max(start, 0), stop):
        put((number, i, mode, s))


def read_item(o: Any, kind: str, i: Any, s: int, mode: int = READ) -> None:
    """`o[i]`, and what is found there gets its name by path."""
    number = number_of(o)
    if kind == "dict":
        key = key_of(i)
        present = holds(o, kind, i)
        if not present and isinstance(o, collections.defaultdict) and o.default_factory is not None:
            resize(number, s)
            mode = UPDATE
        R.put((number, key, mode, s))
        if present:
            reach(dict.__getitem__(o, i), number, key)
    elif kind == "list":
        position = index_in(o, i)
        if position is not None:
            R.put((number, position, mode, s))
            reach(list.__getitem__(o, position), number, position)
        elif type(i) is slice:
            _put_slice(o, number, i, s)
        else:
            R.put((number, "#", READ, s))
    elif kind == "coarse":
        R.put((number, "#", mode, s))


def _put_slice(o: list[Any], number: int, i: slice, s: int) -> None:
    R.put((number, "#", READ, s))
    parts = (i.start, i.stop, i.step)
    plain = all(part is None or type(part) is int for part in parts) and i.step != 0
    for position in range(*i.indices(list.__len__(o))) if plain else range(list.__len__(o)):
        R.put((number, position, READ, s))


def peek_item(o: Any, kind: str, i: Any) -> Any:
    """`o[i]` where it can be had without running code of the subject, else None."""
    if kind == "dict":
        return dict.__getitem__(o, i) if holds(o, kind, i) else None
    position = index_in(o, i) if kind == "list" else None
    return None if position is None else list.__getitem__(o, position)


def write_item(o: Any, kind: str, i: Any, s: int, mode: int = WRITE) -> None:
    """`o[i] = ...` (mode UPDATE: `o[i] += ...`)."""
    number = number_of(o)
    if kind == "dict":
        R.put((number, key_of(i), mode, s))
        if not holds(o, kind, i):
            resize(number, s)
    elif kind == "list":
        position = index_in(o, i)
        if position is not None:
            R.put((number, position, mode, s))
        elif type(i) is slice:
            shift(o, number, 0, s)
            grows(o, number, s)
        else:
            R.put((number, "#", READ, s))
    else:
        R.put((number, "#", mode, s))


def delete_item(o: Any, kind: str, i: Any, s: int) -> None:
    """`del o[i]`."""
    number = number_of(o)
    if kind == "dict":
        remove(o, number, kind, i, s)
    elif kind == "list":
        position = index_in(o, i)
        if position is None and type(i) is not slice:
            R.put((number, "#", READ, s))
        else:
            shift(o, number, position or 0, s)
    else:
        R.put((number, "#", WRITE, s))


def contains(o: Any, kind: str, x: Any, s: int) -> None:
    """`x in o`."""
    number = number_of(o)
    if kind in ("dict", "set"):
        R.put((number, key_of(x), READ, s))
    else:
        read_keys(o, kind, s)


def structure(o: Any, s: int) -> None:
    """`len(o)`, `bool(o)`."""
    R.put((number_of(o), "#", READ, s))


# -- the whole container


def read_keys(o: Any, kind: str, s: int) -> None:
    """Iteration over `o` from begin to end: for a dict its keys only, for a list all items."""
    number = number_of(o)
    R.put((number, "#", READ, s))
    if kind == "list":
        put_range(number, 0, list.__len__(o), READ, s)
    else:
        R.ordered.add(number)


def read_all(o: Any, kind: str, s: int) -> None:
    """Everything in `o`, values included."""
    number = number_of(o)
    R.put((number, "#", READ, s))
    if kind == "list":
        put_range(number, 0, list.__len__(o), READ, s)
        return
    R.ordered.add(number)
    if kind == "dict":
        for k in list(dict.keys(o)):
            R.put((number, key_of(k), READ, s))


def write_all(o: Any, kind: str, s: int) -> None:
    """Any change at all of `o`, even one that makes it longer."""
    number = number_of(o)
    R.put((number, "#", WRITE, s))
    _put_contents(o, kind, number, s)
    grows(o, number, s)


def _put_contents(o: Any, kind: str, number: int, s: int) -> None:
    if kind == "list":
        put_range(number, 0, list.__len__(o), WRITE, s)
    elif kind in ("dict", "set"):
        for k in _keys(o, kind):
            R.put((number, key_of(k), WRITE, s))


def _keys(o: Any, kind: str) -> list[Any]:
    return list(dict.keys(o)) if kind == "dict" else list(set.__iter__(o))


def grows(o: Any, number: int, s: int) -> None:
    """Which keys an operation adds is known only afterwards: record them at the end of the step."""
    kind = kind_of(type(o))
    if kind == "coarse":
        return
    before = list.__len__(o) if kind == "list" else {key_of(k) for k in _keys(o, kind)}

    def add() -> None:
        if isinstance(before, int):
            put_range(number, before, list.__len__(o), WRITE, s)
            return
        for k in _keys(o, kind):
            if key_of(k) not in before:
                R.put((number, key_of(k), WRITE, s))

    R.later(add)


def shift(o: list[Any], number: int, start: int, s: int) -> None:
    R.put((number, "#", WRITE, s))
    put_range(number, start, list.__len__(o), WRITE, s)


def extend(o: list[Any], number: int, value: Any, s: int) -> None:
    R.put((number, "#", WRITE, s))
    n = list.__len__(o)
    if type(value) in (list, tuple, set, frozenset, dict, str, range, collections.deque):
        put_range(number, n, n + len(value), WRITE, s)
    else:
        grows(o, number, s)


def resize(number: int, s: int) -> None:
    """One key is added to the dict or set, or taken out."""
    R.grown.add(number)
    R.put((number, "#", COMMUTES, s))


def remove(o: Any, number: int, kind: str, k: Any, s: int) -> None:
    """Take `k` out, if it is there."""
    if holds(o, kind, k) is False:
        R.put((number, key_of(k), READ, s))
    else:
        resize(number, s)  # first: who iterates over it minds the structure most
        R.put((number, key_of(k), UPDATE, s))


def add(o: Any, number: int, x: Any, s: int) -> None:
    """Put `x` into set `o`, if it is not there."""
    present = holds(o, "set", x)
    R.put((number, key_of(x), READ if present else WRITE, s))
    if not present:
        resize(number, s)


UNKNOWN: Any = object()  # a value that is not there yet


def write_in_place(o: Any, kind: str, value: Any, op: str, s: int) -> None:
    """`o op= value`: the container's own update; the value may be UNKNOWN."""
    number = number_of(o)
    if kind == "list" and op == "Add":
        extend(o, number, value, s)
    elif kind == "set" and op == "BitOr" and type(value) in (set, frozenset):
        for x in list(value):
            add(o, number, x, s)
    elif kind == "set" and op == "BitOr":
        R.put((number, "#", WRITE, s))
        grows(o, number, s)
    elif kind == "dict" and op == "BitOr" and kind_of(type(value)) == "dict":
        for k in list(dict.keys(value)):
            write_item(o, kind, k, s)
    else:
        write_all(o, kind, s)
