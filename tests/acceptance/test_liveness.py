"""Blocked loops, possible deadlocks, starvation and ends of runs, as the whole command reports them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.acceptance.support import FORCED, Run, marked, run

Write = Callable[[str, str], Path]

GATE = """\
import asyncio
import threading


class Store:
    def __init__(self):
        self._gate = threading.Lock()
        self.rows = {}

    async def put(self, key):
        with self._gate:  # takes it
            await asyncio.sleep(0.001)  # keeps it
            self.rows[key] = 1


async def scenario():
    store = Store()
    await asyncio.gather(store.put("a"), store.put("b"))
"""


def _investigated(path: Path, *options: str) -> Run:
    return run(
        f"{path.name}::scenario", "--budget", "5", "--runs", "4", "--no-repair", *options, cwd=path.parent, path=path
    )


def test_a_lock_of_threads_across_an_await_is_a_deadlock_and_no_hang(program: Write) -> None:
    done = _investigated(program("gate.py", GATE))
    assert (done.returncode, done.result["outcome"]) == (1, "found")
    natural = done.result["natural"]
    assert (natural["runs"], natural["failures"], natural["aborted"]) == (4, 4, None)
    finding = done.finding
    assert (finding["failure"], finding["pattern"], finding["label"]) == ("deadlock", "blocked-loop", "stock")
    for loop in ("controlled", "stock"):
        assert (finding["forced"][loop]["runs"], finding["forced"][loop]["failures"]) == (FORCED, FORCED)
    wants, keeps = finding["deadlock"]["cycle"]
    takes, awaits = marked(done.path, "takes it"), marked(done.path, "keeps it")
    assert (wants["resource"], wants["at"]["line"], wants["held_at"]["line"]) == ("Store._gate", takes, takes)
    assert (keeps["task"], keeps["at"]["line"]) == (wants["holder"], awaits)
    assert len(finding["deadlock"]["coffman"]) == 4
    assert "deadlock, the loop is blocked: Store.put #2 waits for Store._gate at gate.py" in done.words


def test_a_result_that_only_the_loop_could_bring(program: Write) -> None:
    source = """\
import asyncio


async def answer():
    return 42


async def scenario():
    future = asyncio.run_coroutine_threadsafe(answer(), asyncio.get_running_loop())
    assert future.result() == 42  # blocks
"""
    done = _investigated(program("bridge.py", source))
    assert done.returncode == 1
    (edge,) = done.finding["deadlock"]["cycle"]
    assert edge["operation"] == "concurrent.futures.Future.result"
    assert (edge["at"]["line"], edge["holder"]) == (marked(done.path, "blocks"), None)


def test_an_order_of_locks_that_no_run_met_is_reported_as_possible(program: Write) -> None:
    source = """\
import asyncio


class Bank:
    def __init__(self):
        self.left, self.right = asyncio.Lock(), asyncio.Lock()

    async def there(self):
        async with self.left, self.right:
            await asyncio.sleep(0)

    async def back(self):
        async with self.right, self.left:
            await asyncio.sleep(0)


async def scenario():
    bank = Bank()
    await asyncio.create_task(bank.there())
    await asyncio.create_task(bank.back())
"""
    done = _investigated(program("bank.py", source))
    assert (done.returncode, done.result["outcome"]) == (0, "clean")
    (cycle,) = done.result["liveness"]["lock_order_cycles"]
    assert [(edge["task"], edge["first"], edge["second"]) for edge in cycle] == [
        ("Bank.there #1", "Bank.left", "Bank.right"),
        ("Bank.back #2", "Bank.right", "Bank.left"),
    ]
    assert done.result["liveness"]["deadlocks"] == []
    assert done.result["liveness"]["natural_runs"] == 4
    assert "lock order cycle Bank.left → Bank.right → Bank.left: a deadlock is possible, " in done.words


def test_a_coroutine_that_is_never_awaited_and_a_task_that_is_left(program: Write) -> None:
    source = """\
import asyncio


async def heartbeat():
    while True:
        await asyncio.sleep(1)


async def save():
    pass


async def scenario():
    task = asyncio.create_task(heartbeat())
    await asyncio.sleep(0.001)
    {forgotten}
"""
    forgets = _investigated(program("forgets.py", source.format(forgotten="save()  # forgotten")))
    line = marked(forgets.path, "forgotten")
    assert (forgets.returncode, forgets.result["outcome"]) == (1, "not-a-race")
    assert f"coroutine save was created and never awaited at forgets.py:{line}" in forgets.result["cause"]
    assert forgets.result["natural"]["failures"] == 4

    clean = _investigated(program("clean.py", source.format(forgotten="await save()")))
    assert (clean.returncode, clean.result["outcome"]) == (0, "clean")
    assert clean.result["liveness"]["left_at_end"] == ["task heartbeat at clean.py:4"]
    assert clean.result["verdict"]["word"] == "bounded"
    assert "tasks left at the end followed for 64 steps" in clean.words


def test_a_step_that_holds_the_loop_is_named(program: Write) -> None:
    source = """\
import asyncio
import time


async def slow():
    time.sleep(0.2)  # holds


async def scenario():
    await asyncio.gather(slow(), asyncio.sleep(0))
"""
    done = _investigated(program("slow.py", source))
    assert done.returncode == 0
    line = marked(done.path, "holds")
    measured, written = done.result["starvation"]
    assert (measured["line"], measured["function"], measured["held_ms"] > 50) == (line, "slow", True)
    assert (written["line"], written["held_ms"]) == (line, None)
    assert f"slow.py:{line} slow held the loop" in done.words
