"""Threads of executors, of libraries and of the subject: what they hand in, when they rest, where their bodies race."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import sqlite3
import threading
import time
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from chaossloth.evidence import Label
from chaossloth.explore.strategy import Deviate, StockOrder
from chaossloth.loop import quiescence
from chaossloth.loop.quiescence import Looks, State
from tests.engine.support import executor_of, executor_of_source, failing
from tests.real_io.support import LABELS, descriptors, fails, passes

aiosqlite = pytest.importorskip("aiosqlite")


async def database(connection: Any) -> None:
    await connection.execute("create table t (n)")
    await connection.execute("insert into t values (0)")


async def read(connection: Any) -> int:
    async with connection.execute("select n from t") as cursor:
        row = await cursor.fetchone()
    return int(row[0])


async def careful_database() -> None:
    async with aiosqlite.connect(":memory:") as connection:
        await database(connection)

        async def increment() -> None:
            await asyncio.wait_for(connection.execute("update t set n = n + 1"), 5)

        await asyncio.gather(increment(), increment())
        await asyncio.sleep(3600)
        assert await read(connection) == 2


async def racy_database() -> None:
    async with aiosqlite.connect(":memory:") as connection:
        await database(connection)

        async def increment(wait: float) -> None:
            await asyncio.sleep(wait)
            seen = await read(connection)
            await connection.execute("update t set n = ?", (seen + 1,))

        await asyncio.gather(increment(0), increment(0.05))
        assert await read(connection) == 2


def test_a_connection_with_a_thread_of_its_own_passes_every_order() -> None:
    passes(careful_database, "threads")


def test_an_idle_thread_does_not_slow_sleeping_down() -> None:
    executor = executor_of(careful_database)
    started = perf_counter()
    execution = executor.execute(StockOrder(), executor.model("stock"), 0)
    assert execution.outcome.ok, execution.outcome
    assert execution.run.now >= 3600 > perf_counter() - started


@pytest.mark.parametrize("label", ["stock", "reorder"])
def test_read_then_write_on_a_shared_connection_is_found(label: Label) -> None:
    """Of the accesses nothing is recorded, since they are another process's, so to speak: orders at random find it."""
    fails(racy_database, label, "AssertionError", executions=200)


async def lost_update_in_bodies() -> None:
    value = 0

    def body() -> None:
        nonlocal value
        seen = value
        time.sleep(0.01)
        value = seen + 1

    await asyncio.gather(asyncio.to_thread(body), asyncio.to_thread(body))
    assert value == 2, value


async def lost_update_between_bodies() -> None:
    value = 0

    def get() -> int:
        return value

    def put(new: int) -> None:
        nonlocal value
        value = new

    async def increment(wait: float) -> None:
        await asyncio.sleep(wait)
        seen = await asyncio.to_thread(get)
        await asyncio.to_thread(put, seen + 1)

    await asyncio.gather(increment(0), increment(0.05))
    assert value == 2, value


async def locked_bodies() -> None:
    value = 0
    lock = threading.Lock()

    def body() -> None:
        nonlocal value
        with lock:
            seen = value
            time.sleep(0.01)
            value = seen + 1

    await asyncio.gather(asyncio.to_thread(body), asyncio.to_thread(body))
    assert value == 2, value


@pytest.mark.parametrize("subject", [lost_update_in_bodies, lost_update_between_bodies])
def test_a_lost_update_in_threads_is_found(subject: Any) -> None:
    fails(subject, "stock", "AssertionError", executions=200)


def test_bodies_under_a_lock_pass_every_order() -> None:
    passes(locked_bodies, "threads", executions=15)


def test_a_sleep_in_a_body_is_virtual() -> None:
    async def main() -> tuple[str, ...]:
        log: list[str] = []

        def body() -> None:
            log.append("begun")
            time.sleep(3600)
            log.append("ended")

        task = asyncio.create_task(asyncio.to_thread(body))
        await asyncio.sleep(10)
        log.append("meanwhile")
        await task
        return tuple(log)

    executor = executor_of(main)
    started = perf_counter()
    execution = executor.execute(StockOrder(), executor.model("stock"), 0)
    assert execution.outcome.ok, execution.outcome
    assert executor.last_result == ("begun", "meanwhile", "ended")
    assert execution.run.now >= 3600 > perf_counter() - started


