"""Keys of locations: what a dict key, set element or attribute name is in every execution.

Two keys that the subject's containers would take for the same must be the same key here, and nothing that looks at
them may run the subject's `__hash__` or `__eq__`.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import fractions
import pathlib
import uuid
from collections.abc import Callable, Hashable
from typing import Any

from chaossloth.subject.identity import Names

__all__ = ["SCALARS", "VALUE_TYPES", "can_look_up", "key_of", "operation"]

SCALARS: frozenset[type] = frozenset(
    {int, float, str, bytes, bool, complex, type(None), range, type(NotImplemented), type(...)}
)
_VALUES = (uuid.UUID, decimal.Decimal, fractions.Fraction, datetime.date, datetime.time, datetime.timedelta)
VALUE_TYPES: frozenset[type] = frozenset(
    {*_VALUES, datetime.datetime, datetime.timezone, pathlib.PosixPath, pathlib.PurePosixPath, frozenset}
)


_PLAIN_VALUES: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (bytes, bytes.__bytes__),
)


def key_of(k: Any, names: Names) -> Hashable:
    """`k` as part of a location: scalars and tuples of them by value, other objects by identity.

    Objects with their own `__eq__` may equal one another: they share one key per type (sound, and coarse).
    """
    t = type(k)
    if t is str:
        return k if k != "#" else "'#'"
    if t in SCALARS:
        return k  # type: ignore[no-any-return]
    if t is tuple:
        return tuple([key_of(item, names) for item in k])
    if t in VALUE_TYPES:
        return k if t is not frozenset else ("frozenset", frozenset([key_of(item, names) for item in k]))
    return _object_key(k, t, names)


def _object_key(k: Any, t: type, names: Names) -> Hashable:
    equal = operation(t, "__eq__")
    if equal is object.__eq__ or isinstance(k, type):
        return (
            (t.__qualname__, k._name_)
            if isinstance(k, enum.Enum)
            else ("object", names.ids.get(id(k)) or names.seen(k))
        )
    for base, plain in _PLAIN_VALUES:  # enums and other subclasses that equal their plain values
        if equal is operation(base, "__eq__"):
            return key_of(plain(k), names)
    if equal is tuple.__eq__:
        return tuple([key_of(item, names) for item in tuple.__iter__(k)])
    if _compares_fields(t):
        found = object.__getattribute__(k, "__dict__")
        return (t.__qualname__, *[key_of(found.get(f.name), names) for f in dataclasses.fields(t) if f.compare])
    return ("equal", t.__qualname__)


def _compares_fields(t: type) -> bool:
    code = getattr(t.__eq__, "__code__", None)
    generated = dataclasses.is_dataclass(t) and code is not None and code.co_filename == "<string>"
    return generated and "__slots__" not in t.__dict__


def can_look_up(k: Any) -> bool:
    """Whether looking `k` up runs no code of the subject."""
    t = type(k)
    if t in SCALARS:
        return True
    if t is tuple:
        return all(can_look_up(item) for item in k)
    if t in VALUE_TYPES:
        return t is not frozenset
    return operation(t, "__hash__") is object.__hash__ and operation(t, "__eq__") is object.__eq__


def operation(t: type, name: str) -> Any:
    """What implements operation `name` for instances of `t`."""
    return getattr(t, name, None)
