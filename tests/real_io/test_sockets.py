"""Sockets under control: servers and clients, datagrams, `sock_*`, readers and writers; races behind a connection."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from chaossloth.evidence import Label
from chaossloth.explore.strategy import Deviate, RandomWalk, StockOrder
from tests.engine.support import executor_of
from tests.real_io.support import LABELS, fails, passes


async def serve(answer: Any) -> tuple[asyncio.Server, int]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for line in reader:
            writer.write(b"%d\n" % await answer(line.decode().split()))
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


class Client:
    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Client:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def ask(self, text: str) -> int:
        self._writer.write(text.encode() + b"\n")
        return int(await self._reader.readline())


async def echoes() -> None:
    async def answer(words: list[str]) -> int:
        return int(words[0])

    server, port = await serve(answer)

    async def client(number: int) -> int:
        async with Client(port) as connection:
            return await connection.ask(str(number))

    async with server:
        assert await asyncio.gather(client(1), client(2)) == [1, 2]


def test_a_server_and_its_clients_pass_every_order() -> None:
    passes(echoes, "sockets")


async def increments_over_tcp(locked: bool) -> None:
    value = 0
    lock = asyncio.Lock()

    async def answer(words: list[str]) -> int:
        nonlocal value
        if words[0] == "set":
            value = int(words[1])
        return value

    server, port = await serve(answer)

    async def increment() -> None:
        async with Client(port) as connection:
            seen = await connection.ask("get")
            await connection.ask(f"set {seen + 1}")

    async def guarded() -> None:
        async with lock:
            await increment()

    async with server:
        await asyncio.gather(*(guarded() if locked else increment() for _ in range(2)))
    assert value == 2, value


async def racy_increments() -> None:
    await increments_over_tcp(locked=False)


async def locked_increments() -> None:
    await increments_over_tcp(locked=True)


@pytest.mark.parametrize("label", LABELS)
def test_a_read_modify_write_over_tcp_is_found_and_replays(label: Label) -> None:
    fails(racy_increments, label, "AssertionError")


def test_the_same_under_a_lock_passes() -> None:
    passes(locked_increments, "sockets")


async def late_second() -> None:
    """A lost update that stock order does not show: the second client asks when the first is usually done."""
    value = 0

    async def answer(words: list[str]) -> int:
        nonlocal value
        if words[0] == "set":
            value = int(words[1])
        return value

    server, port = await serve(answer)

    async def increment(wait: float) -> None:
        async with Client(port) as connection:
            await asyncio.sleep(wait)
            seen = await connection.ask("get")
            await connection.ask(f"set {seen + 1}")

    async with server:
        await asyncio.gather(increment(0), increment(0.05))
    assert value == 2, value


def test_an_order_that_needs_a_late_arrival_is_found() -> None:
    executor = executor_of(late_second)
    assert executor.execute(StockOrder(), executor.model("stock"), 0).outcome.ok
    failure = fails(late_second, "stock", "AssertionError", executions=300)
    assert failure.schedule.deviations


def test_both_ends_waiting_is_a_deadlock_with_their_lines() -> None:
    async def main() -> None:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        reader, _ = await asyncio.open_connection(*server.sockets[0].getsockname())
        await reader.read()

    executor = executor_of(main)
    outcome = executor.execute(StockOrder(), executor.model("stock"), 0).outcome
    assert outcome.failure == "deadlock"
    assert "handle waits" in outcome.message


def test_a_listening_server_does_not_slow_sleeping_down() -> None:
    async def main() -> None:
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        async with server:
            for _ in range(24):
                await asyncio.sleep(3600)

    executor = executor_of(main)
    started = perf_counter()
    execution = executor.execute(StockOrder(), executor.model("stock"), 0)
    assert execution.outcome.ok
    assert execution.run.now >= 24 * 3600 > perf_counter() - started


def test_a_timeout_never_overtakes_an_answer_that_is_on_its_way() -> None:
    async def main() -> None:
        async def answer(words: list[str]) -> int:
            return len(words)

        server, port = await serve(answer)
        async with server, Client(port) as connection:
            assert await asyncio.wait_for(connection.ask("a b"), 0.5) == 2

    passes(main, "sockets")


def test_a_timeout_of_what_never_comes_costs_virtual_time_only() -> None:
    async def main() -> None:
        async def answer(words: list[str]) -> int:
            return int(await asyncio.get_running_loop().create_future())

        server, port = await serve(answer)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readline(), 300)
        writer.close()
        server.close()

    executor = executor_of(main)
    execution = executor.execute(StockOrder(), executor.model("stock"), 0)
    assert execution.outcome.ok, execution.outcome
    assert execution.run.now >= 300


async def by_hand() -> None:
    loop = asyncio.get_running_loop()
    with socket.socket() as listening, socket.socket() as client:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        listening.setblocking(False)
        client.setblocking(False)

        async def serve_one() -> None:
            peer, _ = await loop.sock_accept(listening)
            with peer:
                await loop.sock_sendall(peer, await loop.sock_recv(peer, 16) * 2)

        task = asyncio.create_task(serve_one())
        await loop.sock_connect(client, listening.getsockname())
        await loop.sock_sendall(client, b"ab")
        assert await loop.sock_recv(client, 16) == b"abab"
        await task


def test_operations_on_sockets_pass_every_order() -> None:
    """A task's step that overtakes another callback of the same future would make `sock_connect` fail or spin."""
    passes(by_hand, "sockets", executions=80)


