"""Places and lists as the sentences of the audit write them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from chaossloth.evidence import Frame

__all__ = ["at_words", "listed", "place", "since_words"]


def place(frame: Frame) -> str:
    return f"{os.path.basename(frame.file)}:{frame.line}"


def at_words(frame: Frame | None) -> str:
    return f" at {place(frame)}" if frame else ""


def since_words(frame: Frame | None) -> str:
    return f" (since {place(frame)})" if frame else ""


def listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
