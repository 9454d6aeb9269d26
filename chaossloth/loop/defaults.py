"""A faster `__init__` for dataclasses of which one is made per execution.

The one that `dataclass` writes calls each `default_factory` and compares each argument with a sentinel; with a dozen
lists that is a noticeable part of a short execution. This one writes the displays themselves.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

__all__ = ["literal_defaults"]

_C = TypeVar("_C", bound=type)
_DISPLAYS: dict[Any, str] = {list: "[]", dict: "{}", set: "set()"}


def literal_defaults(cls: _C) -> _C:
    """Replace the `__init__` of a dataclass. Fields with a default factory are no arguments then."""
    arguments, body = ["self"], []
    space: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        if field.default_factory is not dataclasses.MISSING:
            display = _DISPLAYS.get(field.default_factory)
            if display is None:
                space[f"_make_{field.name}"] = field.default_factory
                display = f"_make_{field.name}()"
            body.append(f"    self.{field.name} = {display}")
            continue
        body.append(f"    self.{field.name} = {field.name}")
        if field.default is dataclasses.MISSING:
            arguments.append(field.name)
        else:
            space[f"_{field.name}"] = field.default
            arguments.append(f"{field.name}=_{field.name}")
    if hasattr(cls, "__post_init__"):
        body.append("    self.__post_init__()")
    exec("\n".join([f"def __init__({', '.join(arguments)}):", *body]), space)
    made = space["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__module__ = cls.__module__
    cls.__init__ = made  # type: ignore[misc]
    return cls