def test_a_body_that_sleeps_beyond_the_end_is_ended_with_the_execution() -> None:
    async def main() -> None:
        task = asyncio.create_task(asyncio.to_thread(time.sleep, 3600))
        await asyncio.sleep(0.01)
        task.cancel()

    executor = executor_of(main)
    before = threading.active_count()
    for _ in range(10):
        assert executor.execute(StockOrder(), executor.model("stock"), 0).outcome.ok
    deadline = perf_counter() + 10
    while threading.active_count() > before and perf_counter() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_what_a_body_accesses_is_recorded_in_its_own_step() -> None:
    source = """
import asyncio

class Shared:
    n = 0

shared = Shared()

def body():
    shared.n += 1

async def main():
    await asyncio.to_thread(body)
"""
    executor, _ = executor_of_source(source)
    execution = executor.execute(StockOrder(), executor.model("stock"), 0)
    assert execution.outcome.ok, execution.outcome
    recorded = [step for step in execution.run.steps if step.cause == "external"]
    assert [step.proc.name for step in recorded] == ["body"]
    assert any("n" in map(str, access) for access in recorded[0].accesses)


def test_a_race_of_bodies_names_its_two_lines() -> None:
    from chaossloth.causality import critical_accesses
    from chaossloth.diagnose.pair import diagnose

    source = """
import asyncio
import time

class Counter:
    def __init__(self):
        self.n = 0

    def bump(self):
        seen = self.n
        time.sleep(0.01)
        self.n = seen + 1

async def main():
    counter = Counter()
    await asyncio.gather(asyncio.to_thread(counter.bump), asyncio.to_thread(counter.bump))
    assert counter.n == 2
"""
    executor, _ = executor_of_source(source)
    found = diagnose(executor, failing(executor, "stock"), perf_counter() + 20, 5)
    assert found.race is not None
    assert {access.line for access in critical_accesses(found.race, found.failing.steps)} == {10, 12}


def test_a_pool_of_one_thread_is_one_thread() -> None:
    """sqlite3 refuses another one; and two bodies of such a pool never overlap."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        running = 0

        def body() -> None:
            nonlocal running
            running += 1
            assert running == 1
            time.sleep(0.01)
            running -= 1

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            connection = await loop.run_in_executor(pool, sqlite3.connect, ":memory:")
            cursor = await loop.run_in_executor(pool, connection.execute, "select 1")
            assert await loop.run_in_executor(pool, cursor.fetchone) == (1,)
            await asyncio.gather(*(loop.run_in_executor(pool, body) for _ in range(3)))
            await loop.run_in_executor(pool, connection.close)

    passes(main, "threads", executions=15)


def test_a_body_and_the_loop_wait_for_each_other() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def answer() -> int:
            await asyncio.sleep(0.01)
            return 21

        def body() -> int:
            with_limit = asyncio.run_coroutine_threadsafe(answer(), loop).result(5)
            return with_limit + asyncio.run_coroutine_threadsafe(answer(), loop).result()

        assert await asyncio.wait_for(asyncio.to_thread(body), 10) == 42

    passes(main, "threads", "threads that wait for the loop", executions=10)


def test_what_one_thread_hands_in_keeps_its_order() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[int] = asyncio.Queue()

        def body() -> None:
            for number in range(4):
                loop.call_soon_threadsafe(queue.put_nowait, number)

        thread = threading.Thread(target=body)
        thread.start()
        assert [await asyncio.wait_for(queue.get(), 1) for _ in range(4)] == [0, 1, 2, 3]
        thread.join()

    passes(main, "threads")


def test_a_callback_that_a_thread_takes_back_is_not_called() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        called: list[str] = []

        def body() -> None:
            first = loop.call_soon_threadsafe(called.append, "first")
            loop.call_soon_threadsafe(called.append, "second")
            first.cancel()

        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
        await asyncio.sleep(0.2)
        assert called == ["second"]

    passes(main, "threads")


def test_a_thread_that_works_for_a_while_is_waited_for_and_no_timeout_fires() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def body() -> None:
            end = perf_counter() + 0.05
            while perf_counter() < end:
                pass
            loop.call_soon_threadsafe(done.set)

        threading.Thread(target=body).start()
        await asyncio.wait_for(done.wait(), 5)

    passes(main, "threads", executions=5)


def test_a_connection_nobody_uses_is_no_excuse_for_a_deadlock() -> None:
    async def main() -> None:
        async with aiosqlite.connect(":memory:") as connection:
            await database(connection)
            await asyncio.Event().wait()

    executor = executor_of(main)
    outcome = executor.execute(StockOrder(), executor.model("stock"), 0).outcome
    assert outcome.failure == "deadlock", outcome


@pytest.mark.parametrize("label", LABELS)
def test_stock_order_is_the_same_in_each_execution(label: Label) -> None:
    for subject in (careful_database, racy_database, lost_update_in_bodies):
        executor = executor_of(subject)
        checks = {executor.execute(Deviate({}), executor.model(label), 0).schedule.check for _ in range(20)}
        assert len(checks) == 1, subject


def test_states_of_threads() -> None:
    go, held = threading.Event(), threading.Lock()
    held.acquire()
    stop = False

    def spin() -> None:
        while not stop:
            pass

    bodies = {
        State.PARKED: held.acquire,
        State.SLEEPING: lambda: time.sleep(0.5),
        State.BLOCKED: lambda: go.wait(20),
        State.RUNNING: spin,
    }
    looks, before = Looks(), descriptors()
    for state, body in bodies.items():
        thread = threading.Thread(target=body, daemon=True)
        thread.start()
        time.sleep(0.05)
        seen = [looks.state(thread) for _ in range(5)]
        wanted = {state} if looks.precise else {State.RUNNING, State.BLOCKED}
        assert seen[-1] in wanted, (state, seen)
        if state is State.RUNNING:
            stop = True
    go.set()
    held.release()
    looks.close()
    assert descriptors() == before


@pytest.mark.parametrize("look", [1, 2, 3])
def test_what_a_thread_hands_in_right_after_a_look_is_not_lost(look: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looked at rest, then it was woken, handed in and ended, all before the loop drew its conclusion.

    The third look is the last before that: at rest, and nothing was taken in since.
    """
    go, threads, looks = threading.Event(), list[threading.Thread](), [0]

    async def main() -> None:
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def body() -> None:
            go.wait()
            loop.call_soon_threadsafe(woken.set)

        threads.append(threading.Thread(target=body))
        threads[0].start()
        await woken.wait()

    original = Looks.busiest

    def busiest(self: Looks, seen: Any) -> State:
        state = original(self, seen)
        looks[0] += state is State.PARKED
        if looks[0] == look and threads:
            go.set()
            threads[0].join()
        return state

    monkeypatch.setattr(Looks, "busiest", busiest)
    executor = executor_of(main)
    outcome = executor.execute(StockOrder(), executor.model("stock"), 0).outcome
    go.set()
    assert outcome.ok, outcome
    assert looks[0] >= look


