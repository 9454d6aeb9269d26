"""Patches that pass the scenario and are wrong all the same are refused; races are not explained away."""

from __future__ import annotations

import textwrap
from pathlib import Path

from tests.acceptance.support import run

BOOKING = """
    import asyncio


    async def charge(customer):
        await asyncio.sleep(0.002)      # stands for a payment that cannot be taken back


    class Flight:
        def __init__(self):
            self.free = 1

        async def book(self, customer="ann"):
            if self.free == 0:
                return False
            await charge(customer)
            self.free -= 1
            return True
"""

CACHE = """
    import asyncio

    CACHE = {}
    loads = []


    async def load(key):
        loads.append(key)
        await asyncio.sleep(0.001)
        return key.upper()


    async def get(key):
        if key not in CACHE:
            CACHE[key] = await load(key)
        return CACHE[key]


    async def scenario():
        await asyncio.gather(get("k"), get("k"))
        assert len(loads) == 1, loads
"""

POLLER = """
    import asyncio


    class Service:
        def __init__(self):
            self.started = False
            self.starts = 0

        async def _poll(self):
            while True:
                await asyncio.sleep(0.01)

        async def start(self):
            if self.started:
                return
            await asyncio.sleep(0.001)
            self.poller = asyncio.create_task(self._poll())
            self.starts += 1
            self.started = True
"""

ADDRESSES = """
    import asyncio


    class Thing:
        pass


    async def scenario():
        things = {Thing() for _ in range(40)}       # iterated in the order of addresses
        first = next(iter(things))
        keep = [Thing() for _ in range(len(repr(first)) % 7)]

        async def touch(thing, rank):
            for _ in range(rank % 3):
                await asyncio.sleep(0)

        ranked = sorted(things, key=id)
        await asyncio.gather(*(touch(thing, ranked.index(thing)) for thing in things))
        assert keep is not None
"""


def write(directory: Path, name: str, source: str) -> Path:
    path = directory / name
    path.write_text(textwrap.dedent(source).lstrip(), encoding="utf-8")
    return path


def test_testing_again_after_a_payment_is_no_repair(tmp_path: Path) -> None:
    """With a second test after the await the seat is right and the card is charged twice."""
    write(tmp_path, "flight.py", BOOKING)
    finding = run("flight.py", "--cls", "Flight", "--method", "book", cwd=tmp_path).finding
    assert finding["pattern"] == "check-then-act"
    assert finding["repair"]["intent"]["kind"] == "WRAP_ATOMIC_SECTION"


def test_a_lock_on_a_module_is_refused_for_what_it_does_on_the_next_event_loop(tmp_path: Path) -> None:
    write(tmp_path, "cache.py", CACHE)
    result = run("cache.py::scenario", "-v", cwd=tmp_path)
    assert result.result["outcome"] == "no-repair"
    assert "would bind to the first event loop" in result.result["findings"][0]["no_repair_reason"]


def test_a_race_beside_an_endless_background_task_is_a_race(tmp_path: Path) -> None:
    write(tmp_path, "service.py", POLLER)
    result = run("service.py", "--cls", "Service", "--method", "start", "--no-repair", cwd=tmp_path)
    assert result.result["outcome"] == "found"
    assert result.finding["pattern"] == "check-then-act"


def test_nothing_is_proven_of_a_program_that_does_not_repeat(tmp_path: Path) -> None:
    write(tmp_path, "addresses.py", ADDRESSES)
    result = run("addresses.py::scenario", "--needs", "stock", cwd=tmp_path)
    assert result.result["verdict"]["word"] != "proven"
