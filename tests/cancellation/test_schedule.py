"""The token carries the cancellations; tokens without any are what they were."""

from __future__ import annotations

import pytest

from chaossloth.errors import UsageError
from chaossloth.explore.schedule import Schedule, parse_token
from chaossloth.explore.strategy import Deviate
from chaossloth.loop.cancelling import Cancel
from tests.cancellation.support import failure_of, swept, watched

TWO_WORKERS = """
import asyncio
async def main():
    async def work():
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
    tasks = [asyncio.create_task(work(), name=name) for name in ("a", "b")]
    await asyncio.wait(tasks)
    assert not tasks[0].cancelled()
"""


@pytest.mark.parametrize(
    ("token", "schedule"),
    [
        ("s0:3kf", Schedule("stock", 0, (), "3kf")),
        ("r2-5.1-b.2:0x9", Schedule("reorder", 2, ((5, 1), (11, 2)), "0x9")),
        ("s0+0.2x3:7c1", Schedule("stock", 0, (), "7c1", (Cancel("0.2", 3, "x"),))),
        (
            "l1-4.1+0.1c2.1za+0.1c2.1xb:7",
            Schedule("latency", 1, ((4, 1),), "7", (Cancel("0.1c2.1", 10, "z"), Cancel("0.1c2.1", 11, "x"))),
        ),
        ("s0+0.1t1+0.3u0:1", Schedule("stock", 0, (), "1", (Cancel("0.1", 1, "t"), Cancel("0.3", 0, "u")))),
    ],
)
def test_round_trip(token: str, schedule: Schedule) -> None:
    assert parse_token(token) == schedule
    assert schedule.token == token


@pytest.mark.parametrize("token", ["s0+0.2q3:7c1", "s0+0.2x:7c1", "s0+x3:7c1", "s0+0.2x3", "s0+0.2x3-1.1:7"])
def test_what_is_no_token(token: str) -> None:
    with pytest.raises(UsageError):
        parse_token(token)


def test_a_replay_needs_nothing_but_the_token() -> None:
    executor, result = swept(TWO_WORKERS, "a")
    failure = failure_of(result)
    fresh, _ = swept(TWO_WORKERS, "nobody", labels=())
    fresh.victims = None
    with watched(fresh):
        again = fresh.replay(parse_token(failure.schedule.token), strict=True)
    assert again.failed
    assert again.schedule.token == failure.schedule.token
    assert executor is not fresh


def test_without_the_cancellation_the_path_is_another() -> None:
    executor, result = swept(TWO_WORKERS, "a")
    failure = failure_of(result)
    with watched(executor):
        plain = executor.execute(Deviate(dict(failure.schedule.deviations)), executor.model("stock"), 0)
    assert not plain.failed
    assert plain.schedule.check != failure.schedule.check


def test_a_cancellation_is_withdrawn_when_its_task_goes_on() -> None:
    executor, _ = swept(TWO_WORKERS, "nobody", labels=())
    with watched(executor), executor.like((Cancel("0.1", 1, "z"),)):
        run = executor.execute(Deviate({}), executor.model("stock"), 0)
    assert run.run.cancels is not None
    assert run.run.cancels.landed == []
    assert not run.failed


def test_the_end_of_the_round_lies_before_what_the_round_scheduled() -> None:
    executor, _ = swept(TWO_WORKERS, "nobody", labels=())
    with watched(executor), executor.like((Cancel("0.1", 1, "x"),)):
        run = executor.execute(Deviate({}), executor.model("stock"), 0).run
    steps = [key for key, _ in run.order]
    assert steps[:4] == ["0", "0.1", "0.2", "0.1c0"]
    assert run.cancels is not None
    assert [landing.state for landing in run.cancels.landed] == ["yielding"]


def test_before_the_first_step() -> None:
    executor, _ = swept(TWO_WORKERS, "nobody", labels=())
    with watched(executor), executor.like((Cancel("0.2", 0, "x"),)):
        run = executor.execute(Deviate({}), executor.model("stock"), 0).run
    assert [key for key, _ in run.order][:2] == ["0", "0.2c0"]
    assert run.cancels is not None
    assert [landing.state for landing in run.cancels.landed] == ["new"]
