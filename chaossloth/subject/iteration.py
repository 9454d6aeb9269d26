"""Iteration: which containers an iterator reads, and loops whose body suspends.

Between two `next` of such a loop other tasks run, so every `next` is an access of its own. The loop's iterable is
replaced by a chain of C iterators that calls the recorder before each real `next`.
"""

from __future__ import annotations

import collections
import gc
import itertools
import operator
from collections.abc import Callable
from typing import Any

from chaossloth.subject.containers import holds, key_of, kind_of, number_of, reach, read_keys
from chaossloth.subject.recorder import READ, recorder

__all__ = ["is_lazy", "sources", "watched"]

R = recorder
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


class _Pulse:
    """Called before every `next` of a watched loop: that `next` reads the structure and one item of each source.

    Where it is not known which item comes next (a list behind `reversed`, or an iterator already begun) it reads all.
    """

    __slots__ = ("parts", "site")

    def __init__(self, iterated: Any, parts: list[tuple[Any, bool]], site: int) -> None:
        self.site = site
        self.parts = [(o, _cursor(o, values, o is iterated)) for o, values in parts]

    def __call__(self) -> None:
        if R.enabled:
            for o, cursor in self.parts:
                number = number_of(o)
                if cursor is _ALL:
                    read_keys(o, "list", self.site)
                    continue
                R.put((number, "#", READ, self.site))
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
    parts = sources(o)
    if not parts:
        return o
    pulse = _Pulse(o, parts, site)
    return map(operator.itemgetter(1), zip(iter(pulse, pulse), o, strict=False))


def is_lazy(o: Any) -> bool:
    """Whether `o` is a view or an iterator whose sources can be found."""
    return type(o) in _LAZY_TYPES
