"""Iteration: which containers an iterator reads, and loops whose body suspends.

Between two `next` of such a loop other tasks run, so every `next` is an access of its own. The loop's iterable is
replaced by a chain of C iterators that calls the recorder before each real `next`.
"""

from __future__ import annotations

import collections
import functools
import gc
import itertools
import operator
import types
from collections.abc import Callable
from typing import Any

from chaossloth.subject.containers import holds, key_of, kind_of, number_of, reach, read_keys
from chaossloth.subject.foreign import BUILTIN_METHODS
from chaossloth.subject.recorder import READ, UPDATE, recorder

__all__ = ["called_by", "cursors", "is_lazy", "sources", "watched", "watched_async"]

R = recorder
IDS = recorder.names.ids
_NOTHING = object()

_VIEWS = (type({}.keys()), type({}.values()), type({}.items())) + tuple(
    type(getattr(collections.OrderedDict(), name)()) for name in ("keys", "values", "items")
)
_KEY_ITERATORS: tuple[type, ...] = (type(iter({})), type(iter(set())), type(iter([])), type(iter(collections.deque())))
_LAZY = (
    enumerate,
    zip,
    map,
    filter,
    reversed,
    type(reversed([])),
    type(reversed({})),
    type(iter({}.values())),
    type(iter({}.items())),
    itertools.islice,
    itertools.chain,
    itertools.cycle,
    *_KEY_ITERATORS,
    *_VIEWS,
)
_LAZY_TYPES = frozenset(_LAZY)
_KEYS_ONLY: frozenset[type] = frozenset(
    {type({}.keys()), type(iter({})), type(collections.OrderedDict().keys()), type(reversed({}))}
)


def sources(o: Any, depth: int = 0) -> list[tuple[Any, bool]]:
    """The containers that iterating over `o` reads, each with whether its values are read too."""
    kind = kind_of(type(o))
    if kind:
        return [(o, False)]
    if depth > 8 or (type(o) not in _LAZY_TYPES and (type(o) is not tuple or depth == 0)):
        return []  # (`map` and `zip` keep their iterators in a tuple)
    found = [pair for part in gc.get_referents(o) for pair in sources(part, depth + 1)]
    if type(o) in _KEYS_ONLY:
        return [(source, False) for source, _values in found]
    direct = type(o) in _VIEWS or not isinstance(o, (enumerate, zip, map, filter, itertools.chain, itertools.islice))
    return [(source, values or (direct and kind_of(type(source)) == "dict")) for source, values in found]


_GENERATORS = (types.GeneratorType, types.AsyncGeneratorType)


def cursors(o: Any, s: int) -> None:
    """Iterating over `o` moves iterators on: those that others may have too. An iterator without a name is nobody
    else's; a generator of the subject's has no name before it is met."""
    for each in _cursors(o, 0):
        if type(each) in _GENERATORS or id(each) in IDS:
            R.put((number_of(each), "#", UPDATE, s))


def _cursors(o: Any, depth: int) -> list[Any]:
    t = type(o)
    if t in _GENERATORS:
        return [o]
    if (
        depth > 8
        or t in _VIEWS
        or (t not in _LAZY_TYPES and t.__module__ != "itertools" and not (t is tuple and depth))
    ):
        return []
    inner = [each for part in gc.get_referents(o) for each in _cursors(part, depth + 1)]
    return inner if t is tuple else [o, *inner]


_CALLABLES = (*BUILTIN_METHODS, types.FunctionType, types.MethodType, type, functools.partial)
_CALLING = (map, filter, itertools.starmap, itertools.takewhile, itertools.dropwhile, itertools.filterfalse)


def called_by(o: Any, depth: int = 0) -> list[Any]:
    """The functions that iterating over `o` calls."""
    if depth > 8 or (type(o) not in _LAZY_TYPES and type(o) not in _CALLING and (type(o) is not tuple or depth == 0)):
        return []
    parts = gc.get_referents(o)
    inner = [f for part in parts for f in called_by(part, depth + 1)]
    if type(o) not in _CALLING:
        return inner
    return inner + [p for p in parts if p is not None and (isinstance(p, _CALLABLES) or not hasattr(p, "__next__"))]


class _Pulse:
    """Called before every `next` of a watched loop: that `next` reads the structure and one item of each source.

    Where it is not known which item comes next (a list behind `reversed`, or an iterator already begun) it reads all.
    """

    __slots__ = ("moved", "parts", "site")

    def __init__(self, iterated: Any, parts: list[tuple[Any, bool]], site: int) -> None:
        self.site = site
        self.moved = [each for each in _cursors(iterated, 0) if type(each) in _GENERATORS or id(each) in IDS]
        self.parts = [(o, _cursor(o, values, o is iterated)) for o, values in parts]

    def __call__(self) -> None:
        if R.enabled:
            for each in self.moved:
                R.put((number_of(each), "#", UPDATE, self.site))
            for o, cursor in self.parts:
                number = number_of(o)
                if cursor is _ALL:
                    read_keys(o, "list", self.site)
                    continue
                R.put((number, "#", READ, self.site))
                R.ordered.add(number)
                if cursor is not None:
                    cursor(o, number, self.site)


_ALL: Any = object()


def _cursor(o: Any, values: bool, direct: bool) -> Callable[[Any, int, int], None] | None:
    if kind_of(type(o)) == "list":
        return _ListCursor() if direct else _ALL
    return _DictCursor(o) if values else None


class _ListCursor:
    __slots__ = ("position",)

    def __init__(self) -> None:
        self.position = 0

    def __call__(self, o: list[Any], number: int, site: int) -> None:
        position = self.position
        self.position += 1
        if position < list.__len__(o):
            R.put((number, position, READ, site))
            reach(list.__getitem__(o, position), number, position)


class _DictCursor:
    """After a change of size the real `next` looks at no item, it raises."""

    __slots__ = ("keys", "size")

    def __init__(self, o: dict[Any, Any]) -> None:
        self.size = dict.__len__(o)
        self.keys = iter(list(dict.keys(o)))

    def __call__(self, o: dict[Any, Any], number: int, site: int) -> None:
        key: Any = next(self.keys, _NOTHING)
        if key is _NOTHING or dict.__len__(o) != self.size:
            return
        R.put((number, key_of(key), READ, site))
        if holds(o, "dict", key):
            reach(dict.__getitem__(o, key), number, key_of(key))


def watched(o: Any, site: int) -> Any:
    """An iterable equal to `o` that records before every `next`; made of C iterators, so that an exception of the real
    `next` ("dictionary changed size during iteration") crosses no frame of ours."""
    pulse = _Pulse(o, sources(o), site)
    if not pulse.parts and not pulse.moved:
        return o
    return map(operator.itemgetter(1), zip(iter(pulse, pulse), o, strict=False))


class _AsyncPulse:
    """An asynchronous generator that others may iterate too; what it returns is the generator's own awaitable."""

    __slots__ = ("generator", "site")

    def __init__(self, generator: Any, site: int) -> None:
        self.generator = generator
        self.site = site

    def __aiter__(self) -> Any:
        return self

    def __anext__(self) -> Any:
        if R.enabled:
            R.put((number_of(self.generator), "#", UPDATE, self.site))
        return self.generator.__anext__()


def watched_async(o: Any, site: int) -> Any:
    """The iterable of an `async for`."""
    return _AsyncPulse(o, site) if type(o) is types.AsyncGeneratorType else o


def is_lazy(o: Any) -> bool:
    """Whether `o` is a view or an iterator whose sources can be found."""
    return type(o) in _LAZY_TYPES
