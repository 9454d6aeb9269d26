"""Threads under control: they wake the loop, their exceptions arrive, what nobody waits for any more is dropped."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from chaossloth.explore.execute import Execution, Executor
from chaossloth.explore.strategy import Deviate, RandomWalk, StockOrder
from tests.engine.support import executor_of, explored


def stock(function: Any) -> tuple[Executor, Execution]:
    executor = executor_of(function)
    return executor, executor.execute(StockOrder(), executor.model("stock"), 0)


def test_the_subjects_own_thread_wakes_the_loop() -> None:
    async def main() -> str:
        loop, woken, seen = asyncio.get_running_loop(), asyncio.Event(), []

        def body() -> None:
            loop.call_soon_threadsafe(seen.append, "first")
            loop.call_soon_threadsafe(woken.set)

        thread = threading.Thread(target=body)
        thread.start()
        await woken.wait()
        thread.join()
        return "".join(seen)

    executor, execution = stock(main)
    assert execution.outcome.ok, execution.outcome
    assert executor.last_result == "first"


def test_a_thread_that_starts_late_is_waited_for_and_named_as_real() -> None:
    async def main() -> None:
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        waiting = threading.Event()

        def body() -> None:
            waiting.wait()
            loop.call_soon_threadsafe(woken.set)

        threading.Thread(target=body).start()
        loop.call_soon(waiting.set)
        await woken.wait()

    executor, execution = stock(main)
    assert execution.outcome.ok, execution.outcome
    result = explored(main, "reorder", 20)
    assert result.failures == 0


def test_a_thread_that_ends_without_a_word_leaves_a_deadlock() -> None:
    async def main() -> None:
        go = threading.Event()
        threading.Thread(target=go.wait).start()
        asyncio.get_running_loop().call_soon(go.set)
        await asyncio.Event().wait()

    _, execution = stock(main)
    assert execution.outcome.failure == "deadlock"


@pytest.mark.parametrize("label", ["stock", "reorder"])
def test_the_body_s_exception_reaches_who_awaits_it(label: str) -> None:
    async def main() -> list[str]:
        def body() -> None:
            raise LookupError("in the thread")

        caught = []
        for awaitable in (asyncio.to_thread(body), asyncio.get_running_loop().run_in_executor(None, next, iter(()))):
            try:
                await awaitable
            except Exception as error:
                caught.append(f"{type(error).__name__}: {error}")
        return caught

    executor = executor_of(main)
    execution = executor.execute(RandomWalk(1, 0.5), executor.model(label), 0)
    assert execution.outcome.ok, execution.outcome
    assert executor.last_result == ["LookupError: in the thread", "RuntimeError: coroutine raised StopIteration"]


def test_the_body_s_exception_that_nobody_awaits_is_a_failure() -> None:
    """Kept alive until the end: looked for there, not when the collector comes by."""
    kept: list[Any] = []

    async def main() -> None:
        def body() -> None:
            raise LookupError("in the thread")

        kept.append(asyncio.create_task(asyncio.to_thread(body)))
        await asyncio.sleep(0.001)

    _, execution = stock(main)
    assert execution.outcome.exception == "LookupError"


@pytest.mark.parametrize("fails", [False, True])
def test_the_result_for_a_cancelled_future_is_dropped(fails: bool) -> None:
    ran: list[str] = []

    async def main() -> tuple[bool, str]:
        def body() -> None:
            ran.append("body")
            if fails:
                raise LookupError("nobody listens")

        future = asyncio.get_running_loop().run_in_executor(None, body)
        future.cancel()
        await asyncio.sleep(0.001)
        task = asyncio.create_task(asyncio.to_thread(body))
        await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return future.cancelled(), "cancelled"
        except LookupError:  # another order: it was done before it was cancelled
            return future.cancelled(), "failed"
        return future.cancelled(), "finished"

    executor, execution = stock(main)
    assert execution.outcome.ok, execution.outcome
    assert executor.last_result[0]
    assert execution.run.problems == []
    assert ran
    result = explored(main, "reorder", 60)
    assert result.failures == 0


def test_when_a_body_is_done_is_a_choice_of_the_schedule() -> None:
    async def main() -> tuple[str, ...]:
        log: list[str] = []

        async def in_thread(name: str) -> None:
            await asyncio.to_thread(log.append, name)

        await asyncio.gather(in_thread("a"), in_thread("b"))
        return tuple(log)

    executor = executor_of(main)
    orders = set()
    for deviations in ({}, {0: 1}):
        executor.execute(Deviate(deviations), executor.model("stock"), 0)
        orders.add(executor.last_result)
    assert orders == {("a", "b"), ("b", "a")}


def test_bodies_that_wait_for_the_loop_never_look_like_a_deadlock() -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()

        async def answer(n: int) -> int:
            await asyncio.sleep(0)
            return n

        def body(n: int) -> int:
            return asyncio.run_coroutine_threadsafe(answer(n), loop).result(5)

        return sum(await asyncio.gather(asyncio.to_thread(body, 1), asyncio.to_thread(body, 2)))

    executor = executor_of(main)
    for _ in range(40):
        execution = executor.execute(StockOrder(), executor.model("stock"), 0)
        assert execution.outcome.ok, execution.outcome
        assert executor.last_result == 3
    assert executor.real_io == {"threads", "threads that wait for the loop"}


def test_another_executor_than_the_default_one_does_its_own_work() -> None:
    class Doubling(ThreadPoolExecutor):
        pass

    async def main() -> int:
        with Doubling(1) as pool:
            return await asyncio.get_running_loop().run_in_executor(pool, sum, [1, 2, 3])

    executor, execution = stock(main)
    assert execution.outcome.ok, execution.outcome
    assert executor.last_result == 6
