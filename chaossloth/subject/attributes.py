"""Accesses of attributes: of instances, slots, classes, modules and functions.

How an attribute of a type is found (in the instance, in the class, computed by a descriptor) is looked up once per
type and name, in the class's own dictionaries, never through the subject's code. An attribute that the class holds
and the instance may override is two locations: a later store in the instance changes what the read would find.
"""

from __future__ import annotations

import enum
import gc
import sys
import threading
import types
import weakref
from collections.abc import Callable
from functools import cached_property
from typing import Any

from chaossloth.subject import containers as c
from chaossloth.subject.foreign import PLAIN, is_ours, nature_of, our_modules
from chaossloth.subject.opaque import WINDOWS, behind, forget_operations, operate, touch
from chaossloth.subject.recorder import READ, UPDATE, WRITE, recorder

__all__ = [
    "ATTRIBUTES",
    "exposed_modules",
    "forget_types",
    "alias_class",
    "ga",
    "gl",
    "imported_globals",
    "keep_dict",
    "kind_in_class",
    "module_attribute_stores",
    "own_value",
    "sa",
    "store",
    "written_globals",
]

R = recorder
N = recorder.names
IDS = recorder.names.ids
PATHS = recorder.names.paths

written_globals: set[tuple[str, str]] = set()  # (module, name) declared `global` where it is assigned
imported_globals: set[tuple[str, str]] = set()  # (module, name) bound by an import
exposed_modules: set[str] = set()  # modules with code that may set globals of any module by other means
module_attribute_stores: set[str] = set()  # attribute names that instrumented code sets on something imported

# -- attributes: how a type's attribute is found; the common kinds are tested in line

INSTANCE, METHOD, COMPUTED, SLOT, CLASS_VALUE, CACHED, DICT, UNSEEN = 1, 2, 3, 4, 5, 6, 7, 8
_NEVER: dict[str, int] = {}
_value = object.__getattribute__
ATTRIBUTES: dict[type, dict[str, int] | None] = {}  # plain instances with a __dict__; None: see _OTHERS
_OTHERS: dict[type, Callable[[Any, str, int, int], None] | None] = {}
_FUNCTION_LIKE = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    classmethod,
    staticmethod,
)


def forget_types() -> None:
    """Classes may have changed."""
    ATTRIBUTES.clear()
    _OTHERS.clear()
    forget_operations()


def ga(o: Any, name: str, s: int) -> Any:
    """Before `o.name`."""
    if R.enabled:
        t = type(o)
        kinds = ATTRIBUTES.get(t, _NEVER)
        if kinds is None:
            handler = _OTHERS[t]
            if handler is not None:
                handler(o, name, s, READ)
            return o
        if kinds is _NEVER:
            _describe(t)
            return ga(o, name, s)
        kind = kinds.get(name) or _classify(t, name, kinds)
        if kind == 1:
            number = IDS.get(id(o)) or N.seen(o)
            R.put((number, name, 1, s))
            try:
                v = _value(o, name)  # not `o.__dict__`: that would make one for each object that has none yet
            except AttributeError:
                return o
            if type(v) not in PLAIN and IDS.get(id(v)) not in PATHS:
                N.reached(v, number, name)
        elif kind == 2:
            if name in o.__dict__:
                R.put((IDS.get(id(o)) or N.seen(o), name, 1, s))
        elif kind != 3:
            _unusual(o, t, name, s, READ, kind)
    return o


def sa(o: Any, name: str, s: int) -> Any:
    """Before `o.name = ...`."""
    if R.enabled:
        kinds = ATTRIBUTES.get(type(o))
        if kinds and kinds.get(name) == 1:
            R.put((IDS.get(id(o)) or N.seen(o), name, 2, s))
        else:
            store(o, name, s, WRITE)
    elif isinstance(o, type):
        forget_types()
    return o


def store(o: Any, name: str, s: int, mode: int) -> None:
    t = type(o)
    kinds = ATTRIBUTES.get(t, _NEVER)
    if kinds is _NEVER:
        _describe(t)
        kinds = ATTRIBUTES[t]
    if kinds is None:
        handler = _OTHERS[t]
        if handler is not None:
            handler(o, name, s, mode)
        return
    kind = kinds.get(name) or _classify(t, name, kinds)
    if kind == DICT:
        _replace_dict(o, s)
    elif kind == UNSEEN:
        operate(o, mode, s)
    elif kind != COMPUTED:
        number = IDS.get(id(o)) or N.seen(o)
        R.put((number, name, mode, s))
        if mode != WRITE and kind == CLASS_VALUE and name not in o.__dict__:
            R.put((holder_number(t, name), name, READ, s))


_kept_dicts = threading.local()


def keep_dict(v: Any, fresh: bool) -> None:
    """`v` is the `__dict__` that the next store of that name sets."""
    _kept_dicts.value = (v, fresh)


