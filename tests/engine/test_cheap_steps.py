"""What makes an execution cheap must not show: identities kept over executions, schedules made late, counted steps."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
from typing import Any

from chaossloth.explore.strategy import StockOrder
from chaossloth.loop.defaults import literal_defaults
from chaossloth.loop.identity import Identity
from chaossloth.subject import channel
from chaossloth.subject.channel import BY_COUNT, StepGuard
from chaossloth.subject.identity import Names
from tests.engine.support import executor_of, late_lost_update


def test_identities_are_found_by_position_and_by_name() -> None:
    root = Identity()
    first, second = root.task(1), root.task(2)
    inner = second.task(1)
    assert [first.key, second.key, inner.key, second.callback(2).key] == ["0", "1", "1.1", "1c2"]
    assert root.of("1.1") is inner
    assert second.callback(2) is root.of("1c2")
    numbers = [root.of(key).number for key in ("", "0", "1", "1.1", "1c1", "1c2")]
    assert sorted(numbers) == [1, 2, 3, 4, 5, 6]


def test_numbers_are_the_same_in_every_execution() -> None:
    executor = executor_of(late_lost_update)
    made = []
    for _ in range(3):
        execution = executor.execute(StockOrder(), executor.model("stock"), 0)
        made.append([(proc.key, proc.number, proc.name) for proc in execution.run.procs])
    assert made[0] == made[1] == made[2]
    assert len({number for _, number, _ in made[0]}) == len(made[0])


def test_the_loops_of_one_synchronous_subject_share_no_number() -> None:
    def program() -> None:
        async def main() -> None:
            await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))

        asyncio.run(main())
        asyncio.run(main())

    executor = executor_of(program, sync=True)
    run = executor.execute(StockOrder(), executor.model("stock"), 0).run
    by_number: dict[int, set[str]] = {}
    for proc in run.procs:
        by_number.setdefault(proc.number, set()).add(proc.key)
    assert all(len(keys) == 1 for keys in by_number.values()), by_number


def test_a_schedule_that_is_asked_for_late_is_the_same() -> None:
    executor = executor_of(late_lost_update)
    early = executor.execute(StockOrder(), executor.model("stock"), 3)
    token = early.schedule.token
    late = executor.execute(StockOrder(), executor.model("stock"), 3)
    executor.execute(StockOrder(), executor.model("stock"), 4)
    assert late.schedule.token == token
    assert late.seed == late.schedule.seed == 3


def test_literal_defaults_are_made_anew_for_each_object() -> None:
    @literal_defaults
    @dataclasses.dataclass(slots=True)
    class Data:
        name: str
        count: int = 2
        items: list[int] = dataclasses.field(default_factory=list)
        known: dict[str, int] = dataclasses.field(default_factory=dict)
        seen: set[int] = dataclasses.field(default_factory=set)

    one, two = Data("a"), Data("b", count=5)
    one.items.append(1)
    assert (one.count, two.count, two.items, two.known, two.seen) == (2, 5, [], {}, set())


class _Counting:
    count = 0


def test_a_step_is_seen_to_stand_still_by_its_count(monkeypatch: Any) -> None:
    times = iter([10.0, 20.0, 30.0])
    monkeypatch.setattr(channel, "monotonic", lambda: next(times))
    guard, loop = StepGuard(), _Counting()
    guard.steps_of(loop)
    assert guard.running_since() is None
    guard.step_started = BY_COUNT
    loop.count = 1
    assert guard.running_since() == 10.0
    assert guard.running_since() == 10.0  # the same step still
    loop.count = 2
    assert guard.running_since() == 20.0
    guard.steps_of(None)
    assert guard.running_since() is None


class _Thing:
    pass


def test_the_name_of_a_dead_object_is_not_inherited() -> None:
    names = Names()
    names.begin_step(1, 1)
    thing = _Thing()
    number, address = names.created(thing), id(thing)
    assert names.object(number) is thing
    del thing
    gc.collect()
    assert address not in names.ids
    assert names.object(number) is None
    held: list[int] = []
    assert names.object(names.created(held)) is held
