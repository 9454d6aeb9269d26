"""ChaosSloth beside other tools that control the order of asyncio tasks, on the programs of `programs.py`.

    python benchmark/peers/run.py [--peer NAME]... [--what WHAT]... [--seconds 60] [--seeds 11] [--json FILE]

Every figure comes from a process of its own (`adapters/`), in that tool's environment (`setup.py`); ChaosSloth and the
stock loop run in the interpreter of this script. Counts of executions are exact and do not depend on the machine.
Rates do: the rounds go through all tools in turn and the best of each is taken, so that a disturbance meets none alone.

Exit code: 0 when ChaosSloth kept its targets, 1 when it missed one, 2 when something was not measured at all.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmark"), str(ROOT / "benchmark" / "peers")]

from programs import BUGGY, CORRECT  # noqa: E402
from setup import HERE, PEERS, VENVS, interpreter  # noqa: E402
from tables import table  # noqa: E402

__all__ = ["Fault", "main", "missed"]

OWN = "chaossloth"
STOCK = "stock"
RATED = ("e2", "e4", "f5")
WHAT = ("find", "exhaust", "rate", "claims")
GRACE_S = 30.0  # beyond its own limit, before a process counts as hanging
TARGET_FIND = {"a2": 2, "c": 10, "g": 4, "d": 2}
TARGET_EXHAUST = {"e2": 2, "e3": 6, "e4": 24, "f2": 1, "f3": 1, "f5": 1}
TARGET_RATIO = 5.0

Document = dict[str, Any]


class Fault(Exception):
    """A tool could not be started or answered something else than a result."""


@dataclass(frozen=True)
class Asker:
    """Asks adapters. seconds: limit of each search."""

    venvs: Path
    seconds: float

    def __call__(self, peer: str, *words: str, seconds: float | None = None) -> Document:
        limit = self.seconds if seconds is None else seconds
        own = peer in (OWN, STOCK)
        python = sys.executable if own else str(interpreter(self.venvs, peer))
        command = [python, str(HERE / "adapters" / f"{peer}_adapter.py"), *words, "--seconds", str(limit)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)} if own else None
        try:
            done = subprocess.run(
                command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit + GRACE_S
            )
        except subprocess.TimeoutExpired:
            return {"hung": True, "offered": True}
        except OSError as error:
            raise Fault(f"{peer}: {error}; run benchmark/peers/setup.py first") from None
        lines = done.stdout.decode().splitlines()
        if done.returncode != 0 or not lines:
            raise Fault(f"{peer} {' '.join(words)}: exit code {done.returncode}: {done.stderr.decode()[-300:]}")
        answer: Document = json.loads(lines[-1])
        return answer


# --- measuring ----------------------------------------------------------------------------------------------------


def measure(ask: Asker, peers: Sequence[str], seeds: int, what: Sequence[str] = WHAT) -> Document:
    found: Document = {"seconds": ask.seconds, "tools": {peer: ask(peer, "version") for peer in peers}}
    searching = [peer for peer in peers if peer != STOCK]
    if "find" in what:
        found["find"] = {peer: _find(ask, peer, found["tools"][peer]["strategies"], seeds) for peer in searching}
    if "exhaust" in what:
        found["exhaust"] = {peer: _each(ask, peer, "exhaust", CORRECT) for peer in searching}
    if "rate" in what:
        found["rate"] = _rates(ask, peers)
    if "claims" in what:
        found["stopped"] = {peer: _each(ask, peer, "stopped", ("a2",)) for peer in searching}
        found["default"] = {peer: _each(ask, peer, "default", BUGGY) for peer in searching}
    return found


def _each(ask: Asker, peer: str, what: str, programs: Sequence[str]) -> Document:
    _say(f"{peer}: {what}")
    return {program: ask(peer, what, program) for program in programs}


def _find(ask: Asker, peer: str, strategies: Mapping[str, bool], seeds: int) -> Document:
    found: Document = {}
    for strategy, draws in strategies.items():
        _say(f"{peer}: find, {strategy}")
        words = ("--strategy", strategy, "--seeds", str(seeds if draws else 1))
        found[strategy] = {program: ask(peer, "find", program, *words) for program in BUGGY}
    return found


def _rates(ask: Asker, peers: Sequence[str]) -> Document:
    best: Document = {peer: dict.fromkeys(RATED, 0.0) for peer in peers}
    for round_ in range(3):
        _say(f"rates: round {round_ + 1} of 3")
        for program in RATED:
            for peer in peers:
                answer = ask(peer, "rate", program, seconds=2.0)
                if not answer.get("hung"):
                    best[peer][program] = max(best[peer][program], answer["executions"] / answer["seconds"])
    return best


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# --- reporting ----------------------------------------------------------------------------------------------------


def report(found: Document) -> str:
    names = {peer: f"{peer} {tool['version']}" for peer, tool in found["tools"].items()}
    pythons = ", ".join(sorted({tool["python"] for tool in found["tools"].values()}))
    parts = [f"Python {pythons}; limit {found['seconds']:g} s for each search; - not within it"]
    for key, title, make in TABLES:
        if key in found:
            parts += ["", title, make(found, names)]
    return "\n".join(parts)


def _find_table(found: Document, names: Mapping[str, str]) -> str:
    rows = [
        [f"{names[peer]}, {strategy}", *[_found(cells[program]) for program in BUGGY]]
        for peer, strategies in found["find"].items()
        for strategy, cells in strategies.items()
    ]
    return table(["", *BUGGY], rows)


def _found(cell: Document) -> str:
    if cell.get("hung"):
        return "hangs"
    if "false_alarm" in cell:
        return "FALSE ALARM"
    of = f" [{cell['found']}/{cell['seeds']}]" if cell["found"] < cell["seeds"] or cell["seeds"] > 1 else ""
    return f"{cell['median']:g}{of}" if cell["median"] is not None else f"-{of}"


def _exhaust_table(found: Document, names: Mapping[str, str]) -> str:
    rows = [
        [names[peer], *[_exhausted(cells[program]) for program in CORRECT]] for peer, cells in found["exhaust"].items()
    ]
    return table(["", *CORRECT], rows)


def _exhausted(cell: Document) -> str:
    if not cell["offered"]:
        return "none"
    if cell.get("hung"):
        return "hangs"
    if cell["failed"]:
        return "FALSE ALARM"
    return str(cell["executions"]) if cell["finished"] else f"- ({cell['executions']})"


def _rate_table(found: Document, names: Mapping[str, str]) -> str:
    stock = found["rate"].get(STOCK)
    rows = []
    for peer, rates in found["rate"].items():
        relative = [f" ({rates[p] / stock[p]:.3f})" if stock and stock[p] else "" for p in RATED]
        rows.append([names[peer], *[f"{rates[p]:.0f}{times}" for p, times in zip(RATED, relative, strict=True)]])
    return table(["", *RATED], rows)


def _stopped_table(found: Document, names: Mapping[str, str]) -> str:
    return "\n".join(
        f"{names[peer]}: {_certificate(cells['a2'])}; {cells['a2'].get('words', '')}"
        for peer, cells in found["stopped"].items()
    )


def _default_table(found: Document, names: Mapping[str, str]) -> str:
    rows = [
        [names[peer], *[_certificate(cells[program]) for program in BUGGY]] for peer, cells in found["default"].items()
    ]
    return table(["", *BUGGY], rows)


def _certificate(cell: Document) -> str:
    if not cell["offered"]:
        return "none"
    if cell.get("hung"):
        return "hangs"
    if cell.get("out_of_time"):
        return "out of time"
    if cell["failed"]:
        return f"found in {cell['executions']}"
    return "CERTIFIED" if cell["certificate"] else "no certificate"


TABLES = (
    (
        "find",
        "Executions to the first failure (median over the seeds of a strategy that draws; [seeds that found it])",
        _find_table,
    ),
    ("exhaust", "Executions to exhaustion, no bound (none: no such mode)", _exhaust_table),
    (
        "rate",
        "Executions per second of CPU time (best of three rounds; in brackets: times the stock loop's)",
        _rate_table,
    ),
    ("stopped", "What is claimed of the faulty a2 after one execution", _stopped_table),
    ("default", "What the exhaustive mode says of faulty programs at its default bound", _default_table),
)


# --- targets ------------------------------------------------------------------------------------------------------


def missed(found: Document) -> list[str]:
    """One sentence for each target that ChaosSloth missed, of those that were measured in this run."""
    sentences = []
    for program, cell in next(iter(found["find"][OWN].values())).items() if "find" in found else ():
        median, most = cell.get("median"), TARGET_FIND[program]
        if median is None or median > most:
            sentences.append(f"{program}: first failure after {_found(cell)} executions, target {most}")
    for program, cell in found["exhaust"][OWN].items() if "exhaust" in found else ():
        most = TARGET_EXHAUST[program]
        if not cell.get("finished") or cell["executions"] > most:
            sentences.append(f"{program}: exhaustion {_exhausted(cell)}, target {most}")
    rates = found.get("rate", {})
    for program in RATED if "detangle" in rates else ():
        theirs = rates["detangle"][program]
        ratio = rates[OWN][program] / theirs if theirs else float("inf")
        if ratio < TARGET_RATIO:
            sentences.append(f"{program}: {ratio:.2f} times detangle's executions/s, target {TARGET_RATIO:g}")
    return sentences


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="ChaosSloth beside its peers.")
    parser.add_argument("--peer", action="append", choices=[*PEERS, OWN], help="only this tool; may be repeated")
    parser.add_argument("--what", action="append", choices=WHAT, help="only this table; may be repeated")
    parser.add_argument("--seconds", type=float, default=60.0, help="limit of each search (60)")
    parser.add_argument("--seeds", type=int, default=11, help="seeds of a strategy that draws (11)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything that was measured")
    parser.add_argument("--venvs", type=Path, default=VENVS, help="where setup.py made the environments")
    options = parser.parse_args(arguments)
    peers = [STOCK, *(options.peer or _installed(options.venvs))]
    try:
        found = measure(Asker(options.venvs, options.seconds), peers, options.seeds, options.what or WHAT)
    except Fault as fault:
        print(f"peers: not measured: {fault}", file=sys.stderr)
        return 2
    print(report(found))
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if OWN not in peers:
        return 0
    sentences = missed(found)
    print("\n" + ("\n".join(["Missed targets", *sentences]) if sentences else "All targets kept"))
    return 1 if sentences else 0


def _installed(venvs: Path) -> list[str]:
    there = [peer for peer in PEERS if interpreter(venvs, peer).exists()]
    for peer in PEERS:
        if peer not in there:
            _say(f"{peer}: no environment in {venvs}, left out (benchmark/peers/setup.py makes it)")
    return [OWN, *there]


if __name__ == "__main__":
    sys.exit(main())
