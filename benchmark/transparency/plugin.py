"""A pytest plugin: instruments the modules of one package when they are imported, and writes what became of each test.

Told by the environment: TRANSPARENCY_MODULE, _EXCLUDED (not instrumented), _MODE ("plain" or "hooked"), _OUT.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.machinery
import importlib.util
import itertools
import json
import os
import re
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType
from typing import Any

import pytest

MODULE, EXCLUDED = os.environ["TRANSPARENCY_MODULE"], os.environ["TRANSPARENCY_EXCLUDED"]
HOOKED = os.environ["TRANSPARENCY_MODE"] == "hooked"
_ADDRESS = re.compile(r"0x[0-9a-f]+")
_tests: dict[str, list[Any]] = {}
_skipped: list[str] = []
_seen: list[str] = []
_numbers = itertools.count(1)


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        from chaossloth.subject.instrument import instrument

        with open(self.path, "rb") as file:
            made = instrument(importlib.util.decode_source(file.read()), self.path, fullname)
        _skipped.extend(f"{fullname}: {entry}" for entry in made.skipped)
        _seen.append(fullname)
        return made.code

    def exec_module(self, module: ModuleType) -> None:
        from chaossloth.subject import record

        module.__dict__["__chaossloth__"] = record.hooks
        super().exec_module(module)


class _Finder:
    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        inside = name == MODULE or name.startswith(MODULE + ".")
        if not inside or (EXCLUDED and (name == EXCLUDED or name.startswith(EXCLUDED + "."))):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin is not None and spec.origin.endswith(".py"):
            spec.loader = _Loader(name, spec.origin)
        return spec


if HOOKED:
    sys.meta_path.insert(0, _Finder)  # type: ignore[arg-type]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    """Record the test: what it does between two handles is a step too."""
    if not HOOKED:
        return (yield)
    from chaossloth.subject.record import recorder

    recorder.start_run()
    recorder.enabled = True
    asyncio.Handle._run = _step  # type: ignore[method-assign]
    try:
        return (yield)
    finally:
        asyncio.Handle._run = _run  # type: ignore[method-assign]
        recorder.enabled = False
        recorder.end_step()


def _collect(generation: int = 2) -> int:
    """The tests are not instrumented, so that what the recorder does at their `gc.collect()` is done here."""
    from chaossloth.subject.record import recorder

    recorder.names.release()
    return _original_collect(generation)


_original_collect = gc.collect
if HOOKED:
    gc.collect = _collect
_run = asyncio.Handle._run


def _step(self: asyncio.Handle) -> None:
    """One handle is one step, as on the controlled loop."""
    from chaossloth.subject.record import recorder

    recorder.end_step()
    recorder.begin_step(1, next(_numbers))
    _run(self)
    recorder.end_step()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    crash = getattr(report.longrepr, "reprcrash", None)
    message = _ADDRESS.sub("0x", crash.message) if crash is not None else ""
    _tests.setdefault(report.nodeid, []).append([report.when, report.outcome, message, crash and crash.lineno])


def pytest_sessionfinish() -> None:
    if HOOKED and MODULE not in _seen:
        raise pytest.UsageError(f"{MODULE} was not instrumented")
    with open(os.environ["TRANSPARENCY_OUT"], "w") as file:
        json.dump({"tests": _tests, "skipped": _skipped}, file)
