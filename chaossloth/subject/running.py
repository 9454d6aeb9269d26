"""What `entry` and `calls` share: names looked up in the present module, awaiting anything, exceptions as text."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from types import ModuleType, TracebackType
from typing import Any, Protocol

from chaossloth.errors import UsageError
from chaossloth.evidence import Frame

__all__ = [
    "ModuleSource",
    "Runner",
    "await_anything",
    "error_text",
    "file_name",
    "finish",
    "innermost",
    "refuse_parameters",
    "resolve",
]


class ModuleSource(Protocol):
    """What holds the loaded module (`loader.Loader`)."""

    @property
    def module(self) -> ModuleType: ...

    def is_subject(self, filename: str) -> bool: ...

    def reload(self) -> ModuleType: ...


class Runner(Protocol):
    """Executes one coroutine alone, in FIFO order, and returns its result or raises its exception.

    seed: decides random sources; another seed must also shift the clock, so that values made from time are seen to
    differ between two sequential runs. A run that can never end raises instead of hanging.
    """

    def __call__(self, coro: Coroutine[Any, Any, Any], seed: int, /) -> Any: ...


async def await_anything(value: Any) -> Any:
    """The value, awaited where it can be."""
    return await value if inspect.isawaitable(value) else value


def error_text(error: BaseException) -> str:
    """`str(error)`, also where the subject's own `__str__` is broken; at most 2,000 characters."""
    try:
        return str(error)[:2000]
    except Exception as inner:  # the subject's own __str__
        return f"<its text raises {type(inner).__qualname__}>"


def innermost(trace: TracebackType | None, is_subject: Callable[[str], bool]) -> Frame | None:
    """The deepest frame of a traceback that is the subject's; the deepest of all when none is."""
    found = last = None
    while trace is not None:
        code = trace.tb_frame.f_code
        last = Frame(code.co_filename, trace.tb_lineno or 0, code.co_qualname)
        found = last if is_subject(code.co_filename) else found
        trace = trace.tb_next
    return found or last


def file_name(source: ModuleSource) -> str:
    """Base name of the subject's file."""
    return str(getattr(source.module, "__file__", source.module.__name__)).rpartition("/")[2]


def resolve(module: ModuleType, dotted: str) -> Any:
    """What a dotted name means in the loaded module. Raises UsageError when there is no such thing."""
    value: Any = module
    for part in dotted.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            where = str(getattr(module, "__file__", module.__name__)).rpartition("/")[2]
            raise UsageError(f"there is no {dotted!r} in {where} once it is imported; check the name") from None
    return value


def refuse_parameters(name: str, function: Callable[..., Any]) -> None:
    """Raises UsageError when the function cannot be called without arguments."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    missing = [p.name for p in parameters if p.default is p.empty and p.kind not in variable]
    if missing:
        raise UsageError(
            f"{name} takes {', '.join(missing)}, which a fixture or a caller has to give; "
            "name a function without parameters that calls it"
        )


async def finish(result: Any) -> Any:
    """What calling a method means: await it, iterate an asynchronous generator, enter and leave a context manager."""
    if hasattr(result, "__aiter__"):
        return [item async for item in result]
    if hasattr(result, "__aenter__") and not inspect.isawaitable(result):
        async with result as entered:
            return entered
    return await await_anything(result)
