"""What a call does to locations before it runs, where the callee is not the subject's own code."""

from __future__ import annotations

import functools
import gc
import random
import sys
import types
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from chaossloth.subject import containers as c
from chaossloth.subject.attributes import ATTRIBUTES, alias_class, ga, store
from chaossloth.subject.callables import GETTERS, getter, handed, is_callable_object, note_callbacks, site_of
from chaossloth.subject.cancelling import note_cancel
from chaossloth.subject.container_methods import METHODS, method
from chaossloth.subject.following import arguments, follow
from chaossloth.subject.foreign import BUILTIN_METHODS, FUTURES, PLAIN, effect_of, is_ours, nature_of
from chaossloth.subject.looking import nx, rk, tr
from chaossloth.subject.opaque import WINDOWS, behind, give, kept_by, operate, touch, vanishes
from chaossloth.subject.outside import outside_function, outside_method
from chaossloth.subject.recorder import FILES, READ, SYNC, UPDATE, WRITE, recorder

__all__ = ["FOREIGN_CALLBACKS", "before_callback", "call", "callk", "cf", "cfk", "cx"]

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


class cx:
    """What to call with `*a, **kw`, and then without arguments, in place of `f(*a, **kw)`: where these cannot be
    unpacked, the message that the interpreter makes names the function, as it calls itself."""

    __slots__ = ("_function", "_site")

    def __init__(self, f: Any, s: int) -> None:
        self._function = f
        self._site = s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    def __str__(self) -> str:
        return str(self._function)

    def __call__(self, /, *a: Any, **kw: Any) -> Any:
        return callk(self._function, self._site, *a, **kw)


# The class's own `__module__` would be found before `__getattr__` is asked.
cx.__module__ = property(lambda self: self._function.__module__)  # type: ignore[assignment]


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
        _cached_call(f, a, kw, s)
    elif not is_ours(f) and not is_ours(getattr(t, "__call__", None)):  # noqa: B004 (the method is wanted, not whether there is one)
        _foreign_call(f, a, kw, s)


_CACHED = functools._lru_cache_wrapper


def _cached_call(f: Any, a: tuple[Any, ...], kw: dict[str, Any], s: int) -> None:
    """A cache has one location per key, and "#" for its figures; one that is full drops other keys."""
    number = IDS.get(id(f)) or N.seen(f)
    _hits, _misses, most, size = f.cache_info()
    R.put((number, c.key_of((*a, *kw.values())), UPDATE, s))
    R.put((number, "#", READ if most is None or size < most else UPDATE, s))


FOREIGN_CALLBACKS = frozenset({types.BuiltinFunctionType, types.MethodWrapperType, partial})


def before_callback(f: Any, a: tuple[Any, ...]) -> None:
    """The loop is about to call `f`, which may be a container's method (`task.add_done_callback(tasks.discard)`)."""
    s = site_of(f)
    if s is not None:
        _before(f, a, _NO_KEYWORDS, s)


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
    if type(o) in WINDOWS:
        o = behind(o)
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
        _future_call(o, f.__name__, a, s)
    elif t is _CACHED:
        R.put((IDS.get(id(o)) or N.seen(o), "#", UPDATE, s))
    elif isinstance(f, types.MethodWrapperType) and f.__name__ in ("__setattr__", "__delattr__", "__getattribute__"):
        _raw_attribute(o, f.__name__, a, s)
    elif getattr(f, "__objclass__", None) is not object:
        _foreign_method(o, f, a, kw, s)


def _future_call(o: Any, name: str, a: tuple[Any, ...], s: int) -> None:
    mode = _FUTURE_OPERATIONS.get(name)
    if mode is not None:
        R.put((IDS.get(id(o)) or N.seen(o), "done", mode | SYNC, s))
        note_callbacks(a, s)
    elif name == "cancel":
        note_cancel(R, o)
    elif name in ("cancelling", "uncancel"):
        R.put((IDS.get(id(o)) or N.seen(o), "cancel", (READ if name == "cancelling" else UPDATE) | SYNC, s))
    elif name in ("set_name", "get_name"):
        R.put((IDS.get(id(o)) or N.seen(o), "name", WRITE if name == "set_name" else READ, s))


