"""The registry of repair operators: kind -> function that proposes its edits for a diagnosis.

To add one: a module with `propose(sites, refused)` beside these, and a line below; then allow its kind for the
patterns it repairs in `chaossloth.diagnose.intents`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from chaossloth.diagnose import intents
from chaossloth.repair.operators import (
    move_await_out,
    recheck_after_await,
    snapshot_iteration,
    while_instead_of_if,
    wrap_atomic_section,
)
from chaossloth.repair.proposal import Proposal
from chaossloth.repair.sites import Sites

__all__ = ["OPERATORS", "Operator"]

Operator = Callable[[Sites, list[str]], Iterable[Proposal]]

OPERATORS: Mapping[str, Operator] = {
    intents.MOVE_AWAIT_OUT: move_await_out.propose,
    intents.RECHECK_AFTER_AWAIT: recheck_after_await.propose,
    intents.SNAPSHOT_ITERATION: snapshot_iteration.propose,
    intents.WHILE_INSTEAD_OF_IF: while_instead_of_if.propose,
    intents.WRAP_ATOMIC_SECTION: wrap_atomic_section.propose,
}
