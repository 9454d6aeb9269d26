"""What is known about code that is not instrumented: the standard library, installed packages, C extensions.

The rule is sound by default: an object handed to code that cannot be seen counts as written. The tables below name
what is known to only look (most of the standard library's pure modules), to write its first argument (`heapq`,
`bisect.insort`) or to do neither (`asyncio`, whose primitives are recorded by themselves). Constructors look at
their arguments.
"""

from __future__ import annotations

import asyncio
import enum
import random
import re
import types
import weakref
from typing import Any, Literal

from chaossloth.subject.containers import SCALARS, kind_of
from chaossloth.subject.recorder import FILES

__all__ = [
    "BUILTIN_METHODS",
    "FUTURES",
    "PLAIN",
    "Effect",
    "Nature",
    "effect_of",
    "is_ours",
    "nature_of",
    "our_modules",
    "trust_module",
]

Effect = Literal["none", "read", "read keys", "read through", "write first", "write"]
Nature = Literal["ours", "container", "nothing", "module", "class", "function", "holder", "opaque"]

FUTURES = (asyncio.Future, asyncio.futures._PyFuture)  # type: ignore[attr-defined]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Bound and unbound C functions (`re.Pattern.match` is of the kind that knows its defining class).
BUILTIN_METHODS: frozenset[type] = frozenset(
    {types.BuiltinFunctionType, type(re.compile("").match), types.MethodWrapperType}
)

# Values without locations of their own: immutable, or only code.
PLAIN: frozenset[type] = frozenset(
    {
        *SCALARS,
        tuple,
        frozenset,
        slice,
        type,
        types.FunctionType,
        *BUILTIN_METHODS,
        types.MethodType,
        types.WrapperDescriptorType,
        types.MethodDescriptorType,
        types.ClassMethodDescriptorType,
        types.ModuleType,
        types.CoroutineType,
        types.GenericAlias,
        types.CodeType,
        types.TracebackType,
        types.FrameType,
        property,
        staticmethod,
        classmethod,
        enum.EnumMeta,
    }
)

_OURS: dict[str, None] = {}  # names of instrumented modules, in the order of their loading
_natures: dict[type, Nature] = {}
_VALUE_MODULES = _words(
    "abc _abc contextlib contextvars _contextvars copy dataclasses datetime _datetime decimal _decimal enum"
    " fractions inspect ipaddress logging numbers pathlib re sre typing _typing uuid warnings _weakref"
    " zoneinfo traceback types"
)
_PURE_MODULES = _words(
    "_abc abc base64 binascii _collections collections collections.abc _collections_abc contextlib contextvars"
    " _contextvars copy copyreg _csv csv dataclasses datetime _datetime decimal _decimal difflib enum errno"
    " fnmatch fractions functools _functools gc gettext hashlib _hashlib hmac html http inspect io _io ipaddress"
    " itertools json json.encoder json.decoder _json locale logging math _operator operator os os.path pathlib"
    " pickle _pickle platform posix posixpath pprint re reprlib secrets shlex signal statistics _statistics string"
    " _string struct _struct sys textwrap time token traceback types typing _typing unicodedata urllib"
    " urllib.parse uuid warnings _warnings weakref _weakref zlib zoneinfo"
)
_WRITING_FIRST = frozenset(
    {
        *(f"heapq.{name}" for name in ("heappush", "heappop", "heapify", "heapreplace", "heappushpop")),
        *(f"_heapq.{name}" for name in ("heappush", "heappop", "heapify", "heapreplace", "heappushpop")),
        *(f"{module}.insort{side}" for module in ("bisect", "_bisect") for side in ("", "_left", "_right")),
        *(
            f"_operator.{name}"
            for name in ("setitem", "delitem", "iadd", "ior", "iand", "isub", "ixor", "imul", "iconcat")
        ),
        "random.shuffle",
    }
)
_WRITING = frozenset({"struct.pack_into", "_struct.pack_into", "functools.update_wrapper"})  # of the pure modules
_READING_THROUGH = _words(  # attributes of instances too
    "copy.copy copy.deepcopy copy.replace dataclasses.asdict dataclasses.astuple dataclasses.replace"
    " pickle.dumps pickle.dump _pickle.dumps _pickle.dump pprint.pprint pprint.pformat"
)
_LOOKING = frozenset({"heapq", "_heapq", "bisect", "_bisect", "random", "_random"})
_KEYS_ONLY = frozenset(
    {list, tuple, set, frozenset, enumerate, zip, map, filter, reversed, sorted, sum, min, max, any, all}
)


def trust_module(name: str) -> None:
    """Declare that the code of module `name` is instrumented."""
    _OURS[name] = None
    _natures.clear()


def our_modules() -> list[str]:
    """Names of the instrumented modules."""
    return list(_OURS)


def is_ours(f: Any) -> bool:
    """Whether calling `f` runs instrumented code, looking through `functools.wraps`."""
    for _ in range(8):
        code = getattr(f, "__code__", None)
        if code is not None and code.co_filename in FILES:
            return True
        f = getattr(f, "__wrapped__", None)
        if f is None:
            return False
    return False


def effect_of(f: Any) -> Effect:
    """What calling the foreign callable `f` may do to its arguments."""
    if isinstance(f, type):
        if f in _KEYS_ONLY:
            return "read keys"
        return "none" if issubclass(f, BaseException) or _root(f.__module__) == "asyncio" else "read"
    module = getattr(f, "__module__", None)
    if not isinstance(module, str):
        return "write"
    if _root(module) in ("asyncio", "_asyncio", "chaossloth"):
        return "none"
    return _named_effect(f, module)


def _named_effect(f: Any, module: str) -> Effect:
    name = getattr(f, "__name__", "")
    if f"{module}.{name}" in _WRITING:
        return "write"
    if f"{module}.{name}" in _WRITING_FIRST:
        return "write first"
    if f"{module}.{name}" in _READING_THROUGH:
        return "read through"
    if module in ("random", "_random"):
        return "write first" if name == "shuffle" else "read keys"
    if module == "builtins":
        try:
            return "read keys" if f in _KEYS_ONLY else "read"
        except TypeError:  # unhashable callable
            return "read"
    return "read" if module in _PURE_MODULES or module in _LOOKING else "write"


def nature_of(t: type) -> Nature:
    """How accesses to attributes of instances of `t` are seen."""
    found = _natures.get(t)
    if found is None:
        found = _natures[t] = _find_nature(t)
    return found


def _find_nature(t: type) -> Nature:
    if issubclass(t, type):
        return "class"
    if issubclass(t, types.ModuleType):
        return "module"
    if t is types.FunctionType:
        return "function"
    if t.__module__ in _OURS:
        return "ours"
    if t in PLAIN or issubclass(t, (tuple, frozenset, str, int, float, bytes, BaseException)):
        return "nothing"
    if kind_of(t):
        return "container"
    return _foreign_nature(t)


def _foreign_nature(t: type) -> Nature:
    module = t.__module__
    if t is types.SimpleNamespace or module in ("argparse", "_thread", "_threading_local"):
        return "holder"
    if any(base.__module__ in _OURS for base in t.__mro__):
        return "ours"
    if _root(module) in ("asyncio", "_asyncio", "chaossloth") or module in _VALUE_MODULES:
        return "nothing"
    if issubclass(t, random.Random):
        return "opaque"
    if issubclass(t, weakref.ref):
        return "nothing"
    if module == "builtins" or module in ("itertools", "functools", "operator", "_operator"):
        return "nothing"
    return "opaque"


def _root(module: str) -> str:
    return module.partition(".")[0]
