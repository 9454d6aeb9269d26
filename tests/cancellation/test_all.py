"""`--all` in a cancellation sweep: every distinct cancellation that fails, not the first alone."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.support import FORCED, Run, marked, run

_POOLS = """\
import asyncio


class Pools:
    def __init__(self):
        self.left = asyncio.Semaphore(2)
        self.right = asyncio.Semaphore(2)

    async def use_left(self):
        await self.left.acquire()
        await asyncio.sleep(0.001)  # left
        self.left.release()

    async def use_right(self):
        await self.right.acquire()
        await asyncio.sleep(0.001)  # right
        self.right.release()


async def main():
    pools = Pools()
    tasks = [asyncio.create_task(pools.use_left(), name="left"), asyncio.create_task(pools.use_right(), name="right")]
    await asyncio.gather(*tasks, return_exceptions=True)
"""


def _swept(directory: Path, source: str, *options: str) -> Run:
    path = directory / "pool.py"
    path.write_text(source, encoding="utf-8")
    return run("pool.py::main", "--runs", "0", "--budget", "8", "--cancel", *options, cwd=directory)


def test_two_lost_permits_are_two_findings(tmp_path: Path) -> None:
    done = _swept(tmp_path, _POOLS, "--all")
    findings = done.result["findings"]
    lines = [finding["cancellations"][0]["at"]["line"] for finding in findings]
    assert sorted(lines) == [marked(tmp_path / "pool.py", mark) for mark in ("left", "right")]
    for finding in findings:
        assert finding["pattern"] == "leaked-permit"
        assert finding["forced"]["controlled"]["failures"] == FORCED
    assert done.result["verdict"]["word"] == "bounded"
    assert "finding 2 of 2" in done.words


def test_without_it_the_first_ends_the_sweep(tmp_path: Path) -> None:
    done = _swept(tmp_path, _POOLS)
    assert done.finding["needs_cancellation"] is True
    assert done.result["verdict"]["failures"] == 1


def test_a_clean_program_is_searched_as_far_as_without_it(tmp_path: Path) -> None:
    source = _POOLS
    for side in ("left", "right"):
        body = f"        await self.{side}.acquire()\n        await asyncio.sleep(0.001)  # {side}\n"
        body += f"        self.{side}.release()\n"
        assert body in source
        source = source.replace(body, f"        async with self.{side}:\n            await asyncio.sleep(0.001)\n")
    plain, every = (_swept(tmp_path, source, *options).result for options in ((), ("--all",)))
    assert plain["outcome"] == every["outcome"] == "clean"
    assert plain["verdict"]["word"] == every["verdict"]["word"]
    assert plain["verdict"]["executions_by_label"] == every["verdict"]["executions_by_label"]