_JOINING = frozenset({"gather", "wait", "wait_for", "as_completed", "shield"})


def _join(a: tuple[Any, ...], s: int) -> None:
    """asyncio is asked to wait for futures: those that are done are read at once."""
    for v in a:
        members = [v] if isinstance(v, FUTURES) else v if c.kind_of(type(v)) or type(v) in (tuple, frozenset) else ()
        if isinstance(members, dict):
            members = list(dict.keys(members))
        if members is v:
            rk(v, s)
        for each in list(members):
            if isinstance(each, FUTURES) and each.done():
                R.put((IDS.get(id(each)) or N.seen(each), "done", READ | SYNC, s))


def _raw_attribute(o: Any, operation: str, a: tuple[Any, ...], s: int) -> None:
    """`super().__setattr__(name, value)` and the like."""
    if a and isinstance(a[0], str):
        number = IDS.get(id(o)) or N.seen(o)
        R.put((number, a[0], READ if operation == "__getattribute__" else WRITE, s))


def _foreign_method(o: Any, f: Any, a: tuple[Any, ...], kw: dict[str, Any], s: int) -> None:
    if outside_method(o, f.__name__, a, kw, s):
        return
    nature = nature_of(type(o))
    effect = effect_of(f)
    if o is _SHARED_RANDOM:  # `random.uniform` and the like: draws are made per task, not from one stream
        nature = "nothing"
    if nature == "opaque":
        looks = _only_looks(o, f)
        touch(o, READ if looks else WRITE, s)
        if not looks:
            give(o, (*a, *kw.values()))
    elif isinstance(o, (types.GeneratorType, types.AsyncGeneratorType)):
        R.put((IDS.get(id(o)) or N.seen(o), "#", UPDATE, s))
    elif nature == "ours" and effect != "none":
        operate(o, READ if f.__name__ in _LOOKING_METHODS else WRITE, s)
        if effect == "write":
            follow(o, WRITE, s)
    if (type(o) in PLAIN or nature == "nothing") and effect == "write":
        effect = "read"
    elif effect == "none":
        note_callbacks(a, s)
    _given(f, effect, a, kw, s)


_SHARED_RANDOM = getattr(random, "_inst", None)
_LOOKING_METHODS = frozenset(
    {
        *("get", "keys", "values", "items", "copy", "__getitem__", "__contains__", "__len__", "__iter__"),
        *("__dir__", "__reduce__", "__reduce_ex__", "__getstate__", "__format__", "__sizeof__"),
    }
)


def _only_looks(o: Any, f: Any) -> bool:
    """The reading methods of the standard library's mappings (`WeakValueDictionary`, `ChainMap`) change nothing."""
    name = getattr(f, "__name__", "")
    return name in _LOOKING_METHODS and type(o).__module__.partition(".")[0] in sys.stdlib_module_names


