"""Real programs that get stuck on the stock loop: kind, edges and the exact sentence of the report."""

from __future__ import annotations

import asyncio
import sys

import pytest

from chaossloth.evidence import Frame, WaitEdge
from chaossloth.subject.primitives import watch
from tests.liveness.stuck import FILE, run


def test_self_deadlock_names_both_lines() -> None:
    report = run(
        """
        class Entry:
            def __init__(self):
                self._gate = named(asyncio.Lock(), "Entry._gate")

            async def setup(self):
                async with self._gate:
                    await asyncio.sleep(0)
                    await self.remove()

            async def remove(self):
                async with self._gate:
                    pass

        async def main():
            await Entry().setup()
        """
    ).report
    assert report.kind == "self-deadlock"
    assert report.sentence == (
        "main holds Entry._gate (since buggy.py:6) and waits for it again at buggy.py:11; asyncio.Lock is not reentrant"
    )
    assert report.cycle == (
        WaitEdge(
            task="main",
            resource="Entry._gate",
            operation="Lock.acquire",
            at=Frame(FILE, 11, "Entry.remove"),
            holder="main",
            held_at=Frame(FILE, 6, "Entry.setup"),
        ),
    )
    assert report.coffman == (
        "mutual exclusion: Entry._gate (Lock, one holder at a time)",
        "hold and wait: main keeps Entry._gate (since buggy.py:6) while it waits for Entry._gate at buggy.py:11",
        "no preemption: only release() frees these, and main cannot reach its own",
        "circular wait: main → main",
    )


ABBA = """
class RunBook:
    def __init__(self):
        self._registry = named(asyncio.Lock(), "RunBook._registry")
        self._entries = {}

    async def open(self, run):
        async with self._registry:
            entry = self._entries.setdefault(run, asyncio.Lock())
            await entry.acquire()
        return entry

    async def drop(self, run, entry):
        async with self._registry:
            self._entries.pop(run, None)
        entry.release()

async def abort(book, steps):
    for _ in range(steps):
        await asyncio.sleep(0)
    entry = await book.open("run-1")
    for _ in range(5):
        await asyncio.sleep(0)
    await book.drop("run-1", entry)

async def main():
    book = RunBook()
    a = asyncio.create_task(abort(book, 0), name="A")
    b = asyncio.create_task(abort(book, 2), name="B")
    await asyncio.gather(a, b)
"""


def test_two_tasks_that_take_two_locks_in_opposite_order() -> None:
    outcome = run(ABBA)
    report = outcome.report
    assert report.kind == "cycle"
    assert report.sentence == (
        "A holds Lock#2 created at buggy.py:8 (since buggy.py:9) and waits for RunBook._registry at buggy.py:13; "
        "B holds RunBook._registry (since buggy.py:7) and waits for Lock#2 created at buggy.py:8 at buggy.py:9"
    )
    assert [(edge.task, edge.holder) for edge in report.cycle] == [("A", "B"), ("B", "A")]
    assert report.coffman[1:] == (
        "hold and wait: A keeps Lock#2 created at buggy.py:8 (since buggy.py:9) while it waits for RunBook._registry "
        "at buggy.py:13; B keeps RunBook._registry (since buggy.py:7) while it waits for Lock#2 created at buggy.py:8 "
        "at buggy.py:9",
        "no preemption: only release() frees these, and A and B cannot reach theirs",
        "circular wait: A → B → A",
    )
    orders = {(edge.task, edge.first, edge.second) for edge in outcome.edges}
    entry = "Lock#2 created at buggy.py:8"
    assert {("A", "RunBook._registry", entry), ("A", entry, "RunBook._registry")} <= orders


def test_tasks_of_one_name_are_told_apart() -> None:
    report = run(ABBA.replace('name="A"', 'name="abort"').replace('name="B"', 'name="abort"')).report
    assert report.coffman[-1] == "circular wait: abort #1 → abort #2 → abort #1"
    assert {edge.task for edge in report.cycle} == {"abort #1", "abort #2"}
    assert {edge.holder for edge in report.cycle} == {"abort #1", "abort #2"}


