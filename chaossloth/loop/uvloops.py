"""A subject that asks for uvloop gets the loop that is under test.

uvloop's loop is written in C around libuv: neither its queue nor its clock can be chosen. Everything in uvloop makes
its loops through the class `uvloop.Loop` (`install`, `run`, `new_event_loop`, the policy), so that one class is
replaced, when the module is imported, by one whose call makes a loop of the present run: a controlled one, or the stock
loop of a natural or forced run. That is said once in the report (`NOTE`): the orders explored are asyncio's, which
uvloop keeps for `call_soon` and timers and not for readiness.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["NOTE", "imported", "install", "loops_from"]

NOTE = "uvloop is replaced by asyncio's own loop, controlled or stock; orders that only uvloop has are not explored"
_factories: list[Callable[[], Any]] = []


def install() -> None:
    """Once per process, before the subject is imported; later calls do nothing."""
    module = sys.modules.get("uvloop")
    if module is not None:
        _replace(module)
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def imported() -> bool:
    """Whether the subject has asked for it."""
    return "uvloop" in sys.modules


@contextmanager
def loops_from(factory: Callable[[], Any]) -> Iterator[None]:
    """For the time of the block `uvloop.Loop()` is `factory()`."""
    _factories.append(factory)
    try:
        yield
    finally:
        _factories.pop()


class _Replaced(type):
    """Makes loops of the present run, and takes each loop for one of its own (`uvloop.run` asks)."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return (_factories[-1] if _factories else asyncio.SelectorEventLoop)()

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, asyncio.AbstractEventLoop)


def _replace(module: Any) -> None:
    if not isinstance(module.Loop, _Replaced):
        module.Loop = _Replaced("Loop", (), {"__module__": "uvloop"})


class _Finder:
    """Finds uvloop where the other finders do, and replaces its loop once it is executed."""

    _looking = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "uvloop" or self._looking:
            return None
        self._looking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._looking = False
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            _replace(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
