"""From a diagnosis to ranked candidates: every allowed operator at every site, best first, each proved in its text.

Nothing here runs the subject. Proposals are cheap and are ranked before they are built; of those that give the same
text the first stays; those whose text and tree disagree are dropped, with the reason kept in the report.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from chaossloth.diagnose.intents import allowed_kinds
from chaossloth.diagnose.patterns import Diagnosis
from chaossloth.repair.operators import OPERATORS
from chaossloth.repair.proposal import Candidate, Proposal
from chaossloth.repair.render import Draft
from chaossloth.repair.sites import Sites
from chaossloth.repair.source import Refused

__all__ = ["Candidate", "Generation", "generate", "generate_with_reasons"]

_LIMIT = 60


@dataclass(frozen=True, slots=True)
class Generation:
    """candidates: best first. refused: one line per site that an operator or the renderer would not touch, and why.
    left_out: proposals beyond the limit that were not built."""

    candidates: tuple[Candidate, ...]
    refused: tuple[str, ...]
    left_out: int = 0


def generate(diagnosis: Diagnosis, limit: int = _LIMIT) -> list[Candidate]:
    """The candidates of `generate_with_reasons`; empty means NO_REPAIR."""
    return list(generate_with_reasons(diagnosis, limit).candidates)


def generate_with_reasons(diagnosis: Diagnosis, limit: int = _LIMIT) -> Generation:
    sites = Sites(diagnosis)
    refused = list(sites.unparsed)
    ranked: list[tuple[tuple[int, ...], Proposal]] = []
    for tier, kind in enumerate(allowed_kinds(diagnosis.pattern)):
        for proposal in OPERATORS[kind](sites, refused):
            ranked.append(((tier, proposal.penalty, *map(int, proposal.preference)), proposal))
    ranked.sort(key=lambda item: item[0])
    built: dict[tuple[str, str], Candidate] = {}
    for position, (rank, proposal) in enumerate(ranked):
        if len(built) >= limit:
            return Generation(_sorted(built), tuple(dict.fromkeys(refused)), len(ranked) - position)
        candidate = _build(rank, proposal, refused)
        if candidate is not None:
            built.setdefault((candidate.path, candidate.new_tree_dump_hash), candidate)
    return Generation(_sorted(built), tuple(dict.fromkeys(refused)))


def _sorted(built: dict[tuple[str, str], Candidate]) -> tuple[Candidate, ...]:
    ordered = sorted(built.values(), key=lambda c: (c.rank, c.edit_size, c.intent.lines))
    return tuple(dataclasses.replace(c, rank=(*c.rank, c.edit_size)) for c in ordered)


def _build(rank: tuple[int, ...], proposal: Proposal, refused: list[str]) -> Candidate | None:
    draft = Draft(proposal.module)
    try:
        proposal.make(draft)
        done = draft.finish()
    except Refused as reason:
        intent = proposal.intent
        refused.append(f"{intent.kind} {intent.target}:{intent.lines[0]}: {reason}")
        return None
    return Candidate(
        proposal.intent, proposal.module.path, done.source, done.tree_hash, done.edit_size, rank, proposal.note
    )
