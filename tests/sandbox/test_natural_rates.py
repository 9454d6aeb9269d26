"""The sandbox programs do on a stock loop what their headers say they do.

The bands are wide on purpose: at the rate that a header states, a correct program leaves its band with a chance below
one in a million (binomial tails, checked in test_headers.py), and a loaded machine may shift the rate itself.
"""

from __future__ import annotations

import pytest

from tests.sandbox import natural

# program: (kind of failure, lowest and highest share of failing runs that is accepted)
RACY = {
    "audit_log": ("AssertionError", 0.25, 0.95),
    "bank_transfer": ("Deadlock", 0.35, 0.99),
    "chat_room": ("RuntimeError", 0.25, 0.97),
    "device_link": ("Deadlock", 0.15, 0.90),
    "download_slots": ("Deadlock", 0.10, 0.98),
    "job_queue": ("IndexError", 0.40, 0.99),
    "lazy_client": ("AssertionError", 0.35, 0.99),
    "request_context": ("AssertionError", 0.30, 0.98),
    "ticket_shop": ("AssertionError", 0.30, 0.98),
}
RUNS = 60

# program: the repair that its header describes, as (text of the program, replacement) pairs
REPAIRS = {
    "audit_log": [
        (
            "    async def close(self) -> None:\n",
            "    async def close(self) -> None:\n        await asyncio.gather(*self._writers)\n",
        )
    ],
    "bank_transfer": [
        (
            "    async with payer.lock:\n",
            "    first, second = sorted((payer, payee), key=lambda account: account.name)\n"
            "    async with first.lock:\n",
        ),
        ("        async with payee.lock:\n", "        async with second.lock:\n"),
    ],
    "chat_room": [("in self.members.values():", "in list(self.members.values()):")],
    "device_link": [("                await self.close()\n", '                self.state = "closed"\n')],
    "download_slots": [
        ("        await self._slots.acquire()\n        async with ", "        async with self._slots, "),
        ("        self._slots.release()\n", ""),
    ],
    "job_queue": [("            if not self._jobs:\n", "            while not self._jobs:\n")],
    "lazy_client": [
        ("        self._server = server\n", "        self._server = server\n        self._lock = asyncio.Lock()\n"),
        (
            "        if self._session is None:\n            self._session = await self._server.log_in()\n",
            "        async with self._lock:\n"
            "            if self._session is None:\n"
            "                self._session = await self._server.log_in()\n",
        ),
    ],
    "request_context": [
        ("async def list_documents()", "async def list_documents(current_user: str)"),
        ("await list_documents()", "await list_documents(user)"),
    ],
    "session_store": [
        (
            "        current = self.sessions[key]\n"
            "        await self.backend.ping(key)  # keeps the remote session alive\n",
            "        await self.backend.ping(key)  # keeps the remote session alive\n"
            "        current = self.sessions[key]\n",
        )
    ],
    "ticket_shop": [
        (
            "            return False\n        self.free_seats -= 1\n",
            "            return False\n"
            "        if self.free_seats < 1:\n"
            "            return False\n"
            "        self.free_seats -= 1\n",
        )
    ],
}


def test_the_demonstration_fails_in_40_to_90_percent_of_200_runs() -> None:
    seen = natural.failures("session_store", 200)
    assert set(seen) == {"AssertionError"}
    assert 80 <= seen.total() <= 180, seen


@pytest.mark.parametrize("program", RACY)
def test_a_racy_program_fails_sometimes_and_only_in_its_own_way(program: str) -> None:
    kind, low, high = RACY[program]
    seen = natural.failures(program, RUNS)
    assert set(seen) == {kind}
    assert low * RUNS <= seen.total() <= high * RUNS, seen


def test_the_clean_program_never_fails() -> None:
    assert natural.failures("config_cache", 100).total() == 0


def test_the_program_with_a_wrong_expectation_always_fails() -> None:
    assert natural.failures("invoice_total", 30) == {"AssertionError": 30}


@pytest.mark.parametrize("program", REPAIRS)
def test_the_repair_that_the_header_describes_is_enough(program: str) -> None:
    """40 runs: at the lowest natural rate above (45 %), an ineffective repair passes with probability below 1e-10."""
    source = natural.source(program)
    for old, new in REPAIRS[program]:
        assert source.count(old) == 1, f"{program}.py no longer holds {old!r} exactly once"
        source = source.replace(old, new)
    assert natural.failures(program, 40, source).total() == 0
