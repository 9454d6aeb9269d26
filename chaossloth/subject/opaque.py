"""Objects whose own code cannot be seen: one location, "#", for all their state.

What such an object was given it may keep, and change whenever it is used (a `ChainMap` over the subject's dict, a
cache with a back-end of the subject's): so an access to it is also one to the objects that it was given. What only
shows another object (a mapping proxy, a memoryview, a weak proxy) has no state of its own: it is looked through.
Things that vanish by themselves (what a weak reference refers to) are looked at when a step ends.
"""

from __future__ import annotations

import gc
import types
import weakref
from typing import Any

from chaossloth.subject import containers as c
from chaossloth.subject.foreign import PLAIN, is_ours, nature_of
from chaossloth.subject.recorder import WRITE, recorder

__all__ = [
    "WINDOWS",
    "behind",
    "forget_operations",
    "foreign_operation",
    "give",
    "kept_by",
    "made_at",
    "operate",
    "own_dict",
    "state_names",
    "touch",
    "vanishes",
]

R = recorder
N = recorder.names
IDS = recorder.names.ids

WINDOWS: frozenset[type] = frozenset({types.MappingProxyType, memoryview, weakref.ProxyType, weakref.CallableProxyType})
_WEAK_CONTAINERS = (weakref.WeakValueDictionary, weakref.WeakKeyDictionary, weakref.WeakSet)


def behind(o: Any) -> Any:
    """The object that window `o` shows; None when it is gone."""
    if type(o) is types.MappingProxyType:
        return gc.get_referents(o)[0]
    try:
        if type(o) is memoryview:
            return o.obj
        return o.__repr__.__self__  # a weak proxy forwards every attribute
    except (ValueError, ReferenceError):  # a released view, a dead proxy: the subject's own access will say so
        return None


def touch(o: Any, mode: int, s: int) -> None:
    """`o`, whose code cannot be seen, is used; with it what it was given."""
    number = IDS.get(id(o)) or N.seen(o)
    R.put((number, "#", mode, s))
    if isinstance(o, _WEAK_CONTAINERS):
        vanishes(o, s)
    if N.inside:
        _touch_inside(number, mode, s, {number})


def _touch_inside(number: int, mode: int, s: int, done: set[int]) -> None:
    for each in sorted(N.inside.get(number, ())):
        held = N.object(each)
        if held is None or each in done:
            continue
        done.add(each)
        kind = c.kind_of(type(held))
        if kind:
            (c.write_all if mode & WRITE else c.read_all)(held, kind, s)
        elif nature_of(type(held)) == "opaque":
            R.put((each, "#", mode, s))
        else:
            for name in state_names(held):
                R.put((each, name, mode, s))
        _touch_inside(each, mode, s, done)


# -- what objects were given

_COPYING = frozenset({"numpy", "array", "decimal", "datetime", "pandas", "collections.UserString"})
_given: dict[int, set[int]] = {}  # call site -> objects that the call now running was given


def give(o: Any, a: tuple[Any, ...]) -> None:
    """`o`, whose code cannot be seen, was given `a` and may keep it."""
    kept = _numbers(a)
    if kept:
        N.inside.setdefault(IDS.get(id(o)) or N.seen(o), set()).update(kept)


def kept_by(module: str, a: tuple[Any, ...], s: int) -> None:
    """The call at site `s` of foreign code is given `a`; what it returns may keep that."""
    _given.pop(s, None)
    if module.partition(".")[0] not in _COPYING:
        kept = _numbers(a)
        if kept:
            _given[s] = kept


def made_at(o: Any, s: int) -> None:
    """`o` is what the call at site `s` returned."""
    if _given:
        kept = _given.pop(s, None)
        if kept and nature_of(type(o)) == "opaque":
            number = IDS[id(o)]
            N.inside.setdefault(number, set()).update(kept - {number})


def _numbers(a: tuple[Any, ...]) -> set[int]:
    changing = ("ours", "holder", "opaque", "container")
    return {IDS.get(id(v)) or N.seen(v) for v in a if type(v) not in PLAIN and nature_of(type(v)) in changing}


# -- objects of the subject's classes with operations that are not


_operations: dict[tuple[type, str], bool] = {}


def foreign_operation(t: type, name: str) -> bool:
    """Whether operation `name` of the subject's class `t` is inherited from code that cannot be seen."""
    found = _operations.get((t, name))
    if found is None:
        holder = next((cls for cls in t.__mro__ if name in cls.__dict__), object)
        found = holder is not object and nature_of(t) == "ours" and not is_ours(holder.__dict__[name])
        _operations[t, name] = found
    return found


def forget_operations() -> None:
    """Classes may have changed."""
    _operations.clear()


def operate(o: Any, mode: int, s: int) -> None:
    """Code that cannot be seen works on all of `o`, an object of a class of the subject's."""
    touch(o, mode, s)
    number = IDS[id(o)]
    found = own_dict(o)
    for name in state_names(o):
        R.put((number, name, mode, s))
        value = found.get(name)
        kind = c.kind_of(type(value))
        if kind:
            N.reached(value, number, name)
            (c.write_all if mode & WRITE else c.read_all)(value, kind, s)


def own_dict(o: Any) -> dict[str, Any]:
    try:
        found: dict[str, Any] = object.__getattribute__(o, "__dict__")
    except AttributeError:  # only slots
        return {}
    return found


def state_names(o: Any) -> list[str]:
    """Names of the attributes that `o` itself has, and of its slots."""
    found = list(own_dict(o))
    for cls in type(o).__mro__:
        found += [n for n, v in cls.__dict__.items() if isinstance(v, types.MemberDescriptorType)]
    return found


# -- what vanishes by itself


def vanishes(o: Any, s: int) -> None:
    """`o` is a weak reference or a weak container: its changes by the death of objects are noted from now on."""
    number = IDS.get(id(o)) or N.seen(o)
    if number in N.watched:
        return
    N.watched.add(number)
    is_reference = isinstance(o, weakref.ref)
    held = o if is_reference else weakref.ref(o)  # a weak reference keeps nothing alive
    before = _alive(o)

    def check() -> bool:
        nonlocal before
        there = held if is_reference else held()
        if there is None:
            return False
        now = _alive(there)
        if now != before:
            R.put((number, "#", WRITE, R.last_site(s)))
        before = now
        return now > 0 or not is_reference

    R.at_each_step(check)


def _alive(o: Any) -> int:
    if isinstance(o, weakref.ref):
        return int(o() is not None)
    return len(o.data)
