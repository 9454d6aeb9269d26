"""Forced schedules on the stock loop: both orders on demand, 20 of 20; what a plan may hold."""

from __future__ import annotations

import json
from collections.abc import Iterable

from chaossloth.force import StockPlan, force, force_outcomes
from tests.stock.programs import LOST_UPDATE, Scenario, is_subject

A, B = "0.1", "0.2"


def one_by_one(*entries: tuple[str, int]) -> tuple[tuple[tuple[str, int], ...], ...]:
    return tuple((entry,) for entry in entries)


def failures(source: str, plan: StockPlan, times: int = 20, kind: str = "async") -> int:
    return force(Scenario(source, kind), plan, times, is_subject=is_subject).failures


OVERLAP = one_by_one((A, 1), (B, 1), (A, 2), (B, 2))
ONE_AFTER_THE_OTHER = one_by_one((B, 1), (B, 2), (A, 1), (A, 2))


def test_both_orders_of_a_lost_update_on_demand() -> None:
    assert failures(LOST_UPDATE, StockPlan(3, OVERLAP)) == 20
    assert failures(LOST_UPDATE, StockPlan(3, ONE_AFTER_THE_OTHER)) == 0


def test_the_same_through_a_sync_test() -> None:
    source = LOST_UPDATE + "\n    def test(): asyncio.run(scenario())\n"
    assert failures(source, StockPlan(3, OVERLAP), 5, "sync") == 5
    assert failures(source, StockPlan(3, ONE_AFTER_THE_OTHER), 5, "sync") == 0


def test_the_plan_survives_json_and_the_sentence_says_what_was_done() -> None:
    plan = StockPlan(3, OVERLAP, frozenset({(A, 2)}), ((B, 1, 50.0),))
    assert StockPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    forced = force(Scenario(LOST_UPDATE), StockPlan(3, OVERLAP), 1, is_subject=is_subject)
    assert forced.how == "4 timers delivered in 4 groups, 4 ms apart; draws of seed 3"


ORDER = """
    import asyncio
    log = []
    async def note(name, seconds):
        await asyncio.sleep(seconds)
        log.append(name)
    async def scenario():
        log.clear()
        await asyncio.gather(note("a", {a}), note("b", {b}), note("c", {c}))
        raise AssertionError("".join(log))
"""


def orders(groups: Iterable[Iterable[tuple[str, int]]], a: float, b: float, c: float) -> tuple[set[str], str]:
    plan = StockPlan(None, tuple(tuple(group) for group in groups))
    program = Scenario(ORDER.format(a=a, b=b, c=c))
    outcomes, how = force_outcomes(program, plan, 5, is_subject=is_subject)
    return {outcome.message for outcome in outcomes}, how


def test_timers_of_one_group_come_in_the_plans_order() -> None:
    assert orders([[("0.3", 1), (A, 1), (B, 1)]], 0.001, 0.001, 0.001)[0] == {"cab"}


def test_no_timer_fires_before_its_own_deadline() -> None:
    texts, how = orders(one_by_one((A, 1), (B, 1), ("0.3", 1)), 0.03, 0.001, 0.002)
    assert texts == {"abc"} and "shortened" not in how


def test_sleeps_that_are_too_long_to_wait_for_are_shortened_and_that_is_said() -> None:
    texts, how = orders(one_by_one((A, 1), (B, 1), ("0.3", 1)), 3600, 1, 2)
    assert texts == {"abc"} and "shortened" in how


def test_timers_outside_of_the_plan_come_last_or_at_their_own_time() -> None:
    assert orders(one_by_one(("0.3", 1)), 0.001, 0.03, 0.002)[0] == {"cab"}


YIELDS = """
    import asyncio
    class Store:
        value = None
        async def get(self):
            if self.value is None:
                made = object()
                await asyncio.sleep(0)
                self.value = made
            return self.value
    async def scenario():
        store = Store()
        async def use():
            first = await store.get()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert store.value is first
        async def late():
            for _ in range(2):
                await asyncio.sleep(0)
            await store.get()
        await asyncio.gather(use(), late())
"""


