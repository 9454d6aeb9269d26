"""detangle: random walks, PCT, and delay-bounded depth-first search over the ready queue.

`stats.exhausted` is what its documentation offers as proof of absence, within the bound of the search.
"""

from __future__ import annotations

from importlib.metadata import version

import detangle
from detangle.explore import BugFound
from harness import ENOUGH, Claim, Exhausted, Subject, main


def _explored(
    subject: Subject, strategy: str | detangle.Strategy, runs: int = ENOUGH, seed: int | None = None
) -> detangle.ExploreStats:
    return detangle.explore(subject.main, runs=runs, strategy=strategy, seed=seed, shrink=False, database="")


class Detangle:
    version = version("detangle")
    strategies = {"random": True, "auto": True, "pct:3": True, "dfs, 2 delays": False}

    def find(self, subject: Subject, strategy: str, seed: int) -> int | None:
        chosen = detangle.DFS() if strategy.startswith("dfs") else strategy
        try:
            _explored(subject, chosen, seed=seed)
        except BugFound as found:
            return int(found.report.runs)
        return None

    def exhaust(self, subject: Subject) -> Exhausted:
        try:
            stats = _explored(subject, detangle.DFS(max_delays=ENOUGH))
        except BugFound as found:
            return Exhausted(found.report.runs, False, failed=True)
        return Exhausted(stats.runs, stats.exhausted)

    def default(self, subject: Subject) -> Claim:
        return self._claim(subject, ENOUGH)

    def stopped(self, subject: Subject) -> Claim:
        return self._claim(subject, 1)

    @staticmethod
    def _claim(subject: Subject, runs: int) -> Claim:
        try:
            stats = _explored(subject, detangle.DFS(), runs)
        except BugFound as found:
            return Claim(False, str(found).splitlines()[0], True, found.report.runs)
        return Claim(stats.exhausted, stats.summary(), executions=stats.runs)

    def explore(self, subject: Subject) -> None:
        _explored(subject, "auto", runs=100, seed=0)


main(Detangle())
