"""What asyncio does in the order of addresses happens in the order of creation, while a subject is under control."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from chaossloth.subject import creation_order

TASKS = list(range(12))  # of 12! orders of addresses, the one of creation does not come up by accident ten times
REPEATS = 10


@pytest.fixture(autouse=True)
def in_order() -> Iterator[None]:
    creation_order.install()
    yield
    creation_order.uninstall()


async def started_by_as_completed() -> list[int]:
    started: list[int] = []

    async def child(number: int) -> int:
        started.append(number)
        return number

    results = [await each for each in asyncio.as_completed([child(number) for number in TASKS])]
    assert sorted(results) == TASKS
    return started


async def cancelled_by_task_group() -> list[int]:
    cancelled: list[int] = []

    async def child(number: int) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(number)
            raise

    async def fail() -> None:
        await asyncio.sleep(0)
        raise OSError

    with pytest.raises(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            for number in TASKS:
                group.create_task(child(number))
            group.create_task(fail())
    return cancelled


@pytest.mark.parametrize("order", [started_by_as_completed, cancelled_by_task_group])
def test_order_is_that_of_creation(order: object) -> None:
    kept = []
    for _ in range(REPEATS):
        kept.append([object() for _ in range(57)])  # so that addresses differ
        assert asyncio.run(order()) == TASKS  # type: ignore[operator]


def test_a_task_given_twice_is_waited_for_once() -> None:
    async def main() -> list[int]:
        async def child() -> int:
            return 1

        task = asyncio.create_task(child())
        return [await each for each in asyncio.as_completed([task, task])]

    assert asyncio.run(main()) == [1]


@pytest.mark.parametrize("wrong", [5, None])
def test_what_as_completed_refuses_is_refused(wrong: object) -> None:
    async def main() -> None:
        for each in asyncio.as_completed(wrong):  # type: ignore[call-overload]
            await each

    with pytest.raises(TypeError, match="iterable"):
        asyncio.run(main())


def test_a_single_future_is_refused() -> None:
    async def main() -> None:
        future = asyncio.get_running_loop().create_future()
        for each in asyncio.as_completed(future):  # type: ignore[arg-type]
            await each

    with pytest.raises(TypeError, match="Future"):
        asyncio.run(main())


def test_the_originals_come_back() -> None:
    creation_order.uninstall()
    assert asyncio.as_completed.__module__ == "asyncio.tasks"
    assert not hasattr(asyncio.as_completed, "__wrapped__")
    assert not hasattr(asyncio.TaskGroup.__init__, "__wrapped__")
