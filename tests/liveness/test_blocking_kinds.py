"""Five kinds of call that hold the loop, each in a natural run: named with the exact line of the subject.

Every call lasts until the watchdog has taken its sample, or three tenths of a second where nobody can be asked.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaossloth.loop.virtual import real_sleep
from chaossloth.natural import NaturalSample, sample
from chaossloth.starvation import Watchdog
from tests.stock.programs import FILE, Scenario, is_subject

LONG_S = 0.3

SUBJECTS = {
    "CPU": """
        def digest():
            total = 0
            while not sampled():
                total += 1  # here
            return total
        async def scenario():
            digest()
        """,
    "sleep": """
        import time
        async def scenario():
            time.sleep(LONG_S)  # here
        """,
    "socket": """
        async def scenario():
            let_go()
            assert peer.recv(1) == b"x"  # here
        """,
    "sqlite": """
        import sqlite3
        async def scenario():
            try:
                database.execute("insert into t values (1)")  # here
            except sqlite3.OperationalError as locked:
                assert "locked" in str(locked)
        """,
    "file": """
        async def scenario():
            write()
            with open(fifo) as file:  # here
                assert file.read() == "x"
        """,
}


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Whether the watchdog of the run has taken a sample."""
    made: list[Watchdog] = []
    original = Watchdog.start

    def start(self: Watchdog, thread: int) -> None:
        made.append(self)
        original(self, thread)

    monkeypatch.setattr(Watchdog, "start", start)
    return lambda: made[-1].sampled.is_set()


@pytest.fixture
def surroundings(tmp_path: Path, sampled: Callable[[], bool]) -> Iterator[dict[str, object]]:
    """What the five subjects block on, and what lets each of them go on."""
    mine, peer = socket.socketpair()
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    holder = sqlite3.connect(tmp_path / "data", isolation_level=None)
    holder.execute("create table t (x)")
    holder.execute("begin exclusive")
    database = sqlite3.connect(tmp_path / "data", timeout=LONG_S)

    def later(act: Callable[[], object]) -> Callable[[], None]:
        def wait_and_act() -> None:
            real_sleep(LONG_S)
            act()

        return lambda: threading.Thread(target=wait_and_act).start()

    names = {
        "sampled": sampled,
        "LONG_S": LONG_S,
        "peer": peer,
        "let_go": later(lambda: mine.send(b"x")),
        "fifo": str(fifo),
        "write": later(lambda: fifo.write_text("x")),
        "database": database,
    }
    yield names
    for each in (mine, peer, holder, database):
        each.close()


@pytest.mark.parametrize("kind", SUBJECTS)
def test_the_line_that_blocks_is_named(kind: str, surroundings: dict[str, object]) -> None:
    program = Scenario(SUBJECTS[kind])
    program.module.__dict__.update(surroundings)
    found: NaturalSample = sample(program, 1, is_subject=is_subject, step_limit_s=60.0)
    assert found.natural.failures == 0, found.natural.messages
    (line,) = [number for number, text in enumerate(_source(kind), 1) if text.endswith("# here")]
    allowed = {line - 1, line} if kind == "CPU" else {line}  # its loop is two lines, and either may be running
    assert found.starvation
    assert {(each.file, each.function) for each in found.starvation} == {
        (FILE, "digest" if kind == "CPU" else "scenario")
    }
    assert {each.line for each in found.starvation} <= allowed
    entry = found.starvation[0]
    assert entry.held_ms is not None
    assert entry.held_ms > 50
    assert any(place.startswith(f"{FILE}:{entry.line} ") for place in entry.stack)


def _source(kind: str) -> list[str]:
    return textwrap.dedent(SUBJECTS[kind]).splitlines()
