"""Steps that hold the loop (sampled) and blocking calls written inside coroutines (read from the source)."""

from __future__ import annotations

import ast
import asyncio
import textwrap
import threading
import time

import pytest

from chaossloth.evidence import Frame
from chaossloth.starvation import Watchdog, blocking_calls


def _spin_until(seen: threading.Event) -> None:
    while not seen.is_set():
        pass


@pytest.fixture
def watchdog() -> Watchdog:
    return Watchdog(threshold_ms=2.0, is_subject=lambda file: file == __file__)


def test_a_long_step_is_sampled_once_with_its_line_and_stack(watchdog: Watchdog) -> None:
    async def rebuild() -> None:
        _spin_until(watchdog.sampled)

    async def main() -> None:
        watchdog.begin()
        await rebuild()
        watchdog.end()

    watchdog.start(threading.get_ident())
    asyncio.run(main())
    watchdog.stop()
    (entry,) = watchdog.result()
    first = _spin_until.__code__.co_firstlineno
    assert (entry.file, entry.function) == (__file__, "_spin_until")
    assert first < entry.line <= first + 2
    assert entry.held_ms is not None
    assert watchdog.longest_step_ms >= entry.held_ms > 2.0
    assert any(line.startswith(f"{__file__}:{entry.line} ") for line in entry.stack)
    functions = [line.rpartition(".")[2].rpartition(" ")[2] for line in entry.stack]
    assert [name for name in functions if name in ("_spin_until", "rebuild", "main")] == [
        "_spin_until",
        "rebuild",
        "main",
    ]
    assert not any("Handle._run" in line for line in entry.stack)


def test_the_subject_line_is_named_where_a_library_blocks(watchdog: Watchdog) -> None:
    namespace = {"seen": watchdog.sampled}
    exec(compile("def block():\n    while not seen.is_set():\n        pass\n", "/lib/driver.py", "exec"), namespace)

    async def main() -> None:
        watchdog.begin()
        namespace["block"]()  # type: ignore[operator]
        watchdog.end()

    watchdog.start(threading.get_ident())
    asyncio.run(main())
    watchdog.stop()
    (entry,) = watchdog.result()
    assert entry.file == __file__
    assert entry.detail.startswith('namespace["block"]()')
    assert any(line.startswith("/lib/driver.py:") for line in entry.stack)


def test_steps_at_the_same_line_are_one_entry_with_a_count(watchdog: Watchdog) -> None:
    watchdog.start(threading.get_ident())
    for _ in range(2):
        watchdog.sampled.clear()
        watchdog.begin()
        while not watchdog.sampled.is_set(): pass  # fmt: skip  # noqa: E701 (one line: one place)
        watchdog.end()
    watchdog.stop()
    (entry,) = watchdog.result()
    assert entry.detail.endswith("(2 steps)")


def test_a_step_that_could_not_be_sampled_is_told_by_the_hook() -> None:
    watchdog = Watchdog(threshold_ms=0.0)
    watchdog.begin()
    watchdog.end(Frame("/subject/buggy.py", 7, "crunch"))
    (entry,) = watchdog.result()
    assert (entry.file, entry.line, entry.function, entry.stack) == ("/subject/buggy.py", 7, "crunch", ())
    assert "not sampled" in entry.detail


def test_short_steps_leave_only_the_longest_length() -> None:
    watchdog = Watchdog(threshold_ms=60_000.0)
    watchdog.start(threading.get_ident())
    watchdog.begin()
    watchdog.end(Frame("/subject/buggy.py", 7, "crunch"))
    watchdog.end()
    watchdog.stop()
    watchdog.stop()
    assert watchdog.result() == ()
    assert watchdog.longest_step_ms > 0.0


def test_it_is_started_once(watchdog: Watchdog) -> None:
    watchdog.start(threading.get_ident())
    with pytest.raises(RuntimeError, match="already started"):
        watchdog.start(threading.get_ident())
    watchdog.stop()


# -- source audit ------------------------------------------------------------------------------------------------------


def _found(source: str) -> list[tuple[int, str, str]]:
    tree = ast.parse(textwrap.dedent(source).lstrip("\n"))
    entries = blocking_calls(tree, "m.py")
    assert all(entry.file == "m.py" and entry.held_ms is None for entry in entries)
    return [(entry.line, entry.function, entry.detail.partition("()")[0]) for entry in entries]


