"""Tokens are the same text, and replay the same failure, on every Python that the tests run on.

The tokens below were printed on 3.11; another process, and another version, has to find the same ones and agree on
identities, options and order. Where a change moves them, users' tokens stop replaying: the changelog has to say so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from chaossloth.evidence import Label
from chaossloth.explore.schedule import parse_token
from chaossloth.subject.primitives import watch
from tests.engine.support import executor_of, explored


@pytest.fixture(autouse=True)
def watched() -> Iterator[None]:
    watch.install()
    yield
    watch.uninstall()


async def timers() -> None:
    """The check reads before the second task's timer; late, it reads in between."""
    state = {"balance": 10}

    async def withdraw(amount: int, wait: float) -> None:
        await asyncio.sleep(wait)
        if state["balance"] >= amount:
            await asyncio.sleep(0.002)
            state["balance"] -= amount

    await asyncio.gather(withdraw(6, 0.001), withdraw(7, 0.004))
    assert state["balance"] >= 0, state


async def yields() -> None:
    value = 0

    async def add(wait: int) -> None:
        nonlocal value
        for _ in range(wait):
            await asyncio.sleep(0)
        seen = value
        await asyncio.sleep(0)
        value = seen + 1

    await asyncio.gather(add(0), add(3))
    assert value == 2, value


async def group() -> None:
    lock, done = asyncio.Lock(), list[str]()

    async def work(name: str) -> None:
        async with lock:
            await asyncio.sleep(0)
        done.append(name)

    async with asyncio.TaskGroup() as tasks:
        for name in "abc":
            tasks.create_task(work(name))
    assert done[-1] == "c", done


TOKENS: list[tuple[Callable[[], Any], Label, str]] = [
    (timers, "stock", "s0-0.1:dv7"),
    (timers, "latency", "l0-1.1:dv7"),
    (timers, "reorder", "r0-5.1-6.1:j1c"),
    (yields, "latency", "l0-0.1-6.1:1uq"),
    (yields, "reorder", "r0-2.1-3.1-4.1:1e3"),
    (group, "reorder", "r0-1.1:59k"),
]


@pytest.mark.parametrize(("subject", "label", "token"), TOKENS, ids=[f"{s.__name__}-{label}" for s, label, _ in TOKENS])
def test_a_token_is_found_and_replays_on_every_python(subject: Callable[[], Any], label: Label, token: str) -> None:
    failure = explored(subject, label, stop_at_failure=True).failure
    assert failure is not None
    assert failure.schedule.token == token
    again = executor_of(subject).replay(parse_token(token), strict=True)
    assert again.failed
    assert again.outcome.key() == failure.outcome.key()
    assert again.schedule.check == failure.schedule.check
