"""A ticket shop that sells more tickets than there are seats.

Wrong:  `buy` checks the number of free seats, awaits the check of the card, then takes a seat on the strength of the
        old answer (stale read). Two customers who are checked at the same time both get the last seat.
Run:    chaossloth sandbox/ticket_shop.py::scenario
Rate:   220 of 300 runs fail (73 %) on the stock loop: python tests/sandbox/natural.py ticket_shop 300
Prints: repaired: check then act of TicketShop.free_seats · label stock · WRAP_ATOMIC_SECTION in TicketShop.buy
"""

import asyncio
import random


class CardService:
    """Stands for a remote service that says whether a card is valid; it charges nothing."""

    async def check(self, customer: str) -> bool:
        await asyncio.sleep(random.uniform(0.001, 0.003))
        return not customer.startswith("blocked")


class TicketShop:
    def __init__(self, seats: int = 1) -> None:
        self.cards = CardService()
        self.free_seats = seats
        self.guests: list[str] = []

    async def buy(self, customer: str) -> bool:
        """Whether the customer got a seat."""
        if self.free_seats < 1:
            return False
        if not await self.cards.check(customer):
            return False
        self.free_seats -= 1
        self.guests.append(customer)
        return True


async def scenario() -> None:
    shop = TicketShop(seats=1)

    async def customer(name: str) -> bool:
        await asyncio.sleep(random.uniform(0.0, 0.005))
        return await shop.buy(name)

    await asyncio.gather(customer("ann"), customer("bob"))
    assert shop.free_seats >= 0, f"1 seat, {len(shop.guests)} guests: {shop.guests}"
