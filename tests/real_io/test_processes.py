"""Child processes and signals under control."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from chaossloth.explore.strategy import Deviate, StockOrder
from chaossloth.loop import waiting
from tests.engine.support import executor_of
from tests.real_io.support import LABELS, passes

PIPE = asyncio.subprocess.PIPE


async def two_echoes() -> None:
    async def run(word: str) -> bytes:
        process = await asyncio.create_subprocess_exec("echo", word, stdout=PIPE)
        out, _ = await process.communicate()
        assert process.returncode == 0
        return out

    assert await asyncio.wait_for(asyncio.gather(run("a"), run("b")), 5) == [b"a\n", b"b\n"]


def test_children_pass_every_order() -> None:
    passes(two_echoes, "subprocesses")


def test_the_order_of_short_children_does_not_depend_on_the_machine() -> None:
    executor = executor_of(two_echoes)
    for label in LABELS:
        checks = {executor.execute(Deviate({}), executor.model(label), 0).schedule.check for _ in range(10)}
        assert len(checks) == 1


def test_a_dialogue_with_a_child_passes_every_order() -> None:
    async def main() -> None:
        process = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)
        assert process.stdin is not None and process.stdout is not None
        for line in (b"one\n", b"two\n"):
            process.stdin.write(line)
            await process.stdin.drain()
            assert await process.stdout.readline() == line
        process.stdin.close()
        assert await process.wait() == 0

    passes(main, "subprocesses", "pipes")


def test_a_child_is_waited_for_in_real_time() -> None:
    async def main() -> None:
        process = await asyncio.create_subprocess_shell("sleep 0.1; exit 3")
        assert await asyncio.wait_for(process.wait(), 10) == 3

    passes(main, "subprocesses", executions=3)


def test_a_timeout_on_a_child_fires_and_it_can_be_killed() -> None:
    async def main() -> None:
        process = await asyncio.create_subprocess_exec("sleep", "100")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(process.wait(), 0.05)
        process.kill()
        assert await process.wait() == -signal.SIGKILL

    passes(main, "subprocesses", executions=3)


def test_a_child_that_is_left_behind_is_ended_with_the_execution(tmp_path: Path) -> None:
    async def main() -> int:
        process = await asyncio.create_subprocess_exec("sleep", "100")
        return process.pid

    executor = executor_of(main)
    assert executor.execute(StockOrder(), executor.model("stock"), 0).outcome.ok
    with pytest.raises(ProcessLookupError):
        os.kill(executor.last_result, 0)


def test_a_child_that_is_silent_for_too_long_is_no_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        process = await asyncio.create_subprocess_exec("sleep", "100")
        await process.wait()

    monkeypatch.setattr(waiting, "REAL_WAIT_S", 0.2)
    executor = executor_of(main)
    execution = executor.execute(StockOrder(), executor.model("stock"), 0)
    assert execution.truncated and not execution.failed
    assert "did not answer" in execution.outcome.message


def test_output_is_racy_where_two_children_write_to_one_list() -> None:
    async def main() -> tuple[str, ...]:
        seen: list[str] = []

        async def run(word: str) -> None:
            process = await asyncio.create_subprocess_exec("echo", word, stdout=PIPE)
            out, _ = await process.communicate()
            seen.append(out.decode().strip())

        await asyncio.gather(run("a"), run("b"))
        return tuple(seen)

    executor = executor_of(main)
    orders = set()
    first = executor.execute(StockOrder(), executor.model("stock"), 0)
    orders.add(executor.last_result)
    for at in range(len(first.run.options)):
        executor.execute(Deviate({at: 1}), executor.model("stock"), 0)
        orders.add(executor.last_result)
    assert orders == {("a", "b"), ("b", "a")}


async def signalled() -> None:
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, came.set)
    os.kill(os.getpid(), signal.SIGUSR1)
    await came.wait()
    assert loop.remove_signal_handler(signal.SIGUSR1)
    assert not loop.remove_signal_handler(signal.SIGUSR1)


def test_a_signal_to_oneself_is_handled_in_every_order() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    passes(signalled, "signals")
    assert signal.getsignal(signal.SIGUSR1) == before


def test_when_a_signal_is_handled_is_a_choice() -> None:
    async def main() -> tuple[str, ...]:
        loop = asyncio.get_running_loop()
        log: list[str] = []
        loop.add_signal_handler(signal.SIGUSR1, log.append, "signal")
        os.kill(os.getpid(), signal.SIGUSR1)
        for _ in range(2):
            await asyncio.sleep(0)
            log.append("step")
        await asyncio.sleep(0.01)
        return tuple(log)

    executor = executor_of(main)
    orders = set()
    for deviations in ({}, {0: 1}, {1: 1}):
        executor.execute(Deviate(deviations), executor.model("stock"), 0)
        orders.add(executor.last_result)
    assert orders == {("step", "signal", "step"), ("step", "step", "signal")}  # FIFO: never before the first step


def test_handlers_that_are_left_are_taken_back_with_the_execution() -> None:
    async def main() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, print)

    before = signal.getsignal(signal.SIGUSR2)
    executor = executor_of(main)
    assert executor.execute(StockOrder(), executor.model("stock"), 0).outcome.ok
    assert signal.getsignal(signal.SIGUSR2) == before


@pytest.mark.parametrize("wrong", [0, 10_000])
def test_an_invalid_signal_is_refused(wrong: int) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="invalid signal"):
            asyncio.get_running_loop().add_signal_handler(wrong, print)

    executor = executor_of(main)
    assert executor.execute(StockOrder(), executor.model("stock"), 0).outcome.ok


def test_an_alarm_is_waited_for() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        came = asyncio.Event()
        loop.add_signal_handler(signal.SIGALRM, came.set)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        await came.wait()

    executor = executor_of(main)
    assert executor.execute(StockOrder(), executor.model("stock"), 0).outcome.ok


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts children in /proc")
def test_no_zombie_is_left() -> None:
    executor = executor_of(two_echoes)
    for _ in range(5):
        executor.execute(StockOrder(), executor.model("stock"), 0)
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    states = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in children]
    assert "Z" not in states
