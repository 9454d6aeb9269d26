"""Code that is not instrumented, for tests of what the recorder assumes about such code."""

from __future__ import annotations

from typing import Any

__all__ = ["Opaque", "unknown"]


def unknown(_argument: Any) -> None:
    """Nothing is known about this function."""


class Opaque:
    """An object whose state only its own code sees."""

    def __init__(self) -> None:
        self.state = 0

    def work(self, _argument: Any = None) -> int:
        self.state += 1
        return self.state
