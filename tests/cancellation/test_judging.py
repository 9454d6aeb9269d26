"""The victim's own end is no failure; everything else must survive, also after the main task has ended."""

from __future__ import annotations

from tests.cancellation.support import explained, failure_of, swept

AWAITED = """
import asyncio
async def main():
    async def work():
        await asyncio.sleep(0.001)
        return 1
    assert await asyncio.gather(work(), work()) == [1, 1]
"""

STRANDED = """
import asyncio
async def main():
    ready = asyncio.Event()
    async def provider():
        await asyncio.sleep(0.001)
        ready.set()
    async def user():
        await ready.wait()  # here
    others = asyncio.create_task(user(), name="user")
    await asyncio.gather(asyncio.create_task(provider(), name="provider"))
    await others
"""

SERVER = """
import asyncio
async def main():
    queue = asyncio.Queue()
    async def serve():
        while True:
            await queue.get()
    server = asyncio.create_task(serve(), name="server")
    async def request():
        await asyncio.sleep(0.001)
        queue.put_nowait(1)
    await asyncio.gather(asyncio.create_task(request(), name="request"))
    server.cancel()
"""

TRANSLATES = """
import asyncio
async def main():
    async def work():
        try:
            await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            raise RuntimeError("connection lost") from None
    await asyncio.gather(asyncio.create_task(work(), name="work"))
"""

ASKED = """
import asyncio
async def main():
    me = asyncio.current_task()
    async def work():
        try:
            await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            me.cancel()
            raise
    task = asyncio.create_task(work(), name="work")
    await asyncio.wait([task])
    await asyncio.sleep(0.001)
"""

FAILS_ANYHOW = """
import asyncio
async def main():
    x = 0
    async def add(wait):
        nonlocal x
        seen = x
        await asyncio.sleep(0)
        x = seen + 1
    await asyncio.gather(add(0), add(0))
    assert x == 2
"""

GUARDED = """
import asyncio
async def main():
    async with asyncio.timeout(1):
        await asyncio.sleep(0.01)
"""


def test_who_awaits_the_victim_has_not_failed() -> None:
    _, result = swept(AWAITED)
    assert result.failure is None
    assert result.landed > 0
    assert result.results["stock"].executions < 400  # nothing was left to execute


def test_others_go_on_after_a_main_task_that_ended_by_the_cancellation() -> None:
    _, result = swept(STRANDED, "provider")
    failure = failure_of(result)
    assert failure.outcome.failure == "deadlock"
    assert "user" in failure.outcome.message
    assert failure.run.cancels is not None
    assert failure.run.cancels.after_main


def test_tasks_that_wait_for_ever_anyhow_are_not_stranded() -> None:
    _, result = swept(SERVER, "request")
    assert result.failure is None
    assert result.landed > 0


def test_another_exception_than_the_cancellation_is_a_failure() -> None:
    _, result = swept(TRANSLATES)
    assert failure_of(result).outcome.exception == "RuntimeError"


def test_a_cancellation_that_was_asked_of_the_main_task_is_judged() -> None:
    _, result = swept(ASKED, "work")
    assert failure_of(result).outcome.exception == "CancelledError"


def test_a_program_that_fails_without_a_cancellation_is_reported_as_such() -> None:
    _, result = swept(FAILS_ANYHOW)
    assert result.base is failure_of(result)
    assert failure_of(result).schedule.cancels == ()


def test_the_main_tasks_own_timeout_is_no_failure() -> None:
    _, result = swept(GUARDED)
    assert result.failure is None
    assert result.timeouts == 1
    assert result.landed > 0


def test_the_main_task_is_no_victim() -> None:
    _, result = swept(GUARDED.replace("async with asyncio.timeout(1):", "if True:"), "main")
    assert result.suspensions == 0


def test_a_task_is_named_by_its_name_or_by_its_coroutine() -> None:
    by_name = swept(AWAITED, "wor?")[1]
    by_place = swept(AWAITED, "main.<locals>.work")[1]
    nobody = swept(AWAITED, "nobody")[1]
    assert by_name.suspensions == by_place.suspensions > 0
    assert nobody.suspensions == 0


def test_the_innocents_line_is_told() -> None:
    source = """
import asyncio
async def main():
    work = asyncio.create_task(asyncio.sleep(0.01))
    async def ask():
        return await work  # here
    await asyncio.wait([asyncio.create_task(ask(), name=name) for name in ("victim", "stays")])
"""
    executor, result = swept(source, "victim")
    failure = failure_of(result)
    assert failure.outcome.where is not None
    assert failure.outcome.where.line == 6
    found, pattern, _, _ = explained(executor, failure)
    assert found.innocents == ("stays",)
    assert pattern == "shared-work-cancelled"
