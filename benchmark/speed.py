"""Controlled executions per second, as a ratio to the same scenario on a stock loop in the same process.

    python benchmark/speed.py [--rounds 60] [--slice 0.02] [PROGRAM ...]
    python benchmark/speed.py --memory [--executions 100000]

The unit of everything is one execution of the scenario, from making its coroutine to its judged end. What is compared:

  stock        `loop.run_until_complete(main())` on one `asyncio.new_event_loop()` that is used again and again
  asyncio.run  a new loop per execution, as a test suite does it
  bare         `Executor.execute` of the plain code, stock order, nothing recorded
  recorded     `Executor.execute` of the instrumented code, stock order, accesses and primitives recorded
  search       `Search(...).run(...)` of the label `reorder`: recorded executions and everything the search computes

All variants of a program take turns in short slices; the best slice of each counts, because what
disturbs a slice (a busy sibling core, a frequency change) only ever makes it slower. Seconds are CPU seconds of this
process, user and system: no variant waits for anything, and other processes do. Ratios are taken within one run.
Clocks and random sources stay the real ones here (the programs use neither): their substitutes cost a stock loop time
and would flatter the ratios. The primitives are watched during the recorded slices only.

Exit code: 0, or 1 with `--limits` when a ratio is below its limit; `--memory` ends with 1 when the last sample of the
resident set is more than a tenth above the second one (the first still warms up).
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter, process_time
from typing import Any

from chaossloth.evidence import Outcome
from chaossloth.explore.execute import Executor
from chaossloth.explore.search import Limits, Search
from chaossloth.explore.strategy import StockOrder
from chaossloth.subject import record
from chaossloth.subject.instrument import instrument
from chaossloth.subject.primitives import watch

__all__ = ["LIMITS", "PROGRAMS", "main"]

_LOCKED = """
import asyncio

class Shared:
    def __init__(self):
        self.x = 0
        self.lock = asyncio.Lock()

async def increment(s):
    async with s.lock:
        v = s.x
        await asyncio.sleep(0)
        s.x = v + 1

async def main():
    s = Shared()
    await asyncio.gather(*[increment(s) for _ in range({n})])
    assert s.x == {n}
"""
_INDEPENDENT = """
import asyncio

class Counter:
    def __init__(self):
        self.x = 0

async def count(c):
    for _ in range(3):
        v = c.x
        await asyncio.sleep(0)
        c.x = v + 1

async def main():
    await asyncio.gather(*[count(Counter()) for _ in range({n})])
"""
# A read-modify-write over three coroutines and a dict, without its failing assertion: a traceback would be measured.
_WALLET = """
import asyncio

async def latency():
    await asyncio.sleep(0)

class Wallet:
    def __init__(self):
        self._row = {"gold": 0}

    async def _load(self):
        await latency()
        return self._row["gold"]

    async def _save(self, gold):
        await latency()
        self._row["gold"] = gold

    async def grant(self, amount):
        gold = await self._load()
        await self._save(gold + amount)

async def main():
    wallet = Wallet()

    async def chest(amount):
        await latency()
        await wallet.grant(amount)

    await asyncio.gather(chest(10), chest(5))
    assert wallet._row["gold"] in (5, 10, 15)
"""
PROGRAMS = {
    "e2": _LOCKED.replace("{n}", "2"),
    "e4": _LOCKED.replace("{n}", "4"),
    "f5": _INDEPENDENT.replace("{n}", "5"),
    "wallet": _WALLET,
}
LIMITS = {"bare": 1.5, "recorded": 0.5}
_SEARCHED = 200  # executions of one search; the next one starts anew
_SAMPLES = 10
_FINE = Outcome(True)


class Scenario:
    """The coroutine function `main` of a module made from `source`, as the executor's program."""

    kind = "async"

    def __init__(self, name: str, source: str, instrumented: bool) -> None:
        module = types.ModuleType(name)
        module.__file__ = file = f"<{name}>"
        sys.modules[name] = module
        if instrumented:
            module.__dict__["__chaossloth__"] = record.hooks
            code = instrument(source, file, name).code
        else:
            code = compile(source, file, "exec")
        exec(code, module.__dict__)
        self.make = module.main

    def call(self) -> Any:
        raise NotImplementedError("an async program")

    def judge(self, result: Any, error: BaseException | None) -> Outcome:
        if error is not None:
            raise error  # none of these programs fails
        return _FINE


Variant = Callable[[float], float]  # seconds -> executions per second


def _executor(name: str, source: str, instrumented: bool) -> Executor:
    program = Scenario(f"{name}_{'recorded' if instrumented else 'bare'}", source, instrumented)
    return Executor(program, lambda: program, lambda file: file.startswith(f"<{name}"))


