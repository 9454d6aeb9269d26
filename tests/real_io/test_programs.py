"""Programs with a server and its clients in one process, other loops than asyncio's, and what asyncio itself offers."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from chaossloth.explore.strategy import RandomWalk, StockOrder
from chaossloth.loop import uvloops
from tests.engine.support import executor_of
from tests.real_io.support import LABELS, descriptors, fails, passes, search

web = pytest.importorskip("aiohttp.web")


class Server:
    """An aiohttp server with one value: GET / reads it, POST / sets it."""

    def __init__(self) -> None:
        self.value = 0

    async def __aenter__(self) -> str:
        async def read(request: Any) -> Any:
            await asyncio.sleep(0.001)
            return web.Response(text=str(self.value))

        async def write(request: Any) -> Any:
            self.value = int(await request.text())
            return web.Response(text="written")

        application = web.Application()
        application.router.add_get("/", read)
        application.router.add_post("/", write)
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}/"

    async def __aexit__(self, *error: object) -> None:
        await self._runner.cleanup()


async def with_aiohttp() -> None:
    from aiohttp import ClientSession

    async with Server() as url, ClientSession() as session:

        async def get() -> str:
            async with session.get(url) as response:
                return str(await response.text())

        assert await asyncio.gather(get(), get()) == ["0", "0"]


async def with_httpx() -> None:
    httpx = pytest.importorskip("httpx")
    async with Server() as url, httpx.AsyncClient(trust_env=False, verify=False) as client:
        one, two = await asyncio.gather(client.get(url), client.get(url))
        assert one.text == two.text == "0"


async def racy_web_client() -> None:
    from aiohttp import ClientSession

    server = Server()
    async with server as url, ClientSession() as session:

        async def increment() -> None:
            async with session.get(url) as response:
                seen = int(await response.text())
            async with session.post(url, data=str(seen + 1)):
                pass

        await asyncio.gather(increment(), increment())
    assert server.value == 2, server.value


@pytest.mark.parametrize("subject", [with_aiohttp, with_httpx])
def test_web_clients_and_servers_pass_every_order(subject: Any) -> None:
    passes(subject, "sockets", executions=20)


def test_a_race_of_two_requests_is_found() -> None:
    fails(racy_web_client, "stock", "AssertionError")


# --- asyncio's own


def with_runner() -> None:
    async def main() -> int:
        await asyncio.sleep(0.1)
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        server.close()
        return await asyncio.to_thread(int, "1")

    with asyncio.Runner() as runner:
        assert runner.run(main()) + runner.run(main()) == 2


def test_a_runner_passes_every_order() -> None:
    passes(with_runner, "sockets", "threads", executions=10, sync=True)


def test_a_thread_s_work_is_over_when_the_runner_is_closed() -> None:
    done: list[str] = []

    def subject() -> None:
        done.clear()

        async def main() -> None:
            asyncio.get_running_loop().run_in_executor(None, done.append, "body")

        asyncio.run(main())
        assert done == ["body"]

    passes(subject, "threads", executions=5, sync=True)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in 3.12")
def test_eager_tasks_pass_every_order_and_their_race_is_found() -> None:
    async def in_order() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        log: list[int] = []

        async def work(number: int) -> int:
            log.append(number)
            await asyncio.sleep(0.01)
            return number

        async def at_once() -> int:
            return 7

        assert await asyncio.gather(work(0), work(1), at_once()) == [0, 1, 7]
        async with asyncio.TaskGroup() as group:
            group.create_task(work(2))
            group.create_task(work(3))
        assert log == [0, 1, 2, 3]

    async def racy() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        value = 0

        async def add() -> None:
            nonlocal value
            seen = value
            await asyncio.sleep(0)
            value = seen + 1

        await asyncio.gather(add(), add())
        assert value == 2, value

    executor = executor_of(in_order)
    for label in LABELS:
        assert search(executor, label, 100).failure is None
        checks = {executor.execute(RandomWalk(5, 0.5), executor.model(label), 0).schedule.check for _ in range(5)}
        assert len(checks) == 1
    assert not executor.real_io
    fails(racy, "stock", "AssertionError")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in 3.12")
def test_an_eager_task_that_dies_at_once_and_that_nobody_looks_at_is_a_failure() -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)

        async def dies() -> None:
            raise LookupError("lost")

        kept = asyncio.create_task(dies())
        await asyncio.sleep(0)
        assert kept.done()
        held.append(kept)

    held: list[Any] = []
    executor = executor_of(main)
    assert executor.execute(StockOrder(), executor.model("stock"), 0).outcome.exception == "LookupError"


@pytest.mark.parametrize("collect", [False, True])
def test_a_generator_that_is_let_go_of_is_closed_by_the_loop(collect: bool) -> None:
    async def main() -> None:
        closed: list[str] = []

        async def numbers() -> AsyncIterator[int]:
            try:
                yield 1
                yield 2
            finally:
                await asyncio.sleep(0)
                closed.append("closed")

        async for _ in numbers():
            break
        if collect:
            gc.collect()
        await asyncio.sleep(1)
        assert closed == ["closed"]

    executor = executor_of(main)
    for label in LABELS:
        result = search(executor, label, 30)
        assert result.failure is None, result.failure and result.failure.outcome


def test_a_task_that_only_a_cycle_holds_is_collected_when_the_subject_collects() -> None:
    """The loop itself holds no reference that would hide it."""

    async def main() -> None:
        async def forgotten() -> None:
            own = asyncio.get_running_loop().create_future()
            own.owner = asyncio.current_task()  # type: ignore[attr-defined]
            await own

        asyncio.create_task(forgotten())
        await asyncio.sleep(0.01)
        gc.collect()
        await asyncio.sleep(0.01)

    executor = executor_of(main)
    for label in LABELS:
        outcome = executor.execute(StockOrder(), executor.model(label), 0).outcome
        assert outcome.failure == "leak", outcome


# --- uvloop


async def counts() -> int:
    value = 0

    async def add() -> None:
        nonlocal value
        seen = value
        await asyncio.sleep(0.01)
        value = seen + 1

    await asyncio.gather(add(), add())
    return value


def by_run() -> None:
    import uvloop

    assert uvloop.run(counts()) == 2


def by_install() -> None:
    import uvloop

    uvloop.install()
    assert asyncio.run(counts()) == 2


def by_new_loop() -> None:
    import uvloop

    loop = uvloop.new_event_loop()
    try:
        assert loop.run_until_complete(counts()) == 2
    finally:
        loop.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("subject", [by_run, by_install, by_new_loop])
def test_uvloop_is_replaced_by_the_loop_under_control(subject: Any) -> None:
    pytest.importorskip("uvloop")
    executor = executor_of(subject, sync=True)
    execution = executor.execute(StockOrder(), executor.model("stock"), 0)
    assert execution.outcome.exception == "AssertionError"
    assert execution.run.count > 5  # steps of the controlled loop
    assert execution.run.now > 0
    assert uvloops.imported()
    again = [executor.replay(execution.schedule, strict=True) for _ in range(5)]
    assert {each.schedule.check for each in again} == {execution.schedule.check}


# --- nothing is left open


@pytest.mark.parametrize("subject", [with_aiohttp, with_httpx])
def test_no_descriptor_is_left_open_by_a_hundred_executions(subject: Any) -> None:
    executor = executor_of(subject)
    model = executor.model("reorder")
    counted = []
    for number in range(110):
        executor.execute(RandomWalk(number, 0.5), model, 0)
        if number % 100 == 9:
            gc.collect()
            counted.append(descriptors())
    assert counted[1] <= counted[0] + 1


def test_no_descriptor_is_left_open_by_a_thousand_executions_that_close_nothing() -> None:
    async def main() -> None:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"x")

    executor = executor_of(main)
    model = executor.model("stock")
    counted = []
    for number in range(1_010):
        assert executor.execute(RandomWalk(number, 0.8), model, 0).outcome.ok
        if number % 1_000 == 9:
            gc.collect()
            counted.append(descriptors())
    assert counted[1] <= counted[0] + 1
