"""Operations that look at a whole object: truth, length, iteration, comparison, text, membership, patterns."""

from __future__ import annotations

import types
from typing import Any

from chaossloth.subject import containers as c
from chaossloth.subject.attributes import ATTRIBUTES, ga
from chaossloth.subject.foreign import PLAIN, is_ours, nature_of
from chaossloth.subject.iteration import cursors, is_lazy, sources, watched, watched_async
from chaossloth.subject.opaque import WINDOWS, behind, foreign_operation, operate, state_names, touch
from chaossloth.subject.recorder import READ, UPDATE, recorder

__all__ = ["ag", "ci", "it", "mt", "nx", "overrides", "ra", "rk", "ro", "rv", "tr"]

R = recorder
N = recorder.names
IDS = recorder.names.ids
KINDS = c.KINDS


def overrides(t: type, name: str) -> bool:
    """Whether the operation of a container's subclass is Python code (which then is what accesses)."""
    return isinstance(getattr(t, name, None), types.FunctionType)


def tr(o: Any, s: int) -> Any:
    """Before the truth or the length of `o` is taken."""
    if R.enabled:
        kind = KINDS.get(type(o))
        if kind:
            R.put((IDS.get(id(o)) or N.seen(o), "#", 1, s))
        elif type(o) not in PLAIN:
            _structure_of_other(o, s)
    return o


def _structure_of_other(o: Any, s: int) -> None:
    t = type(o)
    if c.kind_of(t):
        if not overrides(t, "__len__"):
            c.structure(o, s)
    elif is_lazy(o):
        for source, _values in sources(o):
            c.structure(source, s)
    elif t in WINDOWS:
        tr(behind(o), s)
    elif nature_of(t) == "opaque" and (hasattr(t, "__len__") or hasattr(t, "__bool__")):
        touch(o, READ, s)
    elif foreign_operation(t, "__len__") or foreign_operation(t, "__bool__"):
        operate(o, READ, s)


def rk(o: Any, s: int) -> Any:
    """Before `o` is iterated from begin to end (a dict: its keys)."""
    if R.enabled and type(o) not in PLAIN:
        read(o, s, KEYS)
    return o


def rv(o: Any, s: int) -> Any:
    """Before `o` is copied: its values are read, but not what is in them."""
    if R.enabled and type(o) not in PLAIN:
        read(o, s, VALUES)
    return o


def ro(o: Any, s: int) -> Any:
    """Before the items of `o` are compared with one another (`sorted`)."""
    if R.enabled and type(o) not in PLAIN:
        read(o, s, DEEP if KINDS.get(type(o)) == "list" else KEYS)
    return o


def ra(o: Any, s: int) -> Any:
    """Before everything in `o` is read, at any depth (`==`, `str`)."""
    if R.enabled and type(o) not in c.SCALARS:
        read(o, s, DEEP)
    return o


KEYS, VALUES, DEEP = 0, 1, 2
_DEEPEST = 6


def read(o: Any, s: int, how: int, depth: int = 0) -> None:
    t = type(o)
    kind = c.kind_of(t)
    if kind:
        if how == KEYS:
            c.read_keys(o, kind, s)
        else:
            c.read_all(o, kind, s)
            if how == DEEP:
                _read_nested(o, kind, s, depth)
    elif is_lazy(o):
        how = max(how, _called_lazily(o, s))
        cursors(o, s)
        for source, with_values in sources(o):
            read(source, s, max(how, VALUES if with_values else KEYS), depth + 1)
    elif t is tuple:
        if how == DEEP:
            _read_nested(o, "", s, depth)
    elif t in WINDOWS:
        read(behind(o), s, how, depth)
    elif t is types.GeneratorType or t.__module__ == "itertools":
        cursors(o, s)
    elif t not in PLAIN:
        _read_instance(o, how, s)


def _called_lazily(o: Any, s: int) -> int:
    """How deep what is in `o` is read by the functions that iterating over it calls (`map`, `filter`)."""
    if type(o) is not map and type(o) is not filter:
        return KEYS
    from chaossloth.subject.callables import handed_lazily  # which is made of what is here

    return DEEP if handed_lazily(o, s) else KEYS


