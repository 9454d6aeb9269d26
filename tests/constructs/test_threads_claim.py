"""Two threads that overwrite each other's count: under control their bodies never overlap, so nothing is proven."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.support import run

SOURCE = """
import asyncio
import time


async def scenario():
    count = [0]

    def add():
        seen = count[0]
        time.sleep(0.00001)
        count[0] = seen + 1

    async def late():
        await asyncio.sleep(0.01)
        await asyncio.to_thread(add)

    await asyncio.gather(asyncio.to_thread(add), late())
    assert count[0] == 2
"""


def test_nothing_is_proven_where_threads_take_part(tmp_path: Path) -> None:
    (tmp_path / "subject.py").write_text(SOURCE)
    result = run("subject.py::scenario", "--runs", "2", "--budget", "4", "--no-repair", cwd=tmp_path).result
    assert result["verdict"]["word"] != "proven"
    assert any("threads" in what for what in result["verdict"]["bounds"]["real_io"])
