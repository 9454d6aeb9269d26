"""A bank whose transfers in opposite directions block each other for ever.

Wrong:  `transfer` locks the paying account, then the receiving one. Two transfers between the same accounts in opposite
        directions each hold one lock and wait for the other's (AB-BA deadlock). A fixed lock order repairs it.
Run:    chaossloth sandbox/bank_transfer.py::scenario
Rate:   232 of 300 runs fail (77 %) on the stock loop: python tests/sandbox/natural.py bank_transfer 300
Prints: no repair: cycle: order #1 holds Account.lock (since bank_transfer.py:31) and waits for Account.lock at
        bank_transfer.py:33; order #2 holds Account.lock (since bank_transfer.py:31) and waits for Account.lock at
        bank_transfer.py:33 · label stock
"""

import asyncio
import random


class Account:
    def __init__(self, name: str, balance: int) -> None:
        self.name = name
        self.balance = balance
        self.lock = asyncio.Lock()


async def check_limits(account: Account, amount: int) -> None:
    """Stands for a question to another service."""
    await asyncio.sleep(random.uniform(0.001, 0.003))
    if account.balance < amount:
        raise ValueError(f"{account.name} holds less than {amount}")


async def transfer(payer: Account, payee: Account, amount: int) -> None:
    async with payer.lock:
        await check_limits(payer, amount)
        async with payee.lock:
            payer.balance -= amount
            payee.balance += amount


async def scenario() -> None:
    ann, bob = Account("ann", 100), Account("bob", 100)

    async def order(payer: Account, payee: Account, amount: int) -> None:
        await asyncio.sleep(random.uniform(0.0, 0.005))
        await transfer(payer, payee, amount)

    await asyncio.gather(order(ann, bob, 30), order(bob, ann, 10))
    assert (ann.balance, bob.balance) == (80, 120)
