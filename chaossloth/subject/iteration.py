"""Iteration: which containers an iterator reads, and loops whose body suspends.

Between two `next` of such a loop other tasks run, so every `next` is an access of its own. The loop's iterable is
replaced by a chain of C iterators that calls the recorder before each real `next`.
"""

from __future__ import annotations

import collections
import gc
import itertools
import operator
from collections.abc import Iterator
from typing import Any

from chaossloth.subject.containers import holds, key_of, kind_of, number_of, reach
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
    """Called before every `next` of a watched loop: that `next` reads the structure and one item of each source."""

    __slots__ = ("parts", "site")

    def __init__(self, parts: list[tuple[Any, bool]], site: int) -> None:
        self.site = site
        self.parts = [(o, _cursor(o, values)) for o, values in parts]

    def __call__(self) -> None:
        if R.enabled:
            for o, cursor in self.parts:
                number = number_of(o)
                R.put((number, "#", READ, self.site))
                if cursor is not None:
                    _put_next(o, number, cursor, self.site)


def _cursor(o: Any, values: bool) -> Iterator[Any] | None:
    if kind_of(type(o)) == "list":
        return itertools.count()
    return iter(list(dict.keys(o))) if values else None


def _put_next(o: Any, number: int, cursor: Iterator[Any], site: int) -> None:
    key: Any = next(cursor, _NOTHING)
    if key is _NOTHING:
        return
    if isinstance(o, list):
        if key < list.__len__(o):
            R.put((number, key, READ, site))
            reach(list.__getitem__(o, key), number, key)
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
    pulse = _Pulse(parts, site)
    return map(operator.itemgetter(1), zip(iter(pulse, pulse), o, strict=False))


def is_lazy(o: Any) -> bool:
    """Whether `o` is a view or an iterator whose sources can be found."""
    return type(o) in _LAZY_TYPES