@pytest.mark.parametrize(
    ("imports", "call", "name"),
    [
        ("import time", "time.sleep(1)", "time.sleep"),
        ("import time as t", "t.sleep(1)", "time.sleep"),
        ("from time import sleep as nap", "nap(1)", "time.sleep"),
        ("import requests", "requests.get('u')", "requests.get"),
        ("import requests", "requests.Session().post('u')", "requests.Session"),
        ("import subprocess", "subprocess.check_output(['ls'])", "subprocess.check_output"),
        ("from subprocess import run", "run(['ls'])", "subprocess.run"),
        ("import os", "os.system('ls')", "os.system"),
        ("import urllib.request", "urllib.request.urlopen('u')", "urllib.request.urlopen"),
        ("from urllib import request", "request.urlopen('u')", "urllib.request.urlopen"),
        ("import socket", "socket.create_connection(('h', 1))", "socket.create_connection"),
        ("import sqlite3", "sqlite3.connect('db')", "sqlite3.connect"),
        ("", "input()", "input"),
        ("", "open('f').read()", "open"),
        ("from pathlib import Path", "Path('f').read_text()", "pathlib.Path"),
        ("", "x = [line for line in open('f').readlines()]", "open"),
        ("import time", "print(time.sleep(1))", "time.sleep"),
    ],
)
def test_known_blocking_calls(imports: str, call: str, name: str) -> None:
    source = f"{imports}\nclass C:\n    async def work(self):\n        {call}\n"
    assert _found(source) == ([(4, "C.work", name)] if imports else [(3, "C.work", name)])


@pytest.mark.parametrize(
    "body",
    [
        "await asyncio.to_thread(time.sleep, 1)",
        "await loop.run_in_executor(None, time.sleep, 1)",
        "await asyncio.to_thread(lambda: time.sleep(1))",
        "work = lambda: time.sleep(1)",
        "def inner(): time.sleep(1)",
        "await asyncio.sleep(1)",
        "future.result()",
        "time = clock; clock.sleep(1)",
        "open = opener; open('f').read()",
        "from aiofiles import open; f = open('f'); await f.read()",
        "s = socket.socket(); s.setblocking(False); s.connect(a)",
        "self.time.sleep(1)",
    ],
)
def test_calls_that_do_not_block_the_loop(body: str) -> None:
    assert _found(f"import asyncio, time, socket\nasync def work(self, loop, future, clock):\n    {body}\n") == []


def test_values_bound_in_the_function_are_followed() -> None:
    found = _found(
        """
        import socket, sqlite3

        async def work():
            with open("f") as f:
                f.read()
            s = socket.socket()
            s.recv(1)
            db = sqlite3.connect("x")
            cursor = db.cursor()
            cursor.execute("select 1")

        def sync():
            open("f").read()

        async def shadowed(open):
            open("f").read()
        """
    )
    assert found == [
        (5, "work", "open"),
        (7, "work", "socket.socket"),
        (8, "work", "sqlite3.connect"),
        (10, "work", "sqlite3.connect.cursor"),
    ]


def test_a_coroutine_nested_in_a_function_is_audited_under_its_qualified_name() -> None:
    found = _found(
        """
        def outer():
            import time
            async def inner():
                time.sleep(1)
                def later():
                    time.sleep(2)
            return inner
        """
    )
    assert found == [(4, "outer.<locals>.inner", "time.sleep")]


def test_a_blocking_sleep_is_reported_at_the_subjects_line() -> None:
    """`time.sleep` is a dispatcher of the tool in the worker: its own frames are not where the time went."""
    from chaossloth.loop import virtual

    virtual.install()
    watchdog = Watchdog(threshold_ms=30.0, is_subject=lambda name: name == __file__)
    watchdog.start(threading.get_ident())
    watchdog.begin()
    time.sleep(0.2)  # this line
    watchdog.end(None)
    watchdog.stop()
    (entry,) = watchdog.result()
    with open(__file__, encoding="utf-8") as file:
        assert file.read().splitlines()[entry.line - 1].endswith("# this line")
