"""What the sampling watchdog costs: the same natural run with and without it, checked against a ratio of 1.05.

    python benchmark/watchdog.py [--pairs 9] [--limit 1.05]

Two programs on the stock loop. `service`: 40 tasks that parse and write a small document between awaits, which is what
steps of real programs are like. `yields`: 40 tasks that do nothing but `await asyncio.sleep(0)`: the worst case, since
every step is empty. Three variants are run in turn, in an order that rotates, in one process:

    bare       the stock loop with nothing attached
    hooked     the hooks of natural runs (steps, waits, holders), no watchdog
    watched    the same with the watchdog: its thread samples, and each step tells it begin and end

Time is CPU time of the process, all threads, so that the watchdog's own samples count and other processes do not.
Printed are medians of the ratios within each round, and their range. The limit is for watched / hooked of `service`.

Exit code: 0 within the limit, 1 above it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import threading
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from time import process_time
from typing import Any

from chaossloth.evidence import Outcome
from chaossloth.loop.stock import StockRun
from chaossloth.starvation import Watchdog
from chaossloth.subject.primitives import watch

__all__ = ["main", "ratios", "service", "yields"]

TASKS, ROUNDS = 40, 100
DOCUMENT = {"id": 7, "tags": ["a", "b", "c"], "body": "x" * 400, "rows": list(range(60))}
VARIANTS = ("bare", "hooked", "watched")


class Natural:
    """A program as `StockRun` takes it."""

    kind = "async"

    def __init__(self, main: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.make = main

    def call(self) -> Any:
        raise NotImplementedError("an async program")

    def judge(self, result: Any, error: BaseException | None) -> Outcome:
        return Outcome(error is None)


async def service() -> None:
    """Tasks with about as much work between two awaits as a small request handler has."""

    async def handler() -> None:
        for _ in range(ROUNDS):
            json.loads(json.dumps(DOCUMENT))
            await asyncio.sleep(0)

    await asyncio.gather(*(handler() for _ in range(TASKS)))


async def yields() -> None:
    """Empty steps."""

    async def spin() -> None:
        for _ in range(ROUNDS * 5):
            await asyncio.sleep(0)

    await asyncio.gather(*(spin() for _ in range(TASKS)))


def seconds(main: Callable[[], Coroutine[Any, Any, Any]], variant: str) -> float:
    """CPU seconds of one run."""
    with ExitStack() as after:
        watchdog = None
        if variant == "watched":
            watchdog = Watchdog(is_subject=lambda file: file == __file__)
            watchdog.start(threading.get_ident())
            after.callback(watchdog.stop)
        if variant != "bare":
            watch.install()
            after.callback(watch.uninstall)
        run = StockRun(lambda file: file == __file__, hooked=variant != "bare", step_watch=watchdog)
        started = process_time()
        _, error = run.execute(Natural(main))
        took = process_time() - started
    if error is not None:
        raise error
    return took


def ratios(main: Callable[[], Coroutine[Any, Any, Any]], pairs: int) -> dict[str, list[float]]:
    """watched/hooked and watched/bare of each round."""
    found: dict[str, list[float]] = {"watched / hooked": [], "watched / bare": []}
    for number in range(-1, pairs):  # the first round warms up
        order = VARIANTS[number % 3 :] + VARIANTS[: number % 3]
        took = {variant: seconds(main, variant) for variant in order}
        if number >= 0:
            found["watched / hooked"].append(took["watched"] / took["hooked"])
            found["watched / bare"].append(took["watched"] / took["bare"])
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="What the sampling watchdog costs, checked against a limit.")
    parser.add_argument("--pairs", type=int, default=9, help="measured rounds, at least 5 (9)")
    parser.add_argument("--limit", type=float, default=1.05, help="for watched / hooked of `service` (1.05)")
    options = parser.parse_args(arguments)
    if options.pairs < 5:
        parser.error("--pairs: a median of fewer than 5 says little")
    judged = 0.0
    for program in (service, yields):
        for name, values in ratios(program, options.pairs).items():
            middle = statistics.median(values)
            print(
                f"{program.__name__:<8} {name:<17} median {middle:.3f}"
                f"  range {min(values):.3f} to {max(values):.3f}  rounds {len(values)}"
            )
            if (program, name) == (service, "watched / hooked"):
                judged = middle
    within = judged <= options.limit
    print(f"limit    watched / hooked  {options.limit:.3f} of service: {'within' if within else 'EXCEEDED'}")
    return 0 if within else 1


if __name__ == "__main__":
    raise SystemExit(main())
