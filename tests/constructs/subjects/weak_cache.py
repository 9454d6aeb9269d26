"""A cache that keeps nothing alive: while somebody holds the session, everybody gets the same one."""

import asyncio
import weakref


class Session:
    def __init__(self, user):
        self.user = user


class Sessions:
    def __init__(self):
        self._cache = weakref.WeakValueDictionary()
        self._lock = asyncio.Lock()
        self.made = 0

    async def get(self, user):
        async with self._lock:
            session = self._cache.get(user)
            if session is None:
                await asyncio.sleep(0.001)
                session = self._cache[user] = Session(user)
                self.made += 1
            return session


async def scenario():
    sessions = Sessions()
    first, second = await asyncio.gather(sessions.get("ann"), sessions.get("ann"))
    assert first is second
    assert sessions.made == 1
