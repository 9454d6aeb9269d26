"""A web handler that answers one user with another user's data.

Wrong:  `handle` keeps the user of the request in a module global across an await. A second request overwrites it during
        the await, and the first one goes on with the second one's user. A context variable or a local would be private.
Run:    chaossloth sandbox/request_context.py::scenario
Rate:   226 of 300 runs fail (75 %) on the stock loop: python tests/sandbox/natural.py request_context 300
Prints: no repair: atomicity violation of request_context.current_user · label stock
"""

import asyncio
import random

current_user: str | None = None

DOCUMENTS = {"ann": ["contract"], "bob": ["invoice", "offer"]}


async def open_connection() -> None:
    """Stands for taking a connection from a database pool."""
    await asyncio.sleep(random.uniform(0.001, 0.003))


async def list_documents() -> list[str]:
    await open_connection()
    assert current_user is not None
    return DOCUMENTS[current_user]


async def handle(user: str) -> dict[str, object]:
    """The response to a request for the user's documents."""
    global current_user
    current_user = user
    documents = await list_documents()
    return {"user": user, "documents": documents}


async def scenario() -> None:
    async def browser(user: str) -> None:
        await asyncio.sleep(random.uniform(0.0, 0.005))
        response = await handle(user)
        assert response["documents"] == DOCUMENTS[user], f"{user} was shown {response['documents']}"

    await asyncio.gather(browser("ann"), browser("bob"))
