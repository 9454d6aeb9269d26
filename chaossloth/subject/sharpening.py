"""Arguments with which calls can come into conflict: a second set for numbers, tried one call after another.

The plain value 1 is accepted by almost everything and decides almost nothing: withdrawing 1 from 100 never meets the
test that a race would get around. So where all calls of a method end alike one after another, its number is set to
the largest number that the fresh object holds (the balance, the capacity, the seats left). If the first call then still
succeeds and another ends in another way (an exception, False, None), these arguments are taken.
Nothing is concluded from a second set that makes no difference: the first is kept.
Source: boundary-value analysis (Myers, "The Art of Software Testing", 1979, chapter 4).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from chaossloth.subject.arguments import Arguments, number_recipe
from chaossloth.subject.canonical import attributes

__all__ = ["ending", "ends_alike", "largest_number", "with_number"]

MAX_VARIANTS = 3
_DEPTH = 2


def largest_number(owner: object) -> int | float | None:
    """The largest number above 2 among the attributes of an object, and of what these hold; None when there is none.

    Smaller ones are among the plain values, or no limit that two calls could share.
    """
    return max(_numbers(owner, _DEPTH), default=None)


def _numbers(value: object, depth: int) -> Iterator[int | float]:
    for _, item in attributes(value):
        inner: Sequence[object] = list(item.values()) if type(item) is dict else [item]
        for each in inner[:100]:
            if type(each) in (int, float) and 2 < each < 1e12:  # type: ignore[operator]
                yield each  # type: ignore[misc]
            elif depth > 1 and hasattr(each, "__dict__") and not isinstance(each, type):
                yield from _numbers(each, depth - 1)


def with_number(arguments: Arguments, number: int | float) -> list[Arguments]:
    """The arguments with one plain number replaced, for each that can be; at most 3."""
    source = "the largest number that the fresh object holds"
    found = []
    for index, recipe in enumerate(arguments.positional):
        new = number_recipe(recipe, number)
        if new is not None:
            changed = (*arguments.positional[:index], new, *arguments.positional[index + 1 :])
            found.append(dataclasses.replace(arguments, positional=changed, source=source))
    for index, (name, recipe) in enumerate(arguments.named):
        new = number_recipe(recipe, number)
        if new is not None:
            pairs = (*arguments.named[:index], (name, new), *arguments.named[index + 1 :])
            found.append(dataclasses.replace(arguments, named=pairs, source=source))
    return found[:MAX_VARIANTS]


def ending(result: object) -> str:
    """How a call ended, as far as a caller would branch on it: the exception, True, False, None, or a type."""
    if isinstance(result, BaseException):
        return f"raises {type(result).__qualname__}"
    return repr(result) if result is None or isinstance(result, bool) else type(result).__qualname__


def ends_alike(methods: Sequence[str], endings: Sequence[str]) -> bool:
    """Whether all calls of each method ended in the same way."""
    return len(set(zip(methods, endings, strict=True))) == len(set(methods))
