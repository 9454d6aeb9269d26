"""Numbers with their noun."""

from __future__ import annotations

__all__ = ["count"]


def count(number: int, noun: str) -> str:
    """The number and the noun, in the plural where it has to be: "1 run", "3 runs"."""
    return f"{number} {noun}" + ("" if number == 1 else "s")
