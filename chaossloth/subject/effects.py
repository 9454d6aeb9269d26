"""What a call does to locations before it runs, where the callee is not the subject's own code."""

from __future__ import annotations

import functools
import random
import sys
import types
from collections.abc import Callable
from functools import partial
from typing import Any

from chaossloth.subject import containers as c
from chaossloth.subject.attributes import ATTRIBUTES, ga, own_value, store
from chaossloth.subject.cancelling import note_cancel
from chaossloth.subject.container_methods import METHODS, method
from chaossloth.subject.foreign import BUILTIN_METHODS, FUTURES, PLAIN, effect_of, is_ours, nature_of
from chaossloth.subject.iteration import is_lazy, sources
from chaossloth.subject.looking import nx, ra, rk, state_names, tr
from chaossloth.subject.recorder import FILES, READ, SYNC, UPDATE, WRITE, recorder

__all__ = ["call", "callk", "cf", "cfk"]

R = recorder
N = recorder.names
IDS = recorder.names.ids


def call(f: Any, s: int, /, *a: Any) -> Any:
    """What to call without arguments in place of `f(*a)`."""
    if R.enabled:
        _before(f, a, _NO_KEYWORDS, s)
    try:
        return partial(f, *a)
    except TypeError:  # f cannot be called: let the subject's own call say so
        return f


def callk(f: Any, s: int, /, *a: Any, **kw: Any) -> Any:
    """What to call without arguments in place of `f(*a, **kw)`."""
    if R.enabled:
        _before(f, a, kw, s)
    try:
        return partial(f, *a, **kw)
    except TypeError:
        return f


def cf(f: Any, s: int, /, *a: Any) -> Any:
    """`f`, about to be called with these arguments: for arguments that can be evaluated a second time."""
    if R.enabled:
        _before(f, a, _NO_KEYWORDS, s)
    return f


def cfk(f: Any, s: int, /, *a: Any, **kw: Any) -> Any:
    """The same with keywords."""
    if R.enabled:
        _before(f, a, kw, s)
    return f


_NO_KEYWORDS: dict[str, Any] = {}


def _before(f: Any, a: tuple[Any, ...], kw: dict[str, Any], s: int) -> None:
    t = type(f)
    if t is types.FunctionType or t is types.MethodType:
        code = getattr(f, "__code__", None)  # a method may be bound to any callable
        if (code is None or code.co_filename not in FILES) and not is_ours(f):
            _foreign_call(f, a, kw, s)
    elif t in BUILTIN_METHODS:
        o = f.__self__
        kind = c.KINDS.get(type(o))
        if kind:
            METHODS[kind](o, IDS.get(id(o)) or N.seen(o), f.__name__, a, kw, s)
        else:
            _builtin_call(f, a, kw, s)
    elif t is _CACHED:
        R.put((IDS.get(id(f)) or N.seen(f), c.key_of((*a, *kw.values())), UPDATE, s))
    elif not is_ours(f) and not is_ours(getattr(t, "__call__", None)):  # noqa: B004 (the method is wanted, not whether there is one)
        _foreign_call(f, a, kw, s)


_CACHED = functools._lru_cache_wrapper
_FUTURE_OPERATIONS = {
    "done": READ,
    "result": READ,
    "exception": READ,
    "cancelled": READ,
    "add_done_callback": READ,
    "remove_done_callback": READ,
    "set_result": WRITE,
    "set_exception": WRITE,
}


def _builtin_call(f: Any, a: tuple[Any, ...], kw: dict[str, Any], s: int) -> None:
    o = f.__self__
    t = type(o)
    kind = c.kind_of(t)
    if kind:
        method(o, kind, f.__name__, a, kw, s)
    elif t is types.ModuleType or o is None:
        special = _SPECIAL.get(f)
        if special is not None:
            special(a, s)
        else:
            _foreign_call(f, a, kw, s)
    elif isinstance(o, FUTURES):
        _future_call(o, f.__name__, s)
    elif isinstance(f, types.MethodWrapperType) and f.__name__ in ("__setattr__", "__delattr__", "__getattribute__"):
        _raw_attribute(o, f.__name__, a, s)
    else:
        _foreign_method(o, f, a, kw, s)


def _future_call(o: Any, name: str, s: int) -> None:
    mode = _FUTURE_OPERATIONS.get(name)
    if mode is not None:
        R.put((IDS.get(id(o)) or N.seen(o), "done", mode | SYNC, s))
    elif name == "cancel":
        note_cancel(R, o)


def _raw_attribute(o: Any, operation: str, a: tuple[Any, ...], s: int) -> None:
    """`super().__setattr__(name, value)` and the like."""
    if a and isinstance(a[0], str):
        number = IDS.get(id(o)) or N.seen(o)
        R.put((number, a[0], READ if operation == "__getattribute__" else WRITE, s))


def _foreign_method(o: Any, f: Any, a: tuple[Any, ...], kw: dict[str, Any], s: int) -> None:
    nature = nature_of(type(o))
    effect = effect_of(f)
    if o is _SHARED_RANDOM:  # `random.uniform` and the like: draws are made per task, not from one stream
        nature = "nothing"
    if nature == "opaque":
        R.put((IDS.get(id(o)) or N.seen(o), "#", READ if _only_looks(o, f) else WRITE, s))
    elif isinstance(o, (types.GeneratorType, types.AsyncGeneratorType)):
        R.put((IDS.get(id(o)) or N.seen(o), "#", UPDATE, s))
    elif nature == "ours" and effect == "write":
        _follow(o, WRITE, s)
    if (type(o) in PLAIN or nature == "nothing") and effect == "write":
        effect = "read"
    _arguments(effect, a, kw, s)


