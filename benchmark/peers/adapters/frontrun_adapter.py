"""frontrun: dynamic partial-order reduction over the accesses that its bytecode tracer sees.

A pass is called a certificate in its documentation (`InterleavingResult.property_holds`). `exhausted` is documented as
not reported for asyncio tasks.
"""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import Any

import frontrun
from harness import Claim, Exhausted, Subject, main


def _explored(subject: Subject, **options: Any) -> Any:
    if options.get("strategy") != "random":
        options.setdefault("reproduce_on_failure", 0)
    return asyncio.run(
        frontrun.explore(
            setup=subject.setup, workers=list(subject.program.workers), invariant=subject.invariant, **options
        )
    )


class Frontrun:
    version = version("frontrun")
    strategies = {"DPOR": False, "DPOR, no preemption bound": False, "random": True}

    def find(self, subject: Subject, strategy: str, seed: int) -> int | None:
        if strategy == "random":
            result = _explored(subject, strategy="random", seed=seed, max_attempts=1_000_000)
        else:
            bound = {"preemption_bound": None} if "bound" in strategy else {}
            result = _explored(subject, **bound)
        return result.num_explored if result.property_holds is False else None

    def exhaust(self, subject: Subject) -> Exhausted:
        result = _explored(subject, preemption_bound=None, stop_on_first=False)
        return Exhausted(result.num_explored, True, failed=result.property_holds is False)

    def default(self, subject: Subject) -> Claim:
        return _claim(_explored(subject))

    def stopped(self, subject: Subject) -> Claim:
        return _claim(_explored(subject, max_executions=1))

    def explore(self, subject: Subject) -> None:
        _explored(subject, stop_on_first=False)


def _claim(result: Any) -> Claim:
    words = f"{result!r}, exhausted={result.exhausted}"
    if result.property_holds is not False:
        try:
            result.assert_holds()
            words += "; assert_holds() passes"
        except Exception as error:
            words += f"; assert_holds() raises {error!r}"
    return Claim(result.property_holds is True, words, result.property_holds is False, result.num_explored)


main(Frontrun())
