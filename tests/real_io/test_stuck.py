"""Programs with real I/O that get stuck, on the stock loop: told as a deadlock, not waited for until the limit."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from chaossloth.loop.nearness import Nearness
from chaossloth.natural import sample
from tests.engine.support import FromFunction


async def both_ends_wait() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    reader, _ = await asyncio.open_connection(*server.sockets[0].getsockname())
    await reader.read()


async def idle_connection() -> None:
    aiosqlite = pytest.importorskip("aiosqlite")
    async with aiosqlite.connect(":memory:") as connection:
        await connection.execute("create table t (n)")
        await asyncio.Event().wait()


@pytest.mark.parametrize("subject", [both_ends_wait, idle_connection])
def test_a_natural_run_that_can_never_end_is_a_deadlock(subject: Any) -> None:
    found = sample(FromFunction(subject), 2, is_subject=lambda file: file == __file__, step_limit_s=20)
    assert found.natural.aborted is None
    assert [outcome.failure for outcome in found.outcomes] == ["deadlock", "deadlock"]


def test_a_child_is_no_deadlock() -> None:
    async def main() -> None:
        process = await asyncio.create_subprocess_exec("sleep", "0.5")
        assert await process.wait() == 0

    found = sample(FromFunction(main), 1, is_subject=lambda file: file == __file__, step_limit_s=20)
    assert [outcome.ok for outcome in found.outcomes] == [True]


def test_nearness() -> None:
    nearness = Nearness()
    with socket.socket() as listening, socket.socket() as client:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        assert nearness.place(client.fileno()).near is None
        client.connect(listening.getsockname())
        peer, _ = listening.accept()
        with peer:
            place = nearness.place(listening.fileno())
            assert place.listening and place.near and place.kind == "sockets"
            assert Nearness().place(client.fileno()).near is None  # the other end is not known there
            assert nearness.place(client.fileno()).near and nearness.place(peer.fileno()).near
    one, other = socket.socketpair()
    with one, other:
        assert nearness.place(one.fileno()).near
    with open(__file__) as file:
        place = nearness.place(file.fileno())
        assert (place.kind, place.near) == ("descriptors", False)