def _replace_dict(o: Any, s: int) -> None:
    """`o.__dict__ = v`: every attribute may change, and from now on `o` is whatever else has `v` for its `__dict__`."""
    number = IDS.get(id(o)) or N.seen(o)
    (v, fresh), _kept_dicts.value = getattr(_kept_dicts, "value", None) or (None, False), None
    old = o.__dict__
    for name in [*old, *(v if type(v) is dict else ())]:
        R.put((number, name, WRITE, s))
    if type(v) is dict and v is not old:
        if fresh:
            N.alias(v, number)
        else:
            N.join(o, c.number_of(v))


def own_value(o: Any, name: str) -> Any:
    """The instance's own value of `name`, None if it has none."""
    if ATTRIBUTES.get(type(o)) is None:
        return None
    return o.__dict__.get(name)


def alias_class(cls: type) -> None:
    """The namespace of a class, as its `__dict__` shows it, goes by the identity of the class."""
    N.alias(gc.get_referents(cls.__dict__)[0], IDS.get(id(cls)) or N.seen(cls))


def _classify(t: type, name: str, kinds: dict[str, int]) -> int:
    kind = kinds[name] = kind_in_class(t, name)
    return kind


def kind_in_class(t: type, name: str) -> int:
    for cls in t.__mro__:
        if name in cls.__dict__:
            return DICT if name == "__dict__" else _kind_of_value(cls.__dict__[name])
    return INSTANCE


def _kind_of_value(held: Any) -> int:
    kind = type(held)
    if kind in _FUNCTION_LIKE:
        return METHOD
    if kind is types.MemberDescriptorType:
        return SLOT
    if issubclass(kind, cached_property):
        return CACHED
    if kind is property:
        return COMPUTED if all(f is None or is_ours(f) for f in (held.fget, held.fset, held.fdel)) else UNSEEN
    if hasattr(kind, "__set__") or hasattr(kind, "__delete__"):
        return COMPUTED if nature_of(kind) == "ours" or kind.__module__ in _COMPUTING else UNSEEN
    return METHOD if hasattr(kind, "__get__") else CLASS_VALUE


_COMPUTING = ("builtins", "types", "enum")  # `__class__`, `__weakref__`, the names and values of enums


def holder_number(t: type, name: str) -> int:
    holder = next((cls for cls in t.__mro__ if name in cls.__dict__), t)
    return IDS.get(id(holder)) or N.seen(holder)


def _unusual(o: Any, t: type, name: str, s: int, mode: int, kind: int) -> None:
    number = IDS.get(id(o)) or N.seen(o)
    if kind == DICT:
        N.alias(o.__dict__, number)
        return
    if kind == UNSEEN:
        operate(o, mode, s)
        return
    if kind == CLASS_VALUE:
        R.put((number, name, mode, s))
        if name not in o.__dict__:
            holder = holder_number(t, name)
            R.put((holder, name, READ, s))
            _reach_in_class(t, name, holder)
    elif kind == CACHED:
        R.put((number, name, READ if name in o.__dict__ else UPDATE, s))
    else:
        R.put((number, name, mode, s))
        _reach_slot(o, t, name, number)


def _reach_in_class(t: type, name: str, number: int) -> None:
    for cls in t.__mro__:
        if name in cls.__dict__:
            v = cls.__dict__[name]
            if type(v) not in PLAIN:
                N.reached(v, number, name)
            return


def _reach_slot(o: Any, t: type, name: str, number: int) -> None:
    for cls in t.__mro__:
        held = cls.__dict__.get(name)
        if isinstance(held, types.MemberDescriptorType):
            try:
                v = held.__get__(o)
            except AttributeError:  # unset
                return
            if type(v) not in PLAIN:
                N.reached(v, number, name)
            return


# -- attributes of everything else


def _describe(t: type) -> None:
    nature = nature_of(t)
    plain = c.operation(t, "__getattribute__") is object.__getattribute__
    if nature in ("ours", "holder") and plain and t.__dictoffset__ != 0:
        ATTRIBUTES[t] = {}
        return
    ATTRIBUTES[t] = None
    handlers: dict[str, Callable[[Any, str, int, int], None]] = {
        "ours": _without_dict,
        "holder": _without_dict,
        "container": _container_attribute,
        "module": _module_attribute,
        "class": _class_attribute,
        "function": _function_attribute,
        "opaque": _opaque_attribute,
    }
    handler = handlers.get(nature) if t not in c.EXACT else None
    if t in WINDOWS:
        handler = _shown_attribute
    elif nature == "nothing" and t.__module__.partition(".")[0] in ("asyncio", "_asyncio"):
        handler = _primitive_attribute
    _OTHERS[t] = handler


