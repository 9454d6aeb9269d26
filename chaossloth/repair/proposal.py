"""What an operator hands over: a cheap description with a rank, and the function that makes the edit when its turn
comes.

Building a candidate costs a copy and a parse; ranking comes first, so that only the ones worth trying are built.
Rank (smaller is tried earlier): place of the kind in the pattern's list (lock-free kinds stand before the lock),
penalty (wider or narrower lock scope than the state's, a wait under the lock, nesting), then what the kind itself
prefers (for a lock: reuse, tightness, size of the region), then edit size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from chaossloth.evidence import RepairIntent
from chaossloth.repair.render import Draft
from chaossloth.repair.source import ModuleSource

__all__ = ["Candidate", "Proposal"]


@dataclass(frozen=True, slots=True)
class Proposal:
    """intent: kind, target, lines and why. penalty and preference: see the module's text. make: edits a fresh draft;
    raises Refused when the site turns out to be unfit."""

    module: ModuleSource
    intent: RepairIntent
    make: Callable[[Draft], None]
    penalty: int = 0
    preference: tuple[int, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One patched file: new text, the hash of its tree (`render.tree_hash`), changed lines, and its rank."""

    intent: RepairIntent
    path: str
    new_source: str
    new_tree_dump_hash: str
    edit_size: int
    rank: tuple[int, ...]
    note: str = ""
