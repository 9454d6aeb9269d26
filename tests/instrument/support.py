"""Load a program's text plain or instrumented, run it recorded, and say what happened in comparable terms."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from chaossloth.evidence import Access
from chaossloth.subject import record
from chaossloth.subject.instrument import instrument

__all__ = ["Result", "accesses", "load_instrumented", "load_plain", "names", "outcome", "recorded", "recording"]

_numbers = itertools.count(1)


def load_plain(source: str, name: str, filename: str) -> types.ModuleType:
    module = _module(name, filename)
    exec(compile(source, filename, "exec", dont_inherit=True), module.__dict__)
    return module


def load_instrumented(source: str, name: str, filename: str) -> types.ModuleType:
    module = _module(name, filename)
    module.__dict__["__chaossloth__"] = record.hooks
    made = instrument(source, filename, name)
    assert made.skipped == ()
    exec(made.code, module.__dict__)
    return module


def _module(name: str, filename: str) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__file__ = filename
    sys.modules[name] = module
    return module


@dataclass(frozen=True)
class Result:
    """What a call came to: its value's repr, or its exception with the lines, columns and functions it crossed."""

    value: str | None
    error: tuple[str, str] | None = None
    frames: tuple[tuple[object, ...], ...] = ()


def outcome(call: Callable[[], Any]) -> Result:
    try:
        value = call()
        if asyncio.iscoroutine(value):
            value = asyncio.run(value)
        return Result(repr(value))
    except BaseException as error:  # whatever it is, it must be the same in both versions
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename not in (__file__,)]
        text = "".join(traceback.format_exception_only(error))
        places = tuple((f.filename, f.lineno, f.end_lineno, f.colno, f.end_colno, f.name) for f in frames)
        return Result(None, (type(error).__name__, text), places)


@contextlib.contextmanager
def recording(detail: bool = False) -> Iterator[list[Any]]:
    """Record one step; the list holds its raw accesses afterwards."""
    raw: list[Any] = []
    recorder = record.recorder
    recorder.detail = detail
    recorder.start_run()
    recorder.begin_step(1, 1)
    recorder.enabled = True
    try:
        yield raw
    finally:
        recorder.enabled = False
        raw.extend(recorder.end_step())
        recorder.detail = False


def fresh_name() -> str:
    return f"subject{next(_numbers)}"


def recorded(source: str, call: str = "run", detail: bool = False) -> tuple[Any, list[Access]]:
    """Result and accesses of `call()` of an instrumented program; what it does while loading is not recorded."""
    name = fresh_name()
    module = load_instrumented(source, name, f"/{name}.py")
    with recording(detail) as raw:
        result = getattr(module, call)()
        if asyncio.iscoroutine(result):
            result = asyncio.run(result)
        del result
    return module, [record.recorder.to_access(r) for r in raw]


def accesses(source: str, call: str = "run") -> list[tuple[str, str]]:
    """(name, mode) of every access in order; the module's own name is written "m"."""
    module, found = recorded(source, call)
    return [(a.name.replace(module.__name__ + ".", "m."), a.mode) for a in found]


def names(found: list[tuple[str, str]]) -> set[str]:
    return {name for name, _mode in found}