def test_a_cycle_of_three_philosophers_is_reported_whole() -> None:
    report = run(
        """
        async def dine(left, right):
            async with left:
                await asyncio.sleep(0)
                async with right:
                    pass

        async def main():
            forks = [named(asyncio.Semaphore(1), f"fork{i}") for i in range(3)]
            await asyncio.gather(*(
                asyncio.create_task(dine(forks[i], forks[(i + 1) % 3]), name=f"p{i}") for i in range(3)
            ))
        """
    ).report
    assert report.kind == "cycle"
    assert report.sentence == (
        "p0 holds fork0 (since buggy.py:2) and waits for fork1 at buggy.py:4; "
        "p1 holds fork1 (since buggy.py:2) and waits for fork2 at buggy.py:4; "
        "p2 holds fork2 (since buggy.py:2) and waits for fork0 at buggy.py:4"
    )
    assert report.coffman[0] == (
        "mutual exclusion: fork1 (Semaphore, one holder at a time), fork2 (Semaphore, one holder at a time), "
        "fork0 (Semaphore, one holder at a time)"
    )


def test_a_task_awaited_under_the_lock_that_it_needs() -> None:
    report = run(
        """
        async def child(lock):
            async with lock:
                pass

        async def main():
            lock = named(asyncio.Lock(), "lock")
            async with lock:
                await asyncio.create_task(child(lock), name="child")
        """
    ).report
    assert report.kind == "cycle"
    assert report.sentence == (
        "child waits for lock at buggy.py:2; main holds lock (since buggy.py:7) and waits for task child at buggy.py:8"
    )
    assert report.coffman == ()


_CHILD = """
async def child(lock):
    async with lock:
        pass

async def main():
    lock = named(asyncio.Lock(), "lock")
    async with lock:
        {waiting}
"""


@pytest.mark.parametrize(
    ("waiting", "operation"),
    [
        ("await asyncio.gather(asyncio.create_task(child(lock), name='child'))", "gather"),
        ("await asyncio.wait([asyncio.create_task(child(lock), name='child')])", "wait"),
        ("await asyncio.shield(asyncio.create_task(child(lock), name='child'))", "await"),
        ("await asyncio.gather(asyncio.shield(asyncio.create_task(child(lock), name='child')))", "gather"),
        ("await asyncio.wait_for(asyncio.create_task(child(lock), name='child'), None)", "await"),
        ("await next(iter(asyncio.as_completed([asyncio.create_task(child(lock), name='child')])))", "first of"),
        (
            "await asyncio.wait([asyncio.create_task(child(lock), name='child')], return_when=asyncio.FIRST_COMPLETED)",
            "first of",
        ),
    ],
)
def test_every_way_to_wait_for_a_task_is_seen_through(waiting: str, operation: str) -> None:
    report = run(_CHILD.format(waiting=waiting)).report
    assert report.kind == "cycle"
    assert [(edge.task, edge.operation, edge.holder) for edge in report.cycle] == [
        ("child", "Lock.acquire", "main"),
        ("main", operation, "child"),
    ]
    assert report.cycle[1].at == Frame(FILE, 8, "main")


def test_a_task_group_is_seen_through() -> None:
    report = run(
        """
        async def child(lock):
            await lock.acquire()

        async def main():
            lock = named(asyncio.Lock(), "lock")
            async with lock:
                async with asyncio.TaskGroup() as group:
                    group.create_task(child(lock), name="child")
        """
    ).report
    assert report.sentence.startswith(
        "child waits for lock at buggy.py:2; main holds lock (since buggy.py:6) and waits"
    )
    assert report.cycle[1].operation == "TaskGroup"


def test_an_event_cleared_after_the_ring_is_a_lost_wakeup() -> None:
    report = run(
        """
        class Porter:
            def __init__(self):
                self.rung = named(asyncio.Event(), "Porter.rung")
                self.done = named(asyncio.Event(), "Porter.done")
                self.todo, self.served = [], []

            async def attend(self):
                while len(self.served) < 2:
                    await self.rung.wait()
                    batch, self.todo = self.todo, []
                    await asyncio.sleep(0)
                    self.served += batch
                    self.rung.clear()
                self.done.set()

        async def main():
            porter = Porter()
            shift = asyncio.create_task(porter.attend(), name="shift")
            for job in ("trunk", "hatbox"):
                porter.todo.append(job)
                porter.rung.set()
                await asyncio.sleep(0)
            await porter.done.wait()
            await shift
        """
    ).report
    assert report.kind == "lost-wakeup"
    assert report.sentence == (
        "main waits for Porter.done to be set at buggy.py:23; shift waits for Porter.rung to be set at buggy.py:9; "
        "every other task has ended, so nobody is left to wake them"
    )
    assert report.cycle[0] == WaitEdge(
        "main", "Porter.done", "Event.wait", Frame(FILE, 23, "main"), holder=None, held_at=None
    )
    assert report.coffman == ()