def _read_nested(o: Any, kind: str, s: int, depth: int) -> None:
    if depth >= _DEEPEST:
        R.not_seen(f"a value nested deeper than {_DEEPEST} containers was read", s)
        return
    number = IDS.get(id(o), 0)
    for key, v in list(dict.items(o)) if kind == "dict" else enumerate(list(o)):
        t = type(v)
        if t is tuple or KINDS.get(t):
            if kind and t is not tuple:
                N.reached(v, number, c.key_of(key))
            read(v, s, DEEP, depth + 1)


def _read_instance(o: Any, how: int, s: int) -> None:
    """`o` is compared, shown or copied by code that is not the subject's (a dataclass's `__eq__`)."""
    t = type(o)
    nature = nature_of(t)
    if nature == "opaque":
        touch(o, READ, s)
    if how == KEYS and foreign_operation(t, "__iter__"):
        operate(o, READ, s)
    if how != KEYS and nature in ("ours", "holder") and not _compares_itself(t):
        number = IDS.get(id(o)) or N.seen(o)
        for name in state_names(o):
            R.put((number, name, READ, s))


def _compares_itself(t: type) -> bool:
    """Identity comparison, or the subject's own instrumented `__eq__`."""
    return c.operation(t, "__eq__") is object.__eq__ or is_ours(t.__eq__)


def ci(o: Any, x: Any, s: int) -> Any:
    """Before `x in o`."""
    if R.enabled:
        t = type(o)
        kind = c.kind_of(t)
        if kind:
            if t in c.EXACT or not overrides(t, "__contains__"):
                c.contains(o, kind, x, s)
        elif t not in PLAIN:
            if is_lazy(o):
                read(o, s, KEYS)
            elif t in WINDOWS:
                ci(behind(o), x, s)
            elif foreign_operation(t, "__contains__"):
                operate(o, READ, s)
            else:
                _structure_of_other(o, s)
    return o


def it(o: Any, s: int) -> Any:
    """The iterable of a `for` whose body suspends."""
    if R.enabled and type(o) not in PLAIN:
        if c.kind_of(type(o)) and overrides(type(o), "__iter__"):
            return o
        return watched(o, s)
    return o


def nx(o: Any, s: int) -> Any:
    """Before `next(o)`."""
    if R.enabled and type(o) not in PLAIN and not is_ours(getattr(type(o), "__next__", None)):
        c.number_of(o)  # with a name, it is one of the iterators that move
        cursors(o, s)
        _called_lazily(o, s)
        if nature_of(type(o)) in ("opaque", "ours"):
            operate(o, UPDATE, s)
        for source, values in sources(o):
            (c.read_all if values else c.read_keys)(source, c.kind_of(type(source)), s)
    return o


def ag(o: Any, s: int) -> Any:
    """The iterable of an `async for`, which others may iterate too."""
    return watched_async(o, s) if R.enabled else o


def mt(o: Any, names: tuple[str, ...], s: int) -> Any:
    """Before `match o`, whose class patterns look at the attributes `names`."""
    if R.enabled:
        _match(o, names, s, 0)
    return o


def _match(o: Any, names: tuple[str, ...], s: int, depth: int) -> None:
    if type(o) in c.SCALARS or depth > _DEEPEST:
        return
    kind = c.kind_of(type(o))
    if kind or type(o) is tuple:
        if kind:
            c.read_all(o, kind, s)
        for v in list(dict.values(o)) if kind == "dict" else list(o):
            _match(v, names, s, depth + 1)
        return
    if nature_of(type(o)) not in ("ours", "holder"):
        return
    for name in dict.fromkeys((*names, *getattr(type(o), "__match_args__", ()))):
        ga(o, name, s)
        if ATTRIBUTES.get(type(o)) is not None and name in o.__dict__:
            _match(o.__dict__[name], names, s, depth + 1)
