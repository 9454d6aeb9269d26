"""A worker that is cancelled rolls back, awaits its clean-up and lets the cancellation through."""

import asyncio
from contextlib import suppress


class Account:
    def __init__(self):
        self.reserved = 0
        self.paid = 0

    async def pay(self):
        self.reserved += 1
        try:
            await asyncio.sleep(10)
            self.paid += 1
        finally:
            self.reserved -= 1
            await asyncio.sleep(0)


async def scenario():
    account = Account()
    task = asyncio.create_task(account.pay())
    await asyncio.sleep(0.001)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert (account.reserved, account.paid) == (0, 0)
