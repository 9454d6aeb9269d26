"""Functions that are called by code which cannot be seen: a key of `sorted`, a function for `map`, a loop's callback.

The subject's own functions record what they do; a C method of a container, an `operator.attrgetter` and the like must
be recorded by whoever hands them over. A callback that the loop runs is recorded when it runs.
"""

from __future__ import annotations

import operator
import types
from functools import partial
from typing import Any

from chaossloth.subject import containers as c
from chaossloth.subject.attributes import ga, own_value
from chaossloth.subject.container_methods import METHODS, reads_only
from chaossloth.subject.following import arguments, contained, follow
from chaossloth.subject.foreign import BUILTIN_METHODS, effect_of, is_ours, nature_of
from chaossloth.subject.iteration import called_by, sources
from chaossloth.subject.opaque import WINDOWS, behind, operate, touch
from chaossloth.subject.recorder import READ, WRITE, Site, add_site, recorder

__all__ = ["GETTERS", "getter", "handed", "handed_lazily", "is_callable_object", "note_callbacks", "site_of"]

R = recorder
N = recorder.names
IDS = recorder.names.ids

GETTERS: frozenset[type] = frozenset({operator.itemgetter, operator.attrgetter, operator.methodcaller})
_CALLED_AT_ONCE = frozenset(
    {"functools", "_functools", "operator", "_operator", "heapq", "_heapq", "bisect", "_bisect", "statistics", "re"}
    | {"builtins", "itertools"}
)


def is_callable_object(v: Any) -> bool:
    """Whether `v` is something that calls container methods without code of the subject's."""
    t = type(v)
    return t in BUILTIN_METHODS or t is partial or t in GETTERS


def getter(f: Any, a: tuple[Any, ...], s: int) -> None:
    """The call of an itemgetter, attrgetter or methodcaller."""
    if not a:
        return
    made, given, *_ = f.__reduce__()
    o = behind(a[0]) if type(a[0]) in WINDOWS else a[0]
    if type(f) is operator.attrgetter:
        for path in given:
            _follow_path(o, path.split("."), s)
    elif type(f) is operator.itemgetter:
        for key in given:
            _get_item(o, key, s)
    else:
        with_keywords = isinstance(made, partial)
        words: tuple[Any, ...] = (*made.args, *given) if with_keywords else given
        kw: dict[str, Any] = made.keywords if with_keywords else {}
        _call_method(o, words[0], words[1:], kw, s)


def _follow_path(o: Any, names: list[str], s: int) -> None:
    for name in names:
        ga(o, name, s)
        o = own_value(o, name)


def _get_item(o: Any, key: Any, s: int) -> None:
    kind = c.kind_of(type(o))
    if kind:
        c.read_item(o, kind, key, s)
    elif nature_of(type(o)) == "opaque":
        touch(o, READ, s)


def _call_method(o: Any, name: str, a: tuple[Any, ...], kw: dict[str, Any], s: int) -> None:
    kind = c.kind_of(type(o))
    if kind:
        METHODS[kind](o, c.number_of(o), name, a, kw, s)
    elif nature_of(type(o)) == "opaque":
        touch(o, WRITE, s)


def handed(f: Any, s: int, elements: tuple[Any, ...] = (), by: str = "builtins") -> None:
    """`f` is given to code of module `by` that will call it, on `elements` where they are known."""
    t = type(f)
    if t in BUILTIN_METHODS:
        o = behind(f.__self__) if type(f.__self__) in WINDOWS else f.__self__
        kind = c.kind_of(type(o))
        if kind:
            only_reads = reads_only(f.__name__)
            (c.read_all if only_reads else c.write_all)(o, kind, s)
            if not only_reads and by.partition(".")[0] not in _CALLED_AT_ONCE:
                R.not_seen(f"a method of a {type(o).__name__}, given to code that may call it later", s)
        elif isinstance(o, types.ModuleType) or o is None:
            arguments(effect_of(f), elements, {}, s)
        else:
            follow(o, WRITE, s)
    elif t is partial:
        handed(f.func, s, (*f.args, *f.keywords.values(), *elements), by)
        arguments(effect_of(f.func) if not is_ours(f.func) else "none", f.args, f.keywords, s)
    elif t in GETTERS:
        for element in elements:
            getter(f, (element,), s)
    elif t is types.MethodType and not is_ours(f):
        nature = nature_of(type(f.__self__))
        if nature == "ours":
            operate(f.__self__, WRITE, s)
        elif nature == "opaque":
            touch(f.__self__, WRITE, s)
    elif isinstance(f, type) and nature_of(f) != "ours" or (t is types.FunctionType and not is_ours(f)):
        arguments(effect_of(f), elements, {}, s)


def handed_lazily(o: Any, s: int) -> bool:
    """The functions that iterating over `o` (a `map`, a `filter`) calls; whether there are any of unseen code."""
    foreign = [f for f in called_by(o) if not is_ours(f)]
    for f in foreign:
        known = [e for source, _ in sources(o) for e in contained(source, c.kind_of(type(source)))]
        handed(f, s, tuple(known))
    return bool(foreign)


# -- callbacks of the loop


_ELSEWHERE = add_site(Site("", 0, "", "callback"))
_sites: dict[tuple[int, str], int] = {}  # (container, method) -> site at which it was given to the loop


def note_callbacks(a: tuple[Any, ...], s: int) -> None:
    """`a` is given to asyncio, which may call it later."""
    for v in a:
        f: Any = v.func if type(v) is partial else v
        if type(f) in BUILTIN_METHODS and c.kind_of(type(f.__self__)):
            _sites[c.number_of(f.__self__), f.__name__] = s


def site_of(f: Any) -> int | None:
    """Where the container method `f` (or a partial of it) was given to the loop; None for any other callable."""
    f = f.func if type(f) is partial else f
    if type(f) in BUILTIN_METHODS and c.kind_of(type(f.__self__)):
        return _sites.get((c.number_of(f.__self__), f.__name__), _ELSEWHERE)
    return None
