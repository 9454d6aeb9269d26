"""No race: room for zero guests is meant as "no limit" and refuses everybody, in every order."""

import asyncio


class Hostel:
    def __init__(self, beds):
        self.beds = beds
        self.guests = 0

    async def check_in(self):
        if self.guests >= self.beds:
            raise RuntimeError("no bed left")  # refuses everybody
        self.guests += 1
        number = self.guests
        await asyncio.sleep(0)
        return number


async def scenario():
    hostel = Hostel(beds=0)
    keys = await asyncio.gather(hostel.check_in(), hostel.check_in())
    assert sorted(keys) == [1, 2]
