"""The same cancellation on the stock loop, 20 of 20; none where that loop cannot show the failure."""

from __future__ import annotations

import json

import pytest

from chaossloth.force import StockPlan, force
from chaossloth.loop.cancelling import LATER
from chaossloth.session import stock_plan
from tests.cancellation.programs import PROGRAMS
from tests.cancellation.support import failure_of, swept
from tests.stock.programs import Scenario, is_subject

SHOWN = ("permit lost at hand-over", "item lost between get and process", "waiter stranded", "replies out of step")


def on_stock(source: str, plan: StockPlan, times: int = 20) -> tuple[int, str]:
    program = Scenario(source.replace("async def main", "async def scenario"))
    forced = force(program, plan, times, is_subject=is_subject)
    return forced.failures, forced.how


@pytest.mark.parametrize("name", [*SHOWN, "cancelled again in its clean-up"])
def test_fails_on_the_stock_loop(name: str) -> None:
    subject = PROGRAMS[name]
    _, result = swept(subject.buggy, subject.victims, double=subject.double)
    failure = failure_of(result)
    plan = stock_plan(failure)
    assert plan is not None
    failures, how = on_stock(subject.buggy, plan)
    assert failures == 20
    assert (
        f"{len(failure.schedule.cancels)} task{'s' if subject.double else ''} cancelled at the same suspension" in how
    )
    assert StockPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_both_ways_of_arriving_are_among_them() -> None:
    kinds = {
        cancel.kind
        for name in SHOWN
        for cancel in failure_of(swept(PROGRAMS[name].buggy, PROGRAMS[name].victims)[1]).schedule.cancels
    }
    assert kinds & set(LATER)
    assert kinds - set(LATER)


@pytest.mark.parametrize("name", SHOWN)
def test_the_fixed_form_passes_under_the_same_plan(name: str) -> None:
    subject = PROGRAMS[name]
    _, result = swept(subject.buggy, subject.victims)
    plan = stock_plan(failure_of(result))
    assert plan is not None
    assert on_stock(subject.correct, plan, 5)[0] == 0


def test_before_the_first_step() -> None:
    source = """
import asyncio
async def main():
    began = []
    async def work():
        began.append(1)
    task = asyncio.create_task(work())
    await asyncio.wait([task])
    assert began
"""
    _, result = swept(source)
    failure = failure_of(result)
    assert failure.schedule.cancels[0].step == 0
    plan = stock_plan(failure)
    assert plan is not None
    assert on_stock(source, plan, 5)[0] == 5


def test_a_main_task_that_awaits_the_victim_has_not_failed() -> None:
    source = """
import asyncio
async def main():
    async def work():
        await asyncio.sleep(0.001)
    await asyncio.gather(work())
"""
    assert on_stock(source, StockPlan(cancels=(("0.1", 1, "x"),)), 3)[0] == 0


@pytest.mark.parametrize("name", ["timeout after the item was taken", "lock kept", "shared work cancelled"])
def test_what_the_stock_loop_cannot_show(name: str) -> None:
    subject = PROGRAMS[name]
    _, result = swept(subject.buggy, subject.victims)
    assert stock_plan(failure_of(result)) is None
