"""simloom: random walks, PCT, and delay-bounded systematic search over a choice tape.

`SystematicResult.proven_correct` is its proof; `@simloom.test(systematic=True)` passes with or without it.
"""

from __future__ import annotations

from importlib.metadata import version

import simloom
from harness import ENOUGH, Claim, Exhausted, Subject, main


class Simloom:
    version = version("simloom")
    strategies = {"random": True, "pct:auto": True, "systematic, 2 delays": False}

    def find(self, subject: Subject, strategy: str, seed: int) -> int | None:
        if strategy.startswith("systematic"):
            return simloom.explore_systematic(subject.main, max_schedules=ENOUGH).first_failure_at
        first = seed * 1_000_000
        result = simloom.explore(subject.main, runs=1_000_000, start_seed=first, scheduler=strategy)
        return result.runs if result.failed else None

    def exhaust(self, subject: Subject) -> Exhausted:
        result = simloom.explore_systematic(subject.main, max_delays=ENOUGH, max_schedules=ENOUGH)
        return Exhausted(result.schedules, result.exhaustive, result.failed)

    def default(self, subject: Subject) -> Claim:
        return self._claim(subject, ENOUGH)

    def stopped(self, subject: Subject) -> Claim:
        return self._claim(subject, 1)

    @staticmethod
    def _claim(subject: Subject, schedules: int) -> Claim:
        result = simloom.explore_systematic(subject.main, max_schedules=schedules)
        words = f"{result!r}, proven_correct={result.proven_correct}"
        return Claim(result.proven_correct, words, result.failed, result.schedules)

    def explore(self, subject: Subject) -> None:
        simloom.explore(subject.main, runs=100)


main(Simloom())