async def watched_pair() -> None:
    loop = asyncio.get_running_loop()
    one, other = socket.socketpair()
    with one, other:
        one.setblocking(False)
        other.setblocking(False)
        received: asyncio.Future[bytes] = loop.create_future()

        def read() -> None:
            loop.remove_reader(one)
            received.set_result(one.recv(16))

        def write() -> None:
            loop.remove_writer(other)
            other.send(b"hello")

        loop.add_reader(one, read)
        loop.add_writer(other, write)
        assert await received == b"hello"


def test_readers_and_writers_pass_every_order() -> None:
    passes(watched_pair, "sockets")


def test_a_reader_that_is_taken_back_is_not_called() -> None:
    """Also when its readiness was noticed before."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = socket.socketpair()
        with one, other:
            called: list[str] = []
            loop.add_reader(one, called.append, "called")
            other.send(b"x")
            for _ in range(3):
                await asyncio.sleep(0)
            taken_back_at = len(called)
            assert loop.remove_reader(one)
            await asyncio.sleep(0.01)
            assert len(called) == taken_back_at

    passes(main, "sockets")


async def datagrams() -> None:
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[bytes] = loop.create_future()

    class Server(asyncio.DatagramProtocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def datagram_received(self, data: bytes, address: Any) -> None:
            self.transport.sendto(data.upper(), address)

    class Asking(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, address: Any) -> None:
            answered.set_result(data)

    server, _ = await loop.create_datagram_endpoint(Server, local_addr=("127.0.0.1", 0))
    client, _ = await loop.create_datagram_endpoint(Asking, remote_addr=server.get_extra_info("sockname"))
    client.sendto(b"hello")
    assert await asyncio.wait_for(answered, 5) == b"HELLO"
    client.close()
    server.close()


def test_datagrams_pass_every_order() -> None:
    passes(datagrams, "sockets")


def test_unix_sockets_pass_every_order(tmp_path: Path) -> None:
    async def main() -> None:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readexactly(2))
            writer.close()

        path = str(tmp_path / "socket")
        server = await asyncio.start_unix_server(handle, path)
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"hi")
        assert await reader.read() == b"hi"
        writer.close()
        server.close()
        Path(path).unlink(missing_ok=True)

    passes(main, "sockets")


def test_a_refused_connection_is_the_subject_s_error() -> None:
    async def main() -> str:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        try:
            await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            return "refused"
        return "connected"

    executor = executor_of(main)
    assert executor.execute(StockOrder(), executor.model("stock"), 0).outcome.ok
    assert executor.last_result == "refused"


def test_stock_order_is_the_same_in_each_execution() -> None:
    executor = executor_of(echoes)
    for label in LABELS:
        checks = {executor.execute(Deviate({}), executor.model(label), 0).schedule.check for _ in range(20)}
        assert len(checks) == 1
        walks = {executor.execute(RandomWalk(3, 0.5), executor.model(label), 0).schedule.token for _ in range(20)}
        assert len(walks) == 1
