"""Arguments for constructors and calls when the user gave none.

Order of trust: `--args`; defaults (left to the callee); type hints; a parameter named like a class of the module; a few
plain values. Each candidate is a recipe, not a value: every execution builds its own arguments against the module that
is loaded now, so that mutable arguments are never shared and classes are those of the present variant. Which candidate
is taken is decided by running one call alone (`entry`): the first that raises nothing.
Hypothesis' `from_type` was rejected: an example of its own choosing is neither stable nor small.
Source: Python documentation of inspect.signature and typing.get_type_hints.
"""

from __future__ import annotations

import ast
import collections.abc
import copy
import dataclasses
import datetime
import decimal
import enum
import inspect
import itertools
import pathlib
import types
import typing
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chaossloth.errors import UsageError

__all__ = [
    "Arguments",
    "Recipe",
    "args_example",
    "candidates",
    "constructor_candidates",
    "number_recipe",
    "parse_literals",
    "required_parameters",
]

Namespace = Callable[[], Mapping[str, Any]]

MAX_TRIES = 48
_MAX_DEPTH = 4
_MAX_PER_PARAMETER = 6


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to make one value. text: what the report shows. make: builds it from the loaded module's namespace."""

    text: str
    make: Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments of one call. source: "--args", "defaults", "type hints", "names", "plain values"."""

    positional: tuple[Recipe, ...] = ()
    named: tuple[tuple[str, Recipe], ...] = ()
    source: str = "defaults"

    @property
    def text(self) -> str:
        """As between the parentheses of a call: "1, key='a'"."""
        return ", ".join([*(r.text for r in self.positional), *(f"{n}={r.text}" for n, r in self.named)])

    def make(self, namespace: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Fresh positional and keyword arguments."""
        positional = [recipe.make(namespace) for recipe in self.positional]
        return positional, {name: recipe.make(namespace) for name, recipe in self.named}


def _literal(value: Any, text: str | None = None) -> Recipe:
    return Recipe(repr(value) if text is None else text, lambda _namespace: copy.deepcopy(value))


def number_recipe(recipe: Recipe, number: int | float) -> Recipe | None:
    """The recipe for `number` in place of a plain 1 or 1.0, in the type of the one replaced; None for others."""
    if recipe.text == "1" and number == int(number):
        return _literal(int(number))
    return _literal(float(number)) if recipe.text == "1.0" else None


def args_example(count: int) -> str:
    """What to write for `count` parameters: --args "(1, 'x')"."""
    values = [("1", "'x'", "2", "'y'")[i % 4] for i in range(max(1, count))]
    return f'--args "({", ".join(values)}{"," if len(values) == 1 else ""})"'


def parse_literals(texts: Sequence[str]) -> list[Arguments]:
    """Values of --args: each a Python tuple "(1, 'x')", or a dict of keyword arguments. Raises UsageError."""
    found = []
    for text in texts:
        try:
            value = ast.literal_eval(text.strip())
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            raise UsageError(f"--args {text!r} is no Python literal; write a tuple like \"(1, 'x')\"") from None
        if isinstance(value, dict) and all(isinstance(key, str) and key.isidentifier() for key in value):
            named = tuple((key, _literal(item)) for key, item in value.items())
            found.append(Arguments((), named, "--args"))
        else:
            values = value if isinstance(value, tuple) else (value,)
            found.append(Arguments(tuple(_literal(item) for item in values), (), "--args"))
    return found


def required_parameters(function: Callable[..., Any], *, bound: bool) -> list[inspect.Parameter]:
    """Parameters a call has to fill. bound: the first one (self) is given already."""
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return []
    parameters = list(signature.parameters.values())[1 if bound else 0 :]
    skipped = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p for p in parameters if p.default is p.empty and p.kind not in skipped]


def candidates(function: Callable[..., Any], namespace: Mapping[str, Any], *, bound: bool) -> list[Arguments]:
    """Combinations to try for one callable, best first; at most MAX_TRIES. [Arguments()] when it needs none."""
    return _combine(required_parameters(function, bound=bound), _hints(function, namespace), namespace, 0)


def constructor_candidates(cls: type, namespace: Mapping[str, Any]) -> list[Arguments]:
    """Combinations to try for `cls(...)`."""
    return _class_candidates(cls, namespace, 0)


def _class_candidates(cls: type, namespace: Mapping[str, Any], depth: int) -> list[Arguments]:
    # A class without its own __init__ and __new__ takes nothing, but its signature says (*args, **kwargs).
    own = [f for name in ("__init__", "__new__") if (f := getattr(cls, name)) is not getattr(object, name)]
    if not own:
        return [Arguments()]
    function: Callable[..., Any] = own[0]
    parameters = required_parameters(cls, bound=False)
    return _combine(parameters, _hints(function, namespace), namespace, depth)


