"""Programs with one fault each that only a cancellation shows, and their fixed forms (`FIXED` in place of `FAULT`).

Each source is a module with `main`; the tasks to cancel are those that match `victims`. A comment marks the line of the
cause, "# here".
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PROGRAMS", "Subject"]


@dataclass(frozen=True)
class Subject:
    """victims: pattern; double: needs a second cancellation; pattern: the name of the fault; mark: what the diagnosis
    has to name the line of."""

    template: str
    fault: str
    fixed: str
    pattern: str
    victims: str | None = None
    double: bool = False

    @property
    def buggy(self) -> str:
        return self.template.replace("    FAULT\n", self.fault)

    @property
    def correct(self) -> str:
        return self.template.replace("    FAULT\n", self.fixed)


def line_of(source: str, mark: str = "# here") -> int:
    return next(number for number, text in enumerate(source.splitlines(), 1) if text.endswith(mark))


GATE = """
import asyncio
from collections import deque

class Gate:
    def __init__(self, places):
        self.places = places
        self.queue = deque()
    def leave(self):
        while self.queue:
            turn = self.queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.places += 1
    async def enter(self):
        if self.places:
            self.places -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self.queue.append(turn)
    FAULT

async def main():
    gate = Gate(1)
    async def visit():
        await gate.enter()
        try:
            await asyncio.sleep(0)
        finally:
            gate.leave()
    await gate.enter()
    guest = asyncio.create_task(visit(), name="guest")
    await asyncio.sleep(0.001)
    gate.leave()
    await asyncio.wait([guest])
    assert gate.places == 1, gate.places
"""

QUEUE = """
import asyncio

async def main():
    queue = asyncio.Queue()
    done = []
    async def work():
        while True:
            item = await queue.get()
    FAULT
            queue.task_done()
    workers = [asyncio.create_task(work(), name=name) for name in ("victim", "other")]
    for item in range(3):
        queue.put_nowait(item)
    await queue.join()
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    assert sorted(done) == [0, 1, 2]
"""

TURNS = """
import asyncio

class Turns:
    def __init__(self):
        self.taken = False
        self.waiting = []
    async def take(self):
        if not self.taken:
            self.taken = True
            return
        turn = asyncio.get_running_loop().create_future()
        self.waiting.append(turn)
        try:
            await turn  # here
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give()
            raise
    def give(self):
    FAULT
        self.taken = False

async def main():
    turns = Turns()
    async def visit():
        await turns.take()
        try:
            await asyncio.sleep(0.001)
        finally:
            turns.give()
    tasks = [asyncio.create_task(visit(), name=name) for name in ("first", "second", "third")]
    await asyncio.wait(tasks)
"""

SHARED = """
import asyncio

class Cache:
    def __init__(self):
        self.running = {}
    async def get(self, key):
        task = self.running.get(key)
        if task is None:
            task = self.running[key] = asyncio.create_task(self.fetch(key))
            task.add_done_callback(lambda _: self.running.pop(key, None))
    FAULT
    async def fetch(self, key):
        await asyncio.sleep(0.01)
        return key * 2

async def main():
    cache = Cache()
    async def ask():
        return await cache.get("a")
    asked = [asyncio.create_task(ask(), name=name) for name in ("victim", "stays")]
    await asyncio.wait(asked)
"""

REPLIES = """
import asyncio
from collections import deque

class Line:
    def __init__(self):
        self.replies = deque()
        self.busy = asyncio.Lock()
    async def ask(self, word):
        async with self.busy:
            self.replies.append(word.upper())
    FAULT
            return self.replies.popleft()

async def main():
    line = Line()
    hasty = asyncio.create_task(line.ask("a"), name="hasty")
    await asyncio.wait([hasty])
    answer = await line.ask("b")
    assert answer == "B", answer
"""

CLEAN_UP = """
import asyncio

class Pool:
    def __init__(self):
        self.free = 1
    async def close(self):
        await asyncio.sleep(0.001)  # here
    async def use(self):
        self.free -= 1
        try:
            await asyncio.sleep(0.001)
        except asyncio.CancelledError:
    FAULT
            raise
        self.free += 1

async def main():
    pool = Pool()
    user = asyncio.create_task(pool.use(), name="user")
    await asyncio.wait([user])
    assert pool.free == 1, pool.free
"""

LOCKED = """
import asyncio

async def main():
    lock = asyncio.Lock()
    async def change():
        await lock.acquire()
    FAULT
    changes = [asyncio.create_task(change(), name=name) for name in ("victim", "other")]
    await asyncio.wait(changes[:1])
"""

TIMED = """
import asyncio

async def main():
    queue = asyncio.Queue()
    kept = []
    async def read():
        item = await queue.get()
    FAULT
        kept.append(item)
    async def reading():
        try:
            async with asyncio.timeout(5):
                await read()
        except TimeoutError:
            pass
    reader = asyncio.create_task(reading(), name="reader")
    queue.put_nowait("letter")
    await asyncio.wait([reader])
    assert kept or not queue.empty(), "the letter is lost"
"""

PROGRAMS: dict[str, Subject] = {
    "permit lost at hand-over": Subject(
        GATE,
        "        await turn  # here\n",
        """\
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()
            raise
""",
        "leaked-permit",
    ),
    "item lost between get and process": Subject(
        QUEUE,
        "            await asyncio.sleep(0.001)  # here\n            done.append(item)\n",
        """\
            try:
                await asyncio.sleep(0.001)
                done.append(item)
            except asyncio.CancelledError:
                queue.put_nowait(item)
                queue.task_done()
                raise
""",
        "lost-item",
        victims="victim",
    ),
    "waiter stranded": Subject(
        TURNS,
        """\
        if self.waiting:
            turn = self.waiting.pop(0)
            if not turn.done():
                turn.set_result(None)
            return
""",
        """\
        while self.waiting:
            turn = self.waiting.pop(0)
            if not turn.done():
                turn.set_result(None)
                return
""",
        "stranded-waiter",
        victims="second",
    ),
    "shared work cancelled": Subject(
        SHARED,
        "        return await task  # here\n",
        "        return await asyncio.shield(task)\n",
        "shared-work-cancelled",
        victims="victim",
    ),
    "replies out of step": Subject(
        REPLIES,
        "            await asyncio.sleep(0.001)  # here\n",
        """\
            try:
                await asyncio.sleep(0.001)
            except asyncio.CancelledError:
                self.replies.clear()
                raise
""",
        "desynchronised-replies",
    ),
    "cancelled again in its clean-up": Subject(
        CLEAN_UP,
        "            await self.close()\n            self.free += 1\n",
        "            self.free += 1\n            await self.close()\n",
        "partial-effect",
        double=True,
    ),
    "lock kept": Subject(
        LOCKED,
        "        await asyncio.sleep(0.001)  # here\n        lock.release()\n",
        "        try:\n            await asyncio.sleep(0.001)\n        finally:\n            lock.release()\n",
        "leaked-permit",
        victims="victim",
    ),
    "timeout after the item was taken": Subject(
        TIMED,
        "        await asyncio.sleep(0.001)  # here\n",
        """\
        try:
            await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            queue.put_nowait(item)
            raise
""",
        "lost-item",
        victims="nobody",
    ),
}
