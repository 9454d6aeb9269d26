"""The controlled loop does what a stock loop does: same results, same exceptions, in stock order."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from chaossloth.explore.strategy import Deviate, StockOrder
from tests.engine.support import executor_of, explored

PROGRAMS: dict[str, Callable[[], Any]] = {}


def program(function: Callable[[], Any]) -> Callable[[], Any]:
    PROGRAMS[function.__name__] = function
    return function


@program
async def timers_fire_in_deadline_order() -> list[str]:
    log: list[str] = []

    async def nap(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        log.append(name)

    await asyncio.gather(nap("c", 0.003), nap("a", 0.001), nap("b", 0.002))
    return log


@program
async def task_group_cancels_siblings() -> list[str]:
    log: list[str] = []

    async def fails() -> None:
        await asyncio.sleep(0.001)
        raise ValueError("first")

    async def waits() -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            log.append("cancelled")
            raise

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())
            group.create_task(waits())
    except* ValueError as errors:
        log.append(str(errors.exceptions[0]))
    return log


@program
async def wait_for_and_timeout() -> list[str]:
    log: list[str] = []
    try:
        await asyncio.wait_for(asyncio.sleep(5), 0.001)
    except TimeoutError:
        log.append("wait_for")
    try:
        async with asyncio.timeout(0.001):
            await asyncio.Event().wait()
    except TimeoutError:
        log.append("timeout")
    log.append(await asyncio.wait_for(asyncio.sleep(0, "value"), 1))
    return log


@program
async def primitives() -> list[Any]:
    log: list[Any] = []
    lock, event, semaphore = asyncio.Lock(), asyncio.Event(), asyncio.Semaphore(2)
    condition, queue = asyncio.Condition(), asyncio.Queue[int](1)

    async def producer() -> None:
        for item in range(4):
            await queue.put(item)
        async with condition:
            condition.notify_all()
        event.set()

    async def consumer() -> None:
        for _ in range(4):
            log.append(await queue.get())
            queue.task_done()

    async def limited(name: str) -> None:
        async with semaphore, lock:
            log.append(name)
            await asyncio.sleep(0)

    async def waiter() -> None:
        async with condition:
            await condition.wait()
        await event.wait()
        log.append("woken")

    await asyncio.gather(waiter(), producer(), consumer(), *(limited(n) for n in "xyz"))
    await queue.join()
    return log


@program
async def async_generators_are_closed() -> list[str]:
    log: list[str] = []

    async def numbers() -> Any:
        try:
            for n in range(5):
                yield n
                await asyncio.sleep(0)
        finally:
            log.append("closed")

    async for n in numbers():
        if n == 2:
            break
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return log


@program
async def contexts_are_per_task() -> list[str]:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="outer")

    async def child(name: str) -> str:
        variable.set(name)
        await asyncio.sleep(0)
        return variable.get()

    return [*await asyncio.gather(child("a"), child("b")), variable.get()]


@program
async def threads() -> list[Any]:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="outer")
    variable.set("inner")
    loop = asyncio.get_running_loop()
    first = await asyncio.to_thread(variable.get)
    second = await loop.run_in_executor(None, sum, [1, 2, 3])
    with pytest.raises(ZeroDivisionError):
        await asyncio.to_thread(lambda: 1 / 0)
    return [first, second]


@program
async def shield_wait_and_as_completed() -> list[Any]:
    async def value(n: int) -> int:
        await asyncio.sleep(n / 1000)
        return n

    task = asyncio.create_task(value(200))  # far from the others: the stock loop's clock is real
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(task), 0.001)
    done, pending = await asyncio.wait([asyncio.create_task(value(1)), task], return_when=asyncio.FIRST_COMPLETED)
    order = [await each for each in asyncio.as_completed([value(2), value(1)])]
    return [len(done), len(pending), order, await task]


@program
async def call_soon_and_call_later() -> list[str]:
    log: list[str] = []
    loop = asyncio.get_running_loop()
    loop.call_later(0.002, log.append, "later")
    handle = loop.call_later(0.001, log.append, "never")
    loop.call_soon(log.append, "soon")
    handle.cancel()
    await asyncio.sleep(0.003)
    return [*log, str(handle.cancelled())]


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_result_as_a_stock_loop(name: str) -> None:
    function = PROGRAMS[name]
    executor = executor_of(function)
    execution = executor.execute(StockOrder(), executor.model("stock"), seed=0)
    assert execution.outcome.ok, execution.outcome
    assert executor.last_result == asyncio.run(function())


def test_a_synchronous_test_gets_the_loop_through_asyncio_run() -> None:
    seen: list[str] = []

    async def main() -> int:
        seen.append(type(asyncio.get_running_loop()).__name__)
        await asyncio.sleep(3600)
        return 7

    def test() -> None:
        assert asyncio.run(main()) == 7
        assert asyncio.run(main()) == 7

    executor = executor_of(test, sync=True)
    execution = executor.execute(StockOrder(), executor.model("stock"), seed=0)
    assert execution.outcome.ok, execution.outcome
    assert seen == ["ControlledLoop", "ControlledLoop"]


def test_time_is_virtual_and_starts_at_zero() -> None:
    async def main() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        start = loop.time()
        await asyncio.sleep(86_400)
        time.sleep(5)
        return start, loop.time()

    executor = executor_of(main)
    executor.execute(StockOrder(), executor.model("stock"), seed=0)
    assert executor.last_result == (0.0, 86_405.0)


def test_draws_belong_to_the_task_and_not_to_the_order() -> None:
    async def main() -> dict[str, float]:
        drawn: dict[str, float] = {}

        async def draw(name: str) -> None:
            await asyncio.sleep(0)
            drawn[name] = random.random()

        await asyncio.gather(draw("a"), draw("b"))
        return dict(sorted(drawn.items()))

    executor = executor_of(main)
    results = set()
    for deviations in ({}, {0: 1}, {1: 1}, {0: 1, 1: 1}):
        executor.execute(Deviate(deviations), executor.model("reorder"), seed=0)
        results.add(tuple(executor.last_result.items()))
    assert len(results) == 1
    executor.execute(StockOrder(), executor.model("stock"), seed=1)
    assert tuple(executor.last_result.items()) not in results


def test_deadlock_is_a_failure_at_once() -> None:
    async def main() -> None:
        lock = asyncio.Lock()
        async with lock:
            await lock.acquire()

    execution = explored(main, "stock", 1).failure
    assert execution is not None
    assert execution.outcome.failure == "deadlock"


def test_endless_yielding_is_a_livelock_in_stock_and_only_truncated_in_reorder() -> None:
    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    stock = executor_of(main, max_steps=300)
    execution = stock.execute(StockOrder(), stock.model("stock"), seed=0)
    assert execution.failed
    assert execution.outcome.failure == "livelock"
    execution = stock.execute(StockOrder(), stock.model("reorder"), seed=0)
    assert execution.truncated
    assert not execution.failed


def test_an_exception_nobody_retrieves_is_a_failure_at_the_end_of_the_run() -> None:
    kept: list[asyncio.Task[None]] = []

    async def dies() -> None:
        raise KeyError("lost")

    async def main() -> None:
        kept.append(asyncio.create_task(dies()))
        await asyncio.sleep(0.001)

    result = explored(main, "stock", 1)
    assert result.failure is not None
    assert "dies" in result.failure.outcome.message
    assert result.failure.outcome.exception == "KeyError"


def test_unfinished_tasks_are_cancelled_as_asyncio_run_does() -> None:
    ended: list[str] = []

    async def background() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("cancelled")

    async def main() -> None:
        task = asyncio.create_task(background())
        await asyncio.sleep(0)
        assert not task.done()

    assert explored(main, "stock", 1).failure is None
    assert ended == ["cancelled"] * 2  # followed for a while; and cancelled at once, to see whether it refuses


def test_a_thread_that_waits_for_the_loop_does_not_hang() -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()

        async def answer() -> int:
            await asyncio.sleep(0)
            return 42

        def body() -> int:
            return asyncio.run_coroutine_threadsafe(answer(), loop).result(5)

        return await asyncio.to_thread(body)

    executor = executor_of(main)
    execution = executor.execute(StockOrder(), executor.model("stock"), seed=0)
    assert execution.outcome.ok, execution.outcome
    assert executor.last_result == 42
    assert executor.real_io


def test_callbacks_of_one_future_keep_their_order_in_every_model() -> None:
    async def main() -> None:
        future = asyncio.get_running_loop().create_future()
        log: list[int] = []
        for number in range(3):
            future.add_done_callback(lambda _, number=number: log.append(number))
        future.set_result(None)
        await asyncio.gather(*(asyncio.sleep(0) for _ in range(2)))
        while len(log) < 3:
            await asyncio.sleep(0)
        assert log == [0, 1, 2], log

    result = explored(main, "reorder", 300)
    assert result.executions == 300
    assert result.failures == 0


def test_tasks_made_directly_have_identities_of_their_own_although_addresses_repeat() -> None:
    async def main() -> list[int]:
        loop, addresses = asyncio.get_running_loop(), []
        for _ in range(30):
            task = asyncio.Task(asyncio.sleep(0), loop=loop)
            addresses.append(id(task))
            await task
            del task
        return addresses

    executor = executor_of(main)
    execution = executor.execute(StockOrder(), executor.model("stock"), seed=0)
    started = [key for key, cause in execution.run.order if cause == "start"]
    assert len(started) == len(set(started)) == 31
    assert len(set(executor.last_result)) < 30