@pytest.mark.parametrize(
    ("setup", "waiting", "sentence"),
    [
        ("q = named(asyncio.Queue(), 'q')", "await q.get()", "main waits for an item from q at buggy.py:3; "),
        (
            "q = named(asyncio.Queue(1), 'q'); q.put_nowait(1)",
            "await q.put(2)",
            "main waits for room in q at buggy.py:3; ",
        ),
        (
            "q = named(asyncio.Queue(), 'q'); q.put_nowait(1)",
            "await q.join()",
            "main waits for q to be worked off (task_done) at buggy.py:3; ",
        ),
        ("b = named(asyncio.Barrier(2), 'b')", "await b.wait()", "main waits at barrier b at buggy.py:3; "),
        (
            "f = asyncio.get_running_loop().create_future()",
            "await f",
            "main waits for a future at buggy.py:3; ",
        ),
        ("s = named(asyncio.Semaphore(0), 's')", "await s.acquire()", "main waits for s at buggy.py:3; "),
    ],
)
def test_waiters_that_nobody_can_wake(setup: str, waiting: str, sentence: str) -> None:
    report = run(f"async def main():\n    {setup}\n    {waiting}\n").report
    assert report.kind == "lost-wakeup"
    assert report.sentence.startswith(sentence + "every other task has ended, so nobody is left to ")


def test_a_condition_that_is_not_notified() -> None:
    report = run(
        """
        async def main():
            cond = named(asyncio.Condition(), "cond")
            async with cond:
                await cond.wait_for(lambda: False)
        """
    ).report
    assert report.kind == "lost-wakeup"
    assert report.sentence.startswith("main waits to be notified on cond at buggy.py:4; every other task has ended")


def test_a_notified_waiter_that_cannot_get_the_lock_back_is_no_lost_wakeup() -> None:
    report = run(
        """
        async def waiter(cond):
            async with cond:
                await cond.wait()

        async def main():
            cond = named(asyncio.Condition(), "cond")
            task = asyncio.create_task(waiter(cond), name="waiter")
            await asyncio.sleep(0)
            async with cond:
                cond.notify()
                await asyncio.wait([task])
        """
    ).report
    assert report.kind == "cycle"
    assert report.sentence == (
        "main holds cond (since buggy.py:9) and waits for task waiter at buggy.py:11; "
        "waiter waits for cond at buggy.py:3"
    )


def test_a_lock_whose_holder_has_ended() -> None:
    report = run(
        """
        async def leak(lock):
            await lock.acquire()

        async def main():
            lock = named(asyncio.Lock(), "lock")
            await asyncio.create_task(leak(lock), name="leak")
            await lock.acquire()
        """
    ).report
    assert report.kind == "all-waiting"
    assert report.sentence == "main waits for lock at buggy.py:7, held by leak (since buggy.py:2), which has ended"
    assert (report.cycle[0].holder, report.cycle[0].held_at) == ("leak", Frame(FILE, 2, "leak"))


def test_the_await_line_is_found_through_async_generators_and_awaitables() -> None:
    report = run(
        """
        class Ticket:
            def __init__(self, event):
                self.event = event

            def __await__(self):
                yield from self.event.wait().__await__()

        async def tickets(event):
            await Ticket(event)
            yield 1

        async def main():
            async for _ in tickets(named(asyncio.Event(), "event")):
                pass
        """
    ).report
    assert report.cycle[0].at == Frame(FILE, 6, "Ticket.__await__")


def test_a_program_that_ends_has_nothing_to_report_and_leaves_nothing_behind() -> None:
    outcome = run(
        """
        async def main():
            lock = asyncio.Lock()
            async with lock:
                pass
            return "done"
        """
    )
    assert (outcome.result, outcome.deadlock) == ("done", None)
    assert not watch.active
    assert sys.modules["asyncio.locks"].Lock.acquire is asyncio.Lock.acquire
