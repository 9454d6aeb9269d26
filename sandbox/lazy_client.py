"""An API client that logs in on first use, and now and then logs in twice.

Wrong:  `session` checks that there is no session, awaits the login, then stores it (check-then-act). A second request
        that checks during the login sees no session either: two logins, and the first session is dropped while in use.
Run:    chaossloth sandbox/lazy_client.py::scenario
Rate:   224 of 300 runs fail (75 %) on the stock loop: python tests/sandbox/natural.py lazy_client 300
Prints: repaired: check then act of ApiClient._session · label stock · WRAP_ATOMIC_SECTION in ApiClient.session
"""

import asyncio
import random


class Server:
    """Stands for the remote side; remembers every session it handed out."""

    def __init__(self) -> None:
        self.sessions: list[str] = []

    async def log_in(self) -> str:
        await asyncio.sleep(random.uniform(0.001, 0.003))
        self.sessions.append(f"session-{len(self.sessions) + 1}")
        return self.sessions[-1]


class ApiClient:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._session: str | None = None

    async def session(self) -> str:
        if self._session is None:
            self._session = await self._server.log_in()
        return self._session

    async def get(self, path: str) -> str:
        return f"{await self.session()} GET {path}"


async def scenario() -> None:
    server = Server()
    client = ApiClient(server)

    async def visitor(path: str) -> str:
        await asyncio.sleep(random.uniform(0.0, 0.005))
        return await client.get(path)

    await asyncio.gather(visitor("/orders"), visitor("/prices"))
    assert len(server.sessions) == 1, f"one client logged in {len(server.sessions)} times"
