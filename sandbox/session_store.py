"""A session store that loses updates: the subject of the demonstration that a bare `chaossloth` runs.

Wrong:  `update_session` reads the counter, awaits the backend, then writes the counter back. A second call that reads
        during that await works on the same old value, and one of the two updates is lost (a lost update). The value is
        needed only after the await, so reading it there repairs the store without a lock.
Run:    chaossloth sandbox/session_store.py --cls SharedSessionStore --method update_session
Rate:   197 of 300 runs fail (66 %) on the stock loop: python tests/sandbox/natural.py session_store 300
Prints: repaired: lost update of SharedSessionStore.sessions['u1'] · label stock · MOVE_AWAIT_OUT in
        SharedSessionStore.update_session
"""

import asyncio
import random


class Backend:
    """Stands for a remote service: every request takes a random time and changes nothing here."""

    async def authenticate(self, key: str) -> None:
        await asyncio.sleep(random.uniform(0.0, 0.008))

    async def ping(self, key: str) -> None:
        await asyncio.sleep(random.uniform(0.002, 0.004))


class SharedSessionStore:
    """Counts the requests of each user's session."""

    def __init__(self, users: tuple[str, ...] = ("u1", "u2")) -> None:
        self.backend = Backend()
        self.sessions = dict.fromkeys(users, 0)

    async def update_session(self, key: str = "u1") -> None:
        await self.backend.authenticate(key)
        current = self.sessions[key]
        await self.backend.ping(key)  # keeps the remote session alive
        self.sessions[key] = current + 1


async def scenario() -> None:
    store = SharedSessionStore()
    await asyncio.gather(store.update_session("u1"), store.update_session("u1"))
    assert store.sessions["u1"] == 2, f"2 updates, but the session counts {store.sessions['u1']}"
