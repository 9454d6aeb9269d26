"""Coroutines that were created and never awaited.

The interpreter notices one when it is deallocated without having been started, and then calls
`warnings._warn_unawaited_coroutine`: that function is exchanged for the time of a run. Without cycles this happens at
the statement that dropped the coroutine, so it does not depend on the collector. What is still referenced at the end (a
list, an attribute, a cycle) is looked for among the young objects; that walk costs as much as a short execution, so it
is made only where asked for. Not found there: what an explicit `gc.collect()` of the subject made old.

Where it was created: `sys.set_coroutine_origin_tracking_depth(1)` has every coroutine keep the line that called its
function. Reported are the subject's own coroutines and those that its own lines created (`asyncio.sleep(1)` without
`await`); a library's affairs are not. A coroutine that was closed before it began is no mistake, as for the
interpreter.
"""

from __future__ import annotations

import gc
import inspect
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import CoroutineType
from typing import Any

from chaossloth.evidence import Frame

__all__ = ["Unawaited", "UnawaitedWatch"]


@dataclass(frozen=True, slots=True)
class Unawaited:
    """name: the coroutine's function; created: the line that called it, None where that is not known."""

    name: str
    created: Frame | None

    @property
    def sentence(self) -> str:
        return f"coroutine {self.name} was created and never awaited"


class UnawaitedWatch:
    """Collects between `start()` and `stop()`. is_subject: predicate on file names."""

    def __init__(self, is_subject: Callable[[str], bool]) -> None:
        self._is_subject = is_subject
        self._found: list[Unawaited] = []
        self._original: Any = None
        self._depth = 0
        self._older: list[Any] | None = None

    def start(self, look_around: bool = False) -> None:
        """Begin. look_around: also find, at the end, what is still referenced."""
        self._found = []
        self._older = _unstarted() if look_around else None
        self._depth = sys.get_coroutine_origin_tracking_depth()
        sys.set_coroutine_origin_tracking_depth(max(1, self._depth))
        self._original = warnings._warn_unawaited_coroutine  # type: ignore[attr-defined]
        warnings._warn_unawaited_coroutine = self._dropped  # type: ignore[attr-defined]

    def found(self) -> tuple[Unawaited, ...]:
        """What was dropped so far."""
        return tuple(self._found)

    def stop(self) -> tuple[Unawaited, ...]:
        """End; everything that was found, in the order in which it was dropped."""
        if self._older is not None:
            known = {id(each) for each in self._older}
            for coroutine in _unstarted():
                if id(coroutine) not in known:
                    self._note(coroutine)
                    coroutine.close()  # or it would be found again, at a time that the collector chooses
            self._older = None
        warnings._warn_unawaited_coroutine = self._original  # type: ignore[attr-defined]
        sys.set_coroutine_origin_tracking_depth(self._depth)
        return tuple(self._found)

    def _dropped(self, coroutine: Any) -> None:
        """In the place of the interpreter's warning, which would show each line only once."""
        self._note(coroutine)

    def _note(self, coroutine: Any) -> None:
        code = coroutine.cr_code
        origin = coroutine.cr_origin
        created = Frame(*origin[0]) if origin else None
        own = created is not None and self._is_subject(created.file)
        if own or self._is_subject(code.co_filename):
            name = str(coroutine.__qualname__).rpartition("<locals>.")[2]
            self._found.append(Unawaited(name, created if own else None))


def _unstarted() -> list[Any]:
    young = [each for each in gc.get_objects(0) if type(each) is CoroutineType]
    return [each for each in young if inspect.getcoroutinestate(each) == inspect.CORO_CREATED]