_SHARED_RANDOM = getattr(random, "_inst", None)
_LOOKING_METHODS = frozenset(
    {"get", "keys", "values", "items", "copy", "__getitem__", "__contains__", "__len__", "__iter__"}
)


def _only_looks(o: Any, f: Any) -> bool:
    """The reading methods of the standard library's mappings (`WeakValueDictionary`, `ChainMap`) change nothing."""
    name = getattr(f, "__name__", "")
    return name in _LOOKING_METHODS and type(o).__module__.partition(".")[0] in sys.stdlib_module_names


def _foreign_call(f: Any, a: tuple[Any, ...], kw: dict[str, Any], s: int) -> None:
    o = getattr(f, "__self__", None)
    if isinstance(f, types.MethodType) and not isinstance(o, type):
        if isinstance(o, FUTURES):
            _future_call(o, f.__name__, s)
            return
        _foreign_method(o, f, a, kw, s)
        return
    if f is object.__setattr__ or f is object.__delattr__ or f is object.__getattribute__:
        if a:
            _raw_attribute(a[0], f.__name__, a[1:], s)
        return
    if isinstance(f, type):
        if nature_of(f) in ("ours", "nothing"):
            return
    elif isinstance(f, (types.MethodDescriptorType, types.WrapperDescriptorType)) and a and c.kind_of(type(a[0])):
        method(a[0], c.kind_of(type(a[0])), f.__name__, a[1:], kw, s)
        return
    elif isinstance(f, partial):
        _before(f.func, (*f.args, *a), {**f.keywords, **kw}, s)
        return
    elif not isinstance(f, (types.FunctionType, types.BuiltinFunctionType)) and nature_of(type(f)) == "opaque":
        R.put((IDS.get(id(f)) or N.seen(f), "#", WRITE, s))
    _arguments(effect_of(f), a, kw, s)


def _arguments(effect: str, a: tuple[Any, ...], kw: dict[str, Any], s: int) -> None:
    if effect == "none":
        return
    for position, v in enumerate((*a, *kw.values())):
        if type(v) in c.SCALARS:
            continue
        if effect == "write" or (effect == "write first" and position == 0):
            _follow(v, WRITE, s)
        elif effect == "read through":
            _follow(v, READ, s)
        elif effect == "read keys":
            rk(v, s)
        else:
            ra(v, s)


_LARGEST = 2000


def _follow(o: Any, mode: int, s: int) -> None:
    """`o` is in the hands of code that cannot be seen: it, and what it contains, counts as accessed.

    Writes stop at the attributes of an instance; reads (`deepcopy`) go on to what these hold.
    """
    pending, seen = [o], set[int]()
    while pending:
        o = pending.pop()
        if id(o) in seen:
            continue
        seen.add(id(o))
        if len(seen) > _LARGEST:
            R.not_seen("an argument too large to follow was given to foreign code", s)
            return
        pending.extend(_access_whole(o, mode, s))


def _access_whole(o: Any, mode: int, s: int) -> list[Any]:
    kind = c.kind_of(type(o))
    if kind:
        (c.write_all if mode == WRITE else c.read_all)(o, kind, s)
        return _contained(o, kind)
    if type(o) is tuple:
        return _contained(o, "list")
    if type(o) in PLAIN:
        return []
    if is_lazy(o):
        return [source for source, _values in sources(o)]
    return _access_state(o, mode, s)


def _access_state(o: Any, mode: int, s: int) -> list[Any]:
    nature = nature_of(type(o))
    if nature == "opaque":
        R.put((IDS.get(id(o)) or N.seen(o), "#", mode, s))
    if nature not in ("ours", "holder"):
        return []
    number = IDS.get(id(o)) or N.seen(o)
    held = []
    for name in state_names(o):
        R.put((number, name, mode, s))
        value = own_value(o, name)
        if mode == READ and type(value) not in PLAIN:
            N.reached(value, number, name)
            held.append(value)
    return held


def _contained(o: Any, kind: str) -> list[Any]:
    values = list(dict.values(o)) if kind == "dict" else list(o)
    return [v for v in values if type(v) not in c.SCALARS]


# -- builtins that reach objects by other means


def _getattr(a: tuple[Any, ...], s: int) -> None:
    if len(a) > 1 and type(a[1]) is str:
        ga(a[0], a[1], s)


def _setattr(a: tuple[Any, ...], s: int) -> None:
    if len(a) > 1 and type(a[1]) is str:
        store(a[0], a[1], s, WRITE)


def _vars(a: tuple[Any, ...], s: int) -> None:
    if a and ATTRIBUTES.get(type(a[0])) is not None:
        N.alias(a[0].__dict__, IDS.get(id(a[0])) or N.seen(a[0]))


def _evaluated(a: tuple[Any, ...], s: int) -> None:
    R.not_seen("code run by eval or exec", s)


def _length(a: tuple[Any, ...], s: int) -> None:
    if a:
        tr(a[0], s)


def _next(a: tuple[Any, ...], s: int) -> None:
    if a:
        nx(a[0], s)


def _iter(a: tuple[Any, ...], s: int) -> None:
    if a:
        rk(a[0], s)


def _nothing(a: tuple[Any, ...], s: int) -> None:
    """isinstance, id, ...: look at no location."""


_SPECIAL: dict[Any, Callable[[tuple[Any, ...], int], None]] = {
    getattr: _getattr,
    hasattr: _getattr,
    setattr: _setattr,
    delattr: _setattr,
    vars: _vars,
    eval: _evaluated,
    exec: _evaluated,
    len: _length,
    next: _next,
    isinstance: _nothing,
    issubclass: _nothing,
    id: _nothing,
    callable: _nothing,
    hash: _nothing,
    iter: _iter,
}