def _rate(once: Callable[[], int], seconds: float) -> float:
    """Executions per CPU second; `once` makes some and returns how many."""
    once()
    done, start = 0, process_time()
    end = start + seconds
    while (now := process_time()) < end:
        for _ in range(20):
            done += once()
    return done / (now - start)


@contextmanager
def _watching() -> Iterator[None]:
    watch.recorder = record.recorder
    watch.install()
    try:
        yield
    finally:
        watch.uninstall()
        watch.recorder = None


def searched(executor: Executor) -> int:
    """One search of the label `reorder`; how many executions it made."""
    search = Search(executor, "reorder", 0)
    return search.run(Limits(_SEARCHED, perf_counter() + 3600), stop=lambda result: False).executions


def variants(name: str, source: str) -> dict[str, Variant]:
    plain = Scenario(f"{name}_stock", source, False)
    loop = asyncio.new_event_loop()
    bare, recorded = _executor(name, source, False), _executor(name, source, True)
    model = bare.model("stock")

    def stock() -> int:
        loop.run_until_complete(plain.make())
        return 1

    def fresh() -> int:
        asyncio.run(plain.make())
        return 1

    def execute_bare() -> int:
        bare.execute(StockOrder(), model, 0, record=False)
        return 1

    def execute_recorded() -> int:
        recorded.execute(StockOrder(), model, 0)
        return 1

    def watched(once: Callable[[], int]) -> Variant:
        def rate(seconds: float) -> float:
            with _watching():
                return _rate(once, seconds)

        return rate

    return {
        "stock": lambda seconds: _rate(stock, seconds),
        "asyncio.run": lambda seconds: _rate(fresh, seconds),
        "bare": lambda seconds: _rate(execute_bare, seconds),
        "recorded": watched(execute_recorded),
        "search": watched(lambda: searched(recorded)),
    }


def measure(name: str, rounds: int, seconds: float) -> dict[str, float]:
    """Variant -> executions per second, the best of `rounds` slices."""
    measured = variants(name, PROGRAMS[name])
    best = dict.fromkeys(measured, 0.0)
    for _ in range(rounds):
        for variant, rate in measured.items():
            best[variant] = max(best[variant], rate(seconds))
    return best


def compare(names: list[str], rounds: int, seconds: float) -> bool:
    """Print a line per program; whether every ratio reaches its limit."""
    version = sys.version.split()[0]
    print(f"Python {version}, best of {rounds} slices of {seconds:g} CPU s; executions/s, then ratios to stock")
    print(f"{'program':8} {'stock':>8} {'asyncio.run':>12} {'bare':>6} {'recorded':>9} {'search':>7}")
    reached = True
    for name in names:
        best = measure(name, rounds, seconds)
        ratio = {variant: rate / best["stock"] for variant, rate in best.items()}
        reached = reached and all(ratio[variant] >= limit for variant, limit in LIMITS.items())
        figures = f"{best['stock']:8.0f} {best['asyncio.run']:12.0f}"
        print(f"{name:8} {figures} {ratio['bare']:6.2f} {ratio['recorded']:9.2f} {ratio['search']:7.2f}", flush=True)
    return reached


def resident_mb() -> float:
    """Resident set of this process in MB (Linux)."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6


def memory(names: list[str], executions: int) -> bool:
    """Print the resident set in `_SAMPLES` samples over recorded executions; whether it stayed flat."""
    each = max(executions // _SAMPLES // len(names), 1)
    executors = [_executor(name, PROGRAMS[name], True) for name in names]
    samples = []
    with _watching():
        for _ in range(_SAMPLES):
            for executor in executors:
                model = executor.model("stock")
                for _ in range(each):
                    executor.execute(StockOrder(), model, 0)
            samples.append(resident_mb())
    print(f"resident MB over {each * len(names) * _SAMPLES} executions: {' '.join(f'{s:.1f}' for s in samples)}")
    return samples[-1] <= samples[1] * 1.1


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Controlled executions per second, against a reused stock loop.")
    parser.add_argument("--rounds", type=int, default=60, help="slices per variant (60)")
    parser.add_argument("--slice", type=float, default=0.02, help="CPU seconds of one slice (0.02)")
    parser.add_argument("--limits", action="store_true", help=f"end with 1 when a ratio is below {LIMITS}")
    parser.add_argument("--memory", action="store_true", help="resident set over many recorded executions instead")
    parser.add_argument("--executions", type=int, default=100_000, help="executions of --memory (100000)")
    parser.add_argument("program", nargs="*", choices=[*PROGRAMS, []], default=[], help="which programs (all)")
    options = parser.parse_args(arguments)
    names = options.program or list(PROGRAMS)
    if options.memory:
        return 0 if memory(names, options.executions) else 1
    reached = compare(names, options.rounds, options.slice)
    return 0 if reached or not options.limits else 1


if __name__ == "__main__":
    sys.exit(main())