def _hints(function: Callable[..., Any], namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Type hints, resolved as far as they can be; one that cannot be resolved does not spoil the others."""
    raw = getattr(inspect.unwrap(function), "__annotations__", None)
    if not isinstance(raw, dict):
        return {}
    known = {**vars(typing), **namespace}
    hints = {}
    for name, hint in raw.items():
        if isinstance(hint, str):
            try:
                hint = eval(hint, known)  # the subject's own annotation, in the process that runs it anyway
            except Exception:  # a name for type checkers only: treated as if there were no hint
                continue
        hints[name] = hint
    return hints


def _combine(
    parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any], namespace: Mapping[str, Any], depth: int
) -> list[Arguments]:
    if not parameters:
        return [Arguments()]
    choices = [_for_parameter(p, hints.get(p.name), namespace, depth)[:_MAX_PER_PARAMETER] for p in parameters]
    source = _source_of(parameters, hints, namespace)
    found = []
    for indices in _nearest_first([len(c) for c in choices]):
        picked = [(p, c[i]) for p, c, i in zip(parameters, choices, indices, strict=True)]
        positional = tuple(r for p, r in picked if p.kind is not p.KEYWORD_ONLY)
        named = tuple((p.name, r) for p, r in picked if p.kind is p.KEYWORD_ONLY)
        found.append(Arguments(positional, named, source))
        if len(found) == MAX_TRIES:
            break
    return found


def _nearest_first(sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Index tuples in the order of their sum: the best value of every parameter first."""
    for total in range(sum(sizes) - len(sizes) + 1):
        yield from _with_sum(sizes, total)


def _with_sum(sizes: Sequence[int], total: int) -> Iterator[tuple[int, ...]]:
    if not sizes:
        if total == 0:
            yield ()
        return
    for index in range(min(sizes[0] - 1, total) + 1):
        for rest in _with_sum(sizes[1:], total - index):
            yield (index, *rest)


def _source_of(parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any], namespace: Mapping[str, Any]) -> str:
    if all(p.name in hints for p in parameters):
        return "type hints"
    if any(_class_named(p.name, namespace) for p in parameters):
        return "names"
    return "plain values"


def _for_parameter(parameter: inspect.Parameter, hint: Any, namespace: Mapping[str, Any], depth: int) -> list[Recipe]:
    if hint is not None and hint is not Any and hint is not object:
        found = _for_hint(hint, parameter.name, namespace, depth)
        if found:
            return found
    return _for_name(parameter.name, namespace, depth)


def _class_named(name: str, namespace: Mapping[str, Any]) -> str | None:
    wanted = name.replace("_", "").lower()
    for key, value in namespace.items():
        if isinstance(value, type) and key.lower() == wanted and not issubclass(value, BaseException):
            return key
    return None


_SHORT_TIMES = ("delay", "latency", "sleep", "pause", "interval", "backoff", "duration")
_TEXTS = ("key", "name", "id", "user", "path", "url", "text", "topic", "channel", "token", "message", "msg", "label")
_NUMBERS = (
    "amount",
    "n",
    "count",
    "size",
    "limit",
    "num",
    "qty",
    "quantity",
    "value",
    "capacity",
    "maxsize",
    "delta",
    "price",
    "timeout",
    "ttl",
)


def _for_name(name: str, namespace: Mapping[str, Any], depth: int) -> list[Recipe]:
    """Values for a parameter without a hint: its name is all that is known."""
    found: list[Recipe] = []
    class_name = _class_named(name, namespace)
    if class_name is not None:
        found += _instances(namespace[class_name], class_name, namespace, depth)
    last = name.lower().rpartition("_")[2]
    plain: list[Any] = [1, "a", ["a"], {"a": 1}, None]
    if last in _SHORT_TIMES:
        plain = [0.01, *plain]
    elif last in _TEXTS or name.lower().endswith(_TEXTS[:3]):
        plain = ["a", 1, ["a"], {"a": 1}, None]
    elif last.endswith("s") and last not in _NUMBERS:
        plain = [["a"], 1, "a", {"a": 1}, None]
    found += [_literal(value) for value in plain]
    return found + [_callback()]


def _callback() -> Recipe:
    async def callback(*args: Any, **kwargs: Any) -> None:
        return None

    return Recipe("<async function that does nothing>", lambda _namespace: callback)


_TABLE: dict[Any, tuple[Any, ...]] = {
    bool: (True, False),
    int: (1, 2, 0),
    float: (1.0, 0.5, 0.0),
    complex: (1j,),
    str: ("a", "b", ""),
    bytes: (b"a", b""),
    bytearray: (bytearray(b"a"),),
    type(None): (None,),
    datetime.datetime: (datetime.datetime(2024, 1, 1),),
    datetime.date: (datetime.date(2024, 1, 1),),
    datetime.timedelta: (datetime.timedelta(seconds=1),),
    decimal.Decimal: (decimal.Decimal(1),),
    pathlib.Path: (pathlib.Path("a"),),
    uuid.UUID: (uuid.UUID(int=1),),
    list: (["a"], []),
    tuple: (("a",), ()),
    dict: ({"a": 1}, {}),
    set: ({"a"}, set()),
    frozenset: (frozenset({"a"}),),
}
_ABSTRACT: dict[Any, type] = {
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Iterable: list,
    collections.abc.Collection: list,
    collections.abc.Mapping: dict,
    collections.abc.MutableMapping: dict,
    collections.abc.Set: set,
    collections.abc.MutableSet: set,
    collections.abc.Hashable: str,
}


