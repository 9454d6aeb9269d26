"""Check-then-act: two requests find no ticket and both redeem the same one-time voucher."""

import asyncio
import random


class BoxOffice:
    def __init__(self):
        self.valid_voucher = 0

    async def redeem(self, voucher):
        await asyncio.sleep(random.uniform(0, 0.004))
        if voucher != self.valid_voucher:
            raise PermissionError("voucher was redeemed before")
        self.valid_voucher += 1
        return f"ticket-{self.valid_voucher}", self.valid_voucher


class Visitor:
    def __init__(self, office):
        self.office = office
        self.voucher = 0
        self.ticket = None

    async def show(self):
        if self.ticket is None:  # critical: read
            self.ticket, self.voucher = await self.office.redeem(self.voucher)  # critical: write
        return self.ticket


async def scenario():
    visitor = Visitor(BoxOffice())

    async def gate():
        await asyncio.sleep(random.uniform(0, 0.012))
        return await visitor.show()

    shown = await asyncio.gather(gate(), gate())
    assert shown == ["ticket-1", "ticket-1"], shown
