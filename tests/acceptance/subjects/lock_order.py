"""AB-BA deadlock: check_out waits for a book's lock inside the desk's lock, hand_in takes them the other way round."""

import asyncio
import random


class Library:
    def __init__(self):
        self._desk = asyncio.Lock()
        self._books = {}

    async def check_out(self, title):
        async with self._desk:  # cycle: desk held
            book = self._books.setdefault(title, asyncio.Lock())
            await book.acquire()  # cycle: waits for book
        return book

    async def hand_in(self, title, book):
        async with self._desk:  # cycle: waits for desk
            self._books.pop(title, None)
        book.release()


async def scenario():
    library = Library()

    async def reader():
        await asyncio.sleep(random.uniform(0, 0.013))
        book = await library.check_out("Emma")
        await asyncio.sleep(random.uniform(0, 0.003))
        await library.hand_in("Emma", book)

    await asyncio.gather(reader(), reader())
