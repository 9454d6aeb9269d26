"""Two writers of one in-memory database; each change is one statement."""

import asyncio

import aiosqlite


async def scenario():
    async with aiosqlite.connect(":memory:") as database:
        await database.execute("create table totals (name text primary key, value integer)")
        await database.execute("insert into totals values ('a', 0)")

        async def add(amount):
            await database.execute("update totals set value = value + ? where name = 'a'", (amount,))

        await asyncio.gather(add(1), add(2))
        async with database.execute("select value from totals") as cursor:
            assert await cursor.fetchone() == (3,)
