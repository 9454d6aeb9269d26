"""What every adapter shares: it measures one thing about one tool and prints one line of JSON.

    python ADAPTER.py version
    python ADAPTER.py find     PROGRAM --strategy S --seeds N --seconds T
    python ADAPTER.py exhaust  PROGRAM --seconds T
    python ADAPTER.py rate     PROGRAM --seconds T
    python ADAPTER.py default  PROGRAM --seconds T      the tool's own exhaustive mode with its default bound
    python ADAPTER.py stopped  PROGRAM                  a search that is stopped after one execution

Tools differ in what limits they offer, so that time is kept here: `Subject.setup`, which every execution calls once,
counts executions and raises no exception (tools catch them) but prints what is known and ends the process once the
time is up. A tool that hangs inside one execution is ended by the runner.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import warnings
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from programs import PROGRAMS, Program, execute

__all__ = ["Claim", "Exhausted", "Main", "Subject", "Tool", "main"]

Main = Callable[[], Coroutine[Any, Any, None]]
DEADLOCK = "d"  # the program whose failure is not its invariant's
ENOUGH = 10**7  # executions: more than any tool reaches within the time


@dataclass(frozen=True)
class Exhausted:
    """A search that was let run. finished: it ended by itself. failed: it reported a failure."""

    executions: int
    finished: bool
    failed: bool = False


@dataclass(frozen=True)
class Claim:
    """What a tool says of a search without a failure. certificate: it says that nothing is left to be found, in its
    own documented terms. words: what it printed or returned. failed: it reported a failure, so that nothing is
    claimed."""

    certificate: bool
    words: str
    failed: bool = False
    executions: int | None = None


class Subject:
    """A program whose executions are counted and limited in time.

    main: one execution as a coroutine. executions: calls of `setup` so far. broken: the invariant was false once.
    """

    def __init__(self, program: Program, seconds: float, out_of_time: Callable[[Subject], dict[str, Any]]) -> None:
        self.program = program
        self.executions = 0
        self.started = perf_counter()
        self.deadline = self.started + seconds
        self.broken = False
        self._out_of_time = out_of_time
        self._counted = Program(program.name, self.setup, program.workers, self.invariant)

    def setup(self) -> Any:
        if perf_counter() > self.deadline:
            answer(self._out_of_time(self))
        self.executions += 1
        return self.program.setup()

    def invariant(self, state: Any) -> bool:
        holds = self.program.invariant(state)
        self.broken = self.broken or not holds
        return holds

    async def main(self) -> None:
        await execute(self._counted)


class Tool(Protocol):
    """One tool. strategies: name -> whether it draws, so that the median over seeds is of interest.

    Methods that a tool has no counterpart for return None.
    """

    version: str
    strategies: Mapping[str, bool]

    def find(self, subject: Subject, strategy: str, seed: int) -> int | None:
        """Executions up to and including the first failing one; None when the strategy ended without one."""

    def exhaust(self, subject: Subject) -> Exhausted | None:
        """Every interleaving, without a bound."""

    def default(self, subject: Subject) -> Claim | None:
        """The exhaustive mode as the tool's documentation calls it, with the bounds that it has by default."""

    def stopped(self, subject: Subject) -> Claim | None:
        """As `default`, stopped after one execution by the tool's own limit on executions."""

    def explore(self, subject: Subject) -> int | None:
        """One exploration as the tool does it by default, about 100 executions, no failure expected.

        How many there were, None when the calls of `subject.setup` are to be counted.
        """


def answer(document: dict[str, Any]) -> None:
    """Print the result and end the process at once, from wherever in the tool's machinery this is."""
    sys.__stdout__.write(json.dumps(document) + "\n")  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]
    os._exit(0)


def main(tool: Tool) -> None:
    options = _options()
    warnings.simplefilter("ignore")  # coroutines that a tool abandons
    if options.what == "version":
        answer({"version": tool.version, "strategies": dict(tool.strategies), "python": sys.version.split()[0]})
    measure = {"find": _find, "exhaust": _exhaust, "rate": _rate, "default": _default, "stopped": _stopped}
    answer(measure[options.what](tool, PROGRAMS[options.program], options))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["version", "find", "exhaust", "rate", "default", "stopped"])
    parser.add_argument("program", nargs="?", choices=list(PROGRAMS))
    parser.add_argument("--strategy", default="")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0)
    return parser.parse_args()


# --- measurements -------------------------------------------------------------------------------------------------


def _find(tool: Tool, program: Program, options: argparse.Namespace) -> dict[str, Any]:
    """Executions to the first failure, for seed after seed, until the seeds or the time are used up."""
    found: list[int | None] = []
    ended: dict[str, int] = {}

    def out_of_time(subject: Subject) -> dict[str, Any]:
        return _found([*found, None], subject.executions)

    for seed in range(options.seeds):
        spent = sum(ended.values())
        subject = Subject(program, options.seconds, out_of_time)
        subject.deadline = subject.started + options.seconds - spent / 1e9
        executions = tool.find(subject, options.strategy, seed)
        if executions is not None and program.name != DEADLOCK and not subject.broken:
            return {"false_alarm": executions}  # a failure is reported and there was none
        found.append(executions)
        ended[str(seed)] = int((perf_counter() - subject.started) * 1e9)
        if sum(ended.values()) / 1e9 > options.seconds:
            break
    return _found(found, 0)


def _found(found: list[int | None], unfinished: int) -> dict[str, Any]:
    """The median counts a seed without a failure as more than any other; None when that is what the median is."""
    middle = statistics.median([float("inf") if each is None else each for each in found])
    return {
        "median": None if middle == float("inf") else middle,
        "found": sum(each is not None for each in found),
        "seeds": len(found),
        "each": found,
        "unfinished_executions": unfinished,
    }


def _exhaust(tool: Tool, program: Program, options: argparse.Namespace) -> dict[str, Any]:
    subject = Subject(program, options.seconds, lambda each: _exhausted(each, Exhausted(each.executions, False)))
    result = tool.exhaust(subject)
    return _exhausted(subject, result) if result is not None else {"offered": False}


def _exhausted(subject: Subject, result: Exhausted) -> dict[str, Any]:
    return {"offered": True, "seconds": perf_counter() - subject.started} | vars(result)


def _rate(tool: Tool, program: Program, options: argparse.Namespace) -> dict[str, Any]:
    """Executions per second of CPU time, of explorations one after the other.

    The first exploration is left out (imports, compilation). All tools work in one thread and wait for nothing, so that
    CPU time is their time without that of other processes.
    """
    tool.explore(Subject(program, 60.0, lambda each: {"executions": 0, "seconds": 60.0}))
    subject = Subject(program, float("inf"), lambda each: {})
    executions, started = 0, process_time()
    while (elapsed := process_time() - started) < options.seconds:
        executions += tool.explore(subject) or 0
    return {"executions": executions or subject.executions, "seconds": elapsed}


def _default(tool: Tool, program: Program, options: argparse.Namespace) -> dict[str, Any]:
    subject = Subject(program, options.seconds, lambda each: {"offered": True, "out_of_time": True})
    return _claimed(tool.default(subject))


def _stopped(tool: Tool, program: Program, options: argparse.Namespace) -> dict[str, Any]:
    subject = Subject(program, options.seconds, lambda each: {"offered": True, "out_of_time": True})
    return _claimed(tool.stopped(subject))


def _claimed(claim: Claim | None) -> dict[str, Any]:
    return {"offered": True} | vars(claim) if claim is not None else {"offered": False}
