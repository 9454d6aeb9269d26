"""simloop: random walks and PCT, seed by seed. It has no exhaustive mode, and so no certificate to give."""

from __future__ import annotations

from importlib.metadata import version

import simloop
from harness import Claim, Subject, main


class Simloop:
    version = version("simloop")
    strategies = {"random": True, "pct": True}

    def find(self, subject: Subject, strategy: str, seed: int) -> int | None:
        first = seed * 1_000_000
        report = simloop.explore(subject.main, range(first, first + 1_000_000), policy=strategy)
        return report.seeds_passed + 1 if report is not None else None

    def exhaust(self, subject: Subject) -> None:
        return None

    def default(self, subject: Subject) -> None:
        return None

    def stopped(self, subject: Subject) -> Claim:
        report = simloop.explore(subject.main, range(1))
        return Claim(False, f"explore() returns {report!r:.80}", report is not None, subject.executions)

    def explore(self, subject: Subject) -> None:
        simloop.explore(subject.main, range(100))


main(Simloop())