def _foreign_call(f: Any, a: tuple[Any, ...], kw: dict[str, Any], s: int) -> None:
    o = getattr(f, "__self__", None)
    if isinstance(f, types.MethodType) and not isinstance(o, type):
        if isinstance(o, FUTURES):
            _future_call(o, f.__name__, a, s)
        elif c.kind_of(type(o)):  # `Counter.update` is Python
            method(o, c.kind_of(type(o)), f.__name__, a, kw, s)
        else:
            _foreign_method(o, f, a, kw, s)
        return
    if f is object.__setattr__ or f is object.__delattr__ or f is object.__getattribute__:
        if a:
            _raw_attribute(a[0], f.__name__, a[1:], s)
        return
    if isinstance(f, type):
        if nature_of(f) in ("ours", "nothing"):
            return
        kept_by(f.__module__, (*a, *kw.values()), s)
    elif isinstance(f, (types.MethodDescriptorType, types.WrapperDescriptorType)) and a and c.kind_of(type(a[0])):
        method(a[0], c.kind_of(type(a[0])), f.__name__, a[1:], kw, s)
        return
    elif isinstance(f, partial):
        _before(f.func, (*f.args, *a), {**f.keywords, **kw}, s)
        return
    elif type(f) in GETTERS:
        getter(f, a, s)
        return
    elif isinstance(f, weakref.ref):
        R.put((IDS.get(id(f)) or N.seen(f), "#", READ, s))
        vanishes(f, s)
        return
    elif outside_function(f, a, kw, s):
        return
    elif not isinstance(f, (types.FunctionType, types.BuiltinFunctionType)) and nature_of(type(f)) == "opaque":
        touch(f, WRITE, s)
        give(f, (*a, *kw.values()))
    effect = effect_of(f)
    if effect == "none" and getattr(f, "__name__", "") in _JOINING:
        _join(a, s)
    elif effect == "write":
        _foreign_module(f, (*a, *kw.values()), s)
    _given(f, effect, a, kw, s)


def _foreign_module(f: Any, a: tuple[Any, ...], s: int) -> None:
    """A function of a module that is not known to be pure may keep what it is given, in the module or in its result."""
    module = getattr(f, "__module__", None)
    if isinstance(module, str) and not isinstance(f, type):
        R.put((N.module(module.partition(".")[0]), "#", UPDATE, s))
        kept_by(module, a, s)


def _given(f: Any, effect: Any, a: tuple[Any, ...], kw: dict[str, Any], s: int) -> None:
    """What the call of foreign `f` does to its arguments, functions among them."""
    functions = [v for v in (*a, *kw.values()) if is_callable_object(v)] if effect != "none" else ()
    for v in functions:
        others = tuple(x for x in (*a, *kw.values()) if x is not v)
        handed(v, s, others, getattr(f, "__module__", None) or "")
        if effect_of(v) in ("write", "write first") and type(v) is types.BuiltinFunctionType:
            effect = "write"  # functools.reduce(operator.ior, ...)
    arguments(effect, a, kw, s)


# -- builtins that reach objects by other means


def _getattr(a: tuple[Any, ...], s: int) -> None:
    if len(a) > 1 and type(a[1]) is str:
        ga(a[0], a[1], s)


def _setattr(a: tuple[Any, ...], s: int) -> None:
    if len(a) > 1 and type(a[1]) is str:
        store(a[0], a[1], s, WRITE)


def _vars(a: tuple[Any, ...], s: int) -> None:
    if not a:
        return
    if isinstance(a[0], types.ModuleType):
        N.alias(a[0].__dict__, N.module(a[0].__name__))
    elif isinstance(a[0], type):
        alias_class(a[0])
    elif ATTRIBUTES.get(type(a[0])) is not None:
        N.alias(a[0].__dict__, IDS.get(id(a[0])) or N.seen(a[0]))


def _evaluated(a: tuple[Any, ...], s: int) -> None:
    R.not_seen("code run by eval or exec", s)


def _collected(a: tuple[Any, ...], s: int) -> None:
    """What the collector finds is what nobody holds, the recorder neither; names that it held are made anew."""
    N.release()
    R.not_seen("objects that a garbage collection of the subject's ends", s)


def _length(a: tuple[Any, ...], s: int) -> None:
    if a:
        tr(a[0], s)


def _next(a: tuple[Any, ...], s: int) -> None:
    if a:
        nx(a[0], s)


def _anext(a: tuple[Any, ...], s: int) -> None:
    if a and type(a[0]) is types.AsyncGeneratorType:
        R.put((IDS.get(id(a[0])) or N.seen(a[0]), "#", UPDATE, s))


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
    gc.collect: _collected,
    len: _length,
    next: _next,
    anext: _anext,
    isinstance: _nothing,
    issubclass: _nothing,
    id: _nothing,
    callable: _nothing,
    hash: _nothing,
    iter: _iter,
}
