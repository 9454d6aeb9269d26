"""The programs that every tool is measured on: a `setup`, some `workers`, an `invariant`, and nothing of any tool.

They use `asyncio.sleep(0)` and `asyncio.Lock` only, so that all tools see the same points of suspension, and their
behaviour depends on nothing but the order of the workers' steps.

  a2     lost update; the second worker starts four yields late, so that FIFO order passes
  c      four windows of one yield each, every one of which opens only inside the one before, among four workers that
         only count, each under its own key of one shared dict; about one random schedule in a thousand fails
  g      one worker has to finish sixteen steps before another takes its second; six workers that only count
  d      two locks taken in opposite orders; FIFO order does not deadlock
  e2-e4  correct: an increment under a lock, by two to four workers
  f2-f5  correct: two to five workers that share nothing, three yields each

`scenario_*` runs a program as one coroutine, for tools that explore a coroutine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["BUGGY", "CORRECT", "PROGRAMS", "Program", "execute"]

Worker = Callable[[Any], Awaitable[None]]


@dataclass(frozen=True)
class Program:
    """One execution: `state = setup()`, all workers with it concurrently, then `invariant(state)` must be true."""

    name: str
    setup: Callable[[], Any]
    workers: Sequence[Worker]
    invariant: Callable[[Any], bool]


async def execute(program: Program) -> None:
    """One execution as a coroutine. Raises AssertionError when the invariant is false."""
    state = program.setup()
    await asyncio.gather(*[worker(state) for worker in program.workers])
    assert program.invariant(state), program.name


async def pause(times: int) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


# --- a2 ---------------------------------------------------------------------------------------------------------


class Total:
    def __init__(self) -> None:
        self.value = 0


async def increment(total: Total) -> None:
    seen = total.value
    await asyncio.sleep(0)
    total.value = seen + 1


async def increment_late(total: Total) -> None:
    await pause(4)
    await increment(total)


A2 = Program("a2", Total, (increment, increment_late), lambda total: total.value == 2)


# --- c and g: workers that only count, under keys of their own -----------------------------------------------------


def counting(key: int) -> Worker:
    async def count(state: Any) -> None:
        for _ in range(4):
            state.counts[key] += 1
            await asyncio.sleep(0)

    return count


class Windows:
    def __init__(self) -> None:
        self.open = [False] * 4
        self.met = False
        self.counts = dict.fromkeys(range(4), 0)


def window(index: int, yields: int) -> Worker:
    """Opens its window for one yield if the window before it is open; the last one notes that it was reached."""

    async def visit(state: Windows) -> None:
        await pause(yields)
        if index > 0 and not state.open[index - 1]:
            return
        if index == 3:
            state.met = True
            return
        state.open[index] = True
        await asyncio.sleep(0)
        state.open[index] = False

    return visit


C = Program(
    "c",
    Windows,
    (*(window(index, yields) for index, yields in enumerate((1, 4, 7, 8))), *(counting(key) for key in range(4))),
    lambda state: not state.met,
)


class Race:
    def __init__(self) -> None:
        self.finished = False
        self.overtaken = False
        self.counts = dict.fromkeys(range(6), 0)


async def two_steps(state: Race) -> None:
    await asyncio.sleep(0)
    state.overtaken = state.finished


async def sixteen_steps(state: Race) -> None:
    await pause(15)
    state.finished = True


G = Program(
    "g", Race, (two_steps, sixteen_steps, *(counting(key) for key in range(6))), lambda state: not state.overtaken
)


# --- d ----------------------------------------------------------------------------------------------------------


class Accounts:
    def __init__(self) -> None:
        self.left, self.right = asyncio.Lock(), asyncio.Lock()
        self.transfers = 0


async def left_to_right(accounts: Accounts) -> None:
    async with accounts.left:
        await asyncio.sleep(0)
        async with accounts.right:
            accounts.transfers += 1


async def right_to_left(accounts: Accounts) -> None:
    await pause(4)
    async with accounts.right:
        await asyncio.sleep(0)
        async with accounts.left:
            accounts.transfers += 1


D = Program("d", Accounts, (left_to_right, right_to_left), lambda accounts: accounts.transfers == 2)


# --- e and f: correct ---------------------------------------------------------------------------------------------


class LockedTotal:
    def __init__(self) -> None:
        self.value = 0
        self.lock = asyncio.Lock()


async def increment_locked(total: LockedTotal) -> None:
    async with total.lock:
        seen = total.value
        await asyncio.sleep(0)
        total.value = seen + 1


def locked(number: int) -> Program:
    return Program(f"e{number}", LockedTotal, (increment_locked,) * number, lambda total: total.value == number)


def own_total(index: int) -> Worker:
    async def add(totals: list[Total]) -> None:
        total = totals[index]
        for _ in range(3):
            seen = total.value
            await asyncio.sleep(0)
            total.value = seen + 1

    return add


def independent(number: int) -> Program:
    return Program(
        f"f{number}",
        lambda: [Total() for _ in range(number)],
        tuple(own_total(index) for index in range(number)),
        lambda totals: all(total.value == 3 for total in totals),
    )


BUGGY = ("a2", "c", "g", "d")
CORRECT = ("e2", "e3", "e4", "f2", "f3", "f5")
_ALL = (A2, C, G, D, *map(locked, (2, 3, 4)), *map(independent, (2, 3, 5)))
PROGRAMS = {program.name: program for program in _ALL}


async def scenario_a2() -> None:
    await execute(PROGRAMS["a2"])


async def scenario_c() -> None:
    await execute(PROGRAMS["c"])


async def scenario_g() -> None:
    await execute(PROGRAMS["g"])


async def scenario_d() -> None:
    await execute(PROGRAMS["d"])


async def scenario_e2() -> None:
    await execute(PROGRAMS["e2"])


async def scenario_e3() -> None:
    await execute(PROGRAMS["e3"])


async def scenario_e4() -> None:
    await execute(PROGRAMS["e4"])


async def scenario_f2() -> None:
    await execute(PROGRAMS["f2"])


async def scenario_f3() -> None:
    await execute(PROGRAMS["f3"])


async def scenario_f5() -> None:
    await execute(PROGRAMS["f5"])