def test_an_extended_yield_is_a_delivery() -> None:
    assert failures(YIELDS, StockPlan(None), 5) == 0
    # The first user's yield takes so long that the second makes its own value, which then is overwritten: no stale one.
    assert failures(YIELDS, StockPlan(None, ((("0.1", -1),),), {(A, 1)}), 5) == 0
    # The second user's yield ends last, behind the first one's check.
    late = StockPlan(None, one_by_one((A, -1), (B, -3), (A, -2)), {(A, 1), (B, 3), (A, 2)})
    assert failures(YIELDS, late, 20) == 20


STALL = """
    import asyncio
    async def scenario():
        log = []
        async def steps():
            for number in range(4):
                log.append(number)
                await asyncio.sleep(0)
        async def timer():
            await asyncio.sleep(0.001)
            log.append("t")
        await asyncio.gather(steps(), timer())
        raise AssertionError(repr(log))
"""


def test_a_stall_delivers_a_timer_while_the_loop_is_busy() -> None:
    def logs(plan: StockPlan) -> set[str]:
        outcomes, _ = force_outcomes(Scenario(STALL), plan, 5, is_subject=is_subject)
        return {outcome.message for outcome in outcomes}

    timer = one_by_one((B, 1))
    assert logs(StockPlan(None, timer)) == {"[0, 1, 2, 3, 't']"}
    # Due at the boundary after that step; its callback wakes the task in the round after.
    assert logs(StockPlan(None, timer, stalls=((B, 1, 0.0),))) == {"[0, 1, 2, 't', 3]"}
    assert logs(StockPlan(None, timer, stalls=((A, 2, 2000.0),))) == {"[0, 1, 2, 3, 't']"}


def test_a_deadlock_is_forced() -> None:
    source = """
        import asyncio
        async def scenario():
            x, y = asyncio.Lock(), asyncio.Lock()
            async def move(first, second, pause):
                await asyncio.sleep(pause)
                async with first:
                    await asyncio.sleep(0.001)
                    async with second: pass
            await asyncio.gather(move(x, y, 0.001), move(y, x, 0.002))
    """
    crossed = StockPlan(None, one_by_one((A, 1), (B, 1), (A, 2), (B, 2)))
    outcomes, _ = force_outcomes(Scenario(source), crossed, is_subject=is_subject)
    assert [outcome.failure for outcome in outcomes] == ["deadlock"] * 20
    assert failures(source, StockPlan(None, one_by_one((A, 1), (A, 2), (B, 1), (B, 2)))) == 0


def test_timers_of_callbacks_have_the_callbacks_identity() -> None:
    source = """
        import asyncio
        async def scenario():
            loop, log, done = asyncio.get_running_loop(), [], asyncio.Event()
            def first(): loop.call_later(0.001, log.append, "inner")
            loop.call_soon(first)
            loop.call_later(0.001, log.append, "outer")
            loop.call_later(0.03, done.set)
            await done.wait()
            raise AssertionError(repr(log))
    """

    def logs(*entries: tuple[str, int]) -> set[str]:
        outcomes, _ = force_outcomes(Scenario(source), StockPlan(None, one_by_one(*entries)), 3, is_subject=is_subject)
        return {outcome.message for outcome in outcomes}

    assert logs(("0c1", 1), ("0", 1), ("0", 2)) == {"['inner', 'outer']"}
    assert logs(("0", 1), ("0c1", 1), ("0", 2)) == {"['outer', 'inner']"}


def test_a_planned_timeout_that_is_cancelled_does_no_harm() -> None:
    source = """
        import asyncio
        async def scenario():
            async with asyncio.timeout(0.002): await asyncio.sleep(0.001)
            await asyncio.sleep(0.001)
            assert asyncio.current_task().cancelling() == 0
    """
    assert failures(source, StockPlan(None, one_by_one(("0", 2), ("0", 1), ("0", 3))), 5) == 0


def test_draws_are_those_of_the_seed_and_the_clock_stays_real() -> None:
    source = """
        import asyncio, random, time
        async def scenario():
            began = time.monotonic()
            await asyncio.sleep(0.002)
            assert time.monotonic() - began > 0.001
            raise AssertionError(repr(random.random()))
    """

    def drawn(seed: int) -> set[str]:
        outcomes, _ = force_outcomes(Scenario(source), StockPlan(seed), 3, is_subject=is_subject)
        return {outcome.message for outcome in outcomes}

    assert len(drawn(1)) == 1 and drawn(1) != drawn(2)