@pytest.mark.skipif(not Looks.precise, reason="the kernel does not say what a thread does")
@pytest.mark.parametrize(("letter", "timeout", "expected"), [("S", "0x0", 0), ("R", "0x0", 3), ("S", "0x7f00", 1)])
def test_a_thread_that_was_woken_is_not_at_rest(letter: str, timeout: str, expected: int, tmp_path: Path) -> None:
    """A woken thread is shown in its old system call until its processor takes note; only its letter tells.

    The files stand for those of /proc: the moment between can last a millisecond, but cannot be brought about.
    """
    texts = {
        "syscall": f"{quiescence._FUTEX} 0x7f00 0x189 0x0 {timeout} 0x0 0x0 0x7ffd 0x7f01\n",
        "schedstat": "224840 1156 12\n",
        "stat": f"17 (a (strange) S name) {letter} 1 17 17 0 -1\n",
    }
    thread = threading.Thread(target=threading.Event().wait, daemon=True)
    thread.start()
    looks = Looks()
    looks.state(thread)
    watched = looks._watched[thread]
    watched.close()
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    watched.files = tuple(os.open(tmp_path / name, os.O_RDONLY) for name in texts)
    seen = [looks.state(thread) for _ in range(2)]
    looks.close()
    assert seen[-1] == expected


def test_threads_that_work_between_two_looks_are_not_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one seen last woke the one seen first: each look alone shows rest. The states stand for what /proc says."""
    looks, used = Looks(), iter(range(100))
    threads = [threading.Thread(), threading.Thread()]
    working = True

    class Watched:
        @property
        def used(self) -> int:
            return next(used) if working else -1

        def close(self) -> None:
            pass

    monkeypatch.setattr(looks, "state", lambda _: State.PARKED)
    monkeypatch.setattr(looks, "_watched", {thread: Watched() for thread in threads})
    assert looks.busiest(threads) is State.RUNNING
    working = False
    assert looks.busiest(threads) is State.PARKED
