"""Subjects for natural and forced runs, as small inline sources."""

from __future__ import annotations

import textwrap
import types
from collections.abc import Coroutine
from typing import Any

from chaossloth.evidence import Outcome
from chaossloth.loop.virtual import install

install()

FILE = "subject_under_test.py"


def is_subject(filename: str) -> bool:
    return filename == FILE


class Scenario:
    """A program with `async def scenario()` ("async") or `def test()` ("sync") from source text."""

    def __init__(self, source: str, kind: str = "async") -> None:
        self.kind = kind
        self.module = types.ModuleType("subject_under_test")
        exec(compile(textwrap.dedent(source), FILE, "exec"), self.module.__dict__)

    def make(self) -> Coroutine[Any, Any, Any]:
        return self.module.scenario()  # type: ignore[no-any-return]

    def call(self) -> Any:
        return self.module.test()

    def judge(self, result: Any, error: BaseException | None) -> Outcome:
        self.result, self.error = result, error
        if error is None:
            return Outcome(True)
        failure = "assertion" if isinstance(error, AssertionError) else "exception"
        return Outcome(False, failure, type(error).__name__, str(error))  # type: ignore[arg-type]


LOST_UPDATE = """
    import asyncio
    import random

    async def latency(low, high):
        await asyncio.sleep(random.uniform(low, high))

    class Purse:
        def __init__(self):
            self.coins = 0

        async def put(self, amount):
            held = self.coins
            await latency(0, 0.001)
            self.coins = held + amount

    async def scenario():
        purse = Purse()

        async def giver(amount):
            await latency(0, 0.004)
            await purse.put(amount)

        await asyncio.gather(giver(10), giver(5))
        assert purse.coins == 15, purse.coins
"""


def nothing(*_: Any) -> None:
    """For parameters that a test does not use."""