def _for_hint(hint: Any, name: str, namespace: Mapping[str, Any], depth: int) -> list[Recipe]:
    """Values of one type; [] when the hint says nothing that can be built."""
    if depth > _MAX_DEPTH:
        return []
    if hint is float and name.lower().rpartition("_")[2] in _SHORT_TIMES:
        return [_literal(0.01), _literal(1.0)]
    if hint in (None, type(None)):
        return [_literal(None)]
    origin = typing.get_origin(hint)
    if origin is not None:
        return _for_generic(hint, origin, name, namespace, depth)
    if isinstance(hint, typing.TypeVar):
        options = hint.__constraints__ or ((hint.__bound__,) if hint.__bound__ is not None else ())
        return [r for option in options for r in _for_hint(option, name, namespace, depth + 1)]
    if hasattr(hint, "__supertype__"):  # typing.NewType
        return _for_hint(hint.__supertype__, name, namespace, depth + 1)
    if isinstance(hint, typing.TypeAliasType if hasattr(typing, "TypeAliasType") else ()):
        return _for_hint(hint.__value__, name, namespace, depth + 1)
    if hint is collections.abc.Callable or hint is typing.Callable:
        return [_callback()]
    return _for_class(hint, namespace, depth) if isinstance(hint, type) else []


def _for_class(cls: type, namespace: Mapping[str, Any], depth: int) -> list[Recipe]:
    table = _TABLE.get(cls) or _TABLE.get(_ABSTRACT.get(cls))
    if table is not None:
        return [_literal(value) for value in table]
    key = next((name for name, value in namespace.items() if value is cls), None)
    if issubclass(cls, enum.Enum):
        return [_member(cls, key, member) for member in list(cls)[:3]]
    if key is None and cls.__module__.partition(".")[0] == "asyncio":
        return [Recipe(f"asyncio.{cls.__name__}()", lambda _namespace: cls())]
    return _instances(cls, key, namespace, depth)


def _member(cls: type[enum.Enum], key: str | None, member: enum.Enum) -> Recipe:
    def make(namespace: Mapping[str, Any]) -> Any:
        return (namespace[key] if key is not None else cls)[member.name]

    return Recipe(f"{cls.__name__}.{member.name}", make)


def _instances(cls: type, key: str | None, namespace: Mapping[str, Any], depth: int) -> list[Recipe]:
    """Objects of a class, its constructor's arguments built in the same way."""
    if depth >= _MAX_DEPTH or inspect.isabstract(cls) or getattr(cls, "_is_protocol", False):
        return []
    recipes = []
    for arguments in _class_candidates(cls, namespace, depth + 1)[:3]:

        def make(now: Mapping[str, Any], arguments: Arguments = arguments) -> Any:
            positional, named = arguments.make(now)
            return (now[key] if key is not None else cls)(*positional, **named)

        recipes.append(Recipe(f"{cls.__name__}({arguments.text})", make))
    return recipes


def _for_generic(hint: Any, origin: Any, name: str, namespace: Mapping[str, Any], depth: int) -> list[Recipe]:
    inner = typing.get_args(hint)
    if origin is typing.Annotated or origin in (typing.Final, typing.ClassVar, dataclasses.InitVar):
        return _for_hint(inner[0], name, namespace, depth + 1)
    if origin is typing.Literal:
        return [_literal(value) for value in inner[:3]]
    if origin in (typing.Union, types.UnionType):
        # None last: an optional value that is there exercises more.
        ordered = sorted(inner, key=lambda option: option is type(None))
        lists = [_for_hint(option, name, namespace, depth + 1) for option in ordered]
        return [r for row in itertools.zip_longest(*lists) for r in row if r is not None]
    if origin is collections.abc.Callable:
        return [_callback()]
    if origin is type:
        return []
    return _for_container(_ABSTRACT.get(origin, origin), inner, name, namespace, depth)


def _for_container(
    origin: Any, inner: tuple[Any, ...], name: str, namespace: Mapping[str, Any], depth: int
) -> list[Recipe]:
    parts = [_for_hint(t, name, namespace, depth + 1) or _for_name("", namespace, depth) for t in inner if t is not ...]
    if not parts:
        return _for_hint(origin, name, namespace, depth + 1)
    first = [options[0] for options in parts]
    if origin is dict and len(first) == 2:
        key, value = first
        return [Recipe(f"{{{key.text}: {value.text}}}", lambda now: {key.make(now): value.make(now)}), _literal({})]
    if origin is tuple:
        text = ", ".join(r.text for r in first) + ("," if len(first) == 1 else "")
        return [Recipe(f"({text})", lambda now: tuple(r.make(now) for r in first))]
    if origin in (list, set, frozenset):
        text = f"[{first[0].text}]" if origin is list else f"{{{first[0].text}}}"
        text = f"frozenset({text})" if origin is frozenset else text
        return [
            Recipe(text, lambda now: origin([first[0].make(now)])),
            Recipe(f"{origin.__name__}()", lambda _: origin()),
        ]
    return _for_class(origin, namespace, depth) if isinstance(origin, type) else []
