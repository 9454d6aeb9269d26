"""Two hundred tasks with fifty awaits each: some work under a lock, most on data of their own."""

import asyncio

TASKS = 200
AWAITS = 50


class Warehouse:
    def __init__(self):
        self.stock = dict.fromkeys(range(TASKS), 0)
        self.total = 0
        self.lock = asyncio.Lock()


async def deliver(warehouse, number):
    for _ in range(AWAITS - 1):
        warehouse.stock[number] += 1
        await asyncio.sleep(0)
    async with warehouse.lock:
        seen = warehouse.total
        await asyncio.sleep(0.001)
        warehouse.total = seen + warehouse.stock[number]


async def scenario():
    warehouse = Warehouse()
    await asyncio.gather(*[deliver(warehouse, number) for number in range(TASKS)])
    assert warehouse.total == TASKS * (AWAITS - 1)