def _shown_attribute(o: Any, name: str, s: int, mode: int) -> None:
    """Of a weak proxy."""
    held = behind(o)
    if held is None or type(o) not in (weakref.ProxyType, weakref.CallableProxyType):
        return
    if mode == READ:
        ga(held, name, s)
    else:
        store(held, name, s, mode)


def _primitive_attribute(o: Any, name: str, s: int, mode: int) -> None:
    """Attributes that the subject puts on asyncio's objects; what these keep for themselves is not recorded."""
    if kind_in_class(type(o), name) in (METHOD, COMPUTED) or (name.startswith("__") and name.endswith("__")):
        return
    if name.startswith("_"):
        R.not_seen(f"a private attribute ({name}) of asyncio's {type(o).__name__}", s)
    R.put((IDS.get(id(o)) or N.seen(o), name, mode, s))


def _without_dict(o: Any, name: str, s: int, mode: int) -> None:
    """Instances with slots only, or with their own `__getattribute__`."""
    kind = kind_in_class(type(o), name)
    if kind in (COMPUTED, METHOD, DICT):
        return
    if kind == UNSEEN:
        operate(o, mode, s)
        return
    number = IDS.get(id(o)) or N.seen(o)
    R.put((number, name, mode, s))
    if kind == SLOT:
        _reach_slot(o, type(o), name, number)
    elif kind == CLASS_VALUE:
        R.put((holder_number(type(o), name), name, READ, s))


def _container_attribute(o: Any, name: str, s: int, mode: int) -> None:
    """Instances of container subclasses have attributes too; the built-in containers have only methods."""
    if type(o).__dictoffset__ and kind_in_class(type(o), name) in (INSTANCE, CLASS_VALUE):
        R.put((IDS.get(id(o)) or N.seen(o), name, mode, s))


def _module_attribute(o: Any, name: str, s: int, mode: int) -> None:
    space = o.__dict__
    if "__chaossloth__" not in space:
        if mode & WRITE or name in module_attribute_stores:
            R.put((N.module(o.__name__), name, mode, s))
        return
    if mode & WRITE:
        module_attribute_stores.add(name)
    gl(space.get(name), o.__name__, name, s, mode)


def _class_attribute(o: Any, name: str, s: int, mode: int) -> None:
    if mode & WRITE:
        forget_types()
        R.put((IDS.get(id(o)) or N.seen(o), name, mode, s))
        return
    if name == "__dict__":
        alias_class(o)
        return
    if nature_of(o) not in ("ours", "container") or kind_in_class(type(o), name) == COMPUTED:
        return
    if issubclass(o, enum.Enum) and name in o._member_map_:
        N.reached(o._member_map_[name], holder_number(o, name), name)
        return
    if kind_in_class(o, name) in (CLASS_VALUE, INSTANCE):
        number = holder_number(o, name)
        R.put((number, name, mode, s))
        _reach_in_class(o, name, number)


def _function_attribute(o: Any, name: str, s: int, mode: int) -> None:
    if not name.startswith("__"):
        R.put((IDS.get(id(o)) or N.seen(o), name, mode, s))
    elif name in ("__defaults__", "__kwdefaults__", "__code__") and (mode & WRITE or name == "__kwdefaults__"):
        R.not_seen(f"a function's {name}", s)


def _opaque_attribute(o: Any, name: str, s: int, mode: int) -> None:
    """An object whose own code cannot be seen: its methods may change what its attributes say."""
    if kind_in_class(type(o), name) == METHOD and mode == READ:
        return
    number = IDS.get(id(o)) or N.seen(o)
    R.put((number, name, mode, s))
    touch(o, READ if mode == READ else WRITE, s)


def gl(v: Any, module: str, name: str, s: int, mode: int = READ) -> Any:
    """Global `name` of `module` was read as `v`."""
    if R.enabled:
        if mode != READ or (module, name) in written_globals or name in module_attribute_stores or exposed_modules:
            R.put((N.module(module), name, mode, s))
        if type(v) not in PLAIN:
            if id(v) not in IDS:
                module, name = _home(v, module, name)
            N.reached(v, N.module(module), name)
    return v


_homes: dict[int, tuple[str, str]] = {}
_MOST_HOMES = 10_000


def _home(v: Any, module: str, name: str) -> tuple[str, str]:
    """Where the global `v` is defined: one object may be a global of several modules, and must have one identity
    whichever of them is used first."""
    found = _homes.get(id(v))
    if found is None or vars(sys.modules.get(found[0], sys)).get(found[1]) is not v:
        if len(_homes) > _MOST_HOMES:
            _homes.clear()
        found = _homes[id(v)] = _search_home(v) or (module, name)
    return found


def _search_home(v: Any) -> tuple[str, str] | None:
    for module in our_modules():
        space = vars(sys.modules[module]) if module in sys.modules else {}
        for name, held in list(space.items()):
            if held is v and (module, name) not in imported_globals:
                return module, name
    return None
