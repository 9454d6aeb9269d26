"""The watched primitives are the standard library's: same results, exceptions, order, cancellation, signatures.

Each program runs twice, plain and watched, and must give the same log; what the log must be is asserted once as well.
"""

from __future__ import annotations

import asyncio
import copy
import gc
import inspect
import sys
import weakref
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from chaossloth.subject.primitives import PrimitiveWatch, watch
from tests.liveness.stuck import Recorder

PRIMITIVES = (
    asyncio.Lock,
    asyncio.Semaphore,
    asyncio.BoundedSemaphore,
    asyncio.Condition,
    asyncio.Event,
    asyncio.Queue,
    asyncio.PriorityQueue,
    asyncio.LifoQueue,
    asyncio.Barrier,
)
Log = list[Any]


@pytest.fixture
def watched() -> Iterator[PrimitiveWatch]:
    watch.recorder = Recorder()
    watch.is_subject = lambda file: file == __file__
    watch.install()
    watch.start_run()
    yield watch
    watch.uninstall()
    watch.recorder = None


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def lock_is_fifo_and_skips_the_cancelled(log: Log) -> None:
    lock = asyncio.Lock()

    async def user(name: str) -> None:
        log.append(("asks", name))
        async with lock:
            log.append(("has", name))
            await turns(2)

    tasks = [asyncio.create_task(user(name)) for name in "abcd"]
    await turns(2)
    tasks[1].cancel()
    log.append(lock.locked())
    log.append(await asyncio.gather(*tasks, return_exceptions=True))
    log.append(lock.locked())


async def lock_cancelled_while_being_woken(log: Log) -> None:
    lock = asyncio.Lock()
    await lock.acquire()

    async def user(name: str) -> None:
        async with lock:
            log.append(name)

    tasks = [asyncio.create_task(user(name)) for name in "ab"]
    await turns(1)
    lock.release()
    tasks[0].cancel()  # it has been woken and not yet run: the next in line must get the lock
    log.append(await asyncio.gather(*tasks, return_exceptions=True))


async def errors_are_the_same(log: Log) -> None:
    async def attempt(call: Callable[[], Any]) -> None:
        try:
            value = call()
            log.append(await value if inspect.isawaitable(value) else value)
        except Exception as error:
            log.append((type(error), str(error)))

    cond, bounded, full = asyncio.Condition(), asyncio.BoundedSemaphore(1), asyncio.Queue[int](1)
    full.put_nowait(1)
    await attempt(asyncio.Lock().release)
    await attempt(bounded.release)
    await attempt(cond.wait)
    await attempt(cond.notify)
    await attempt(lambda: full.put_nowait(2))
    await attempt(asyncio.Queue().get_nowait)
    await attempt(asyncio.Queue().task_done)
    await attempt(lambda: asyncio.Semaphore(-1))
    await attempt(lambda: asyncio.Barrier(0))
    await attempt(lambda: asyncio.Lock().acquire(1))  # type: ignore[call-arg]
    await attempt(lambda: asyncio.Queue().put())  # type: ignore[call-arg]
    await attempt(lambda: asyncio.Event().set(1))  # type: ignore[call-arg]


async def semaphore_hands_permits_on(log: Log) -> None:
    semaphore = asyncio.Semaphore(2)

    async def user(name: str, rounds: int) -> None:
        async with semaphore:
            log.append((name, semaphore.locked()))
            await turns(rounds)

    tasks = [asyncio.create_task(user(name, i)) for i, name in enumerate("abcde")]
    await turns(1)
    tasks[3].cancel()
    log.append(await asyncio.gather(*tasks, return_exceptions=True))


async def condition_notifies_in_order(log: Log) -> None:
    cond = asyncio.Condition()
    ready: list[str] = []

    async def waiter(name: str) -> None:
        async with cond:
            log.append((name, await cond.wait_for(lambda: name in ready), cond.locked()))

    tasks = [asyncio.create_task(waiter(name)) for name in "abc"]
    await turns(1)
    for name in "ba":
        async with cond:
            ready.append(name)
            cond.notify_all()
        await turns(4)
    tasks[2].cancel()
    log.append(await asyncio.gather(*tasks, return_exceptions=True))
    shared = asyncio.Lock()
    log.append(asyncio.Condition(shared)._lock is shared)  # type: ignore[attr-defined]


async def event_wakes_all(log: Log) -> None:
    event = asyncio.Event()

    async def waiter(name: str) -> None:
        log.append((name, await event.wait()))

    tasks = [asyncio.create_task(waiter(name)) for name in "ab"]
    await turns(1)
    event.set()
    event.clear()
    log.append(event.is_set())
    await asyncio.gather(*tasks)


async def queue_blocks_and_joins(log: Log) -> None:
    for queue in (asyncio.Queue[int](2), asyncio.PriorityQueue[int](2), asyncio.LifoQueue[int](2)):

        async def consumer(queue: asyncio.Queue[int] = queue) -> None:
            while True:
                item = await queue.get()
                log.append((item, queue.qsize(), queue.full(), queue.empty()))
                await asyncio.sleep(0)
                queue.task_done()

        for item in (3, 1):
            await queue.put(item=item)
        late = asyncio.create_task(queue.put(2))
        worker = asyncio.create_task(consumer())
        await queue.join()
        log.append((late.done(), queue.maxsize))
        worker.cancel()
        log.append(await asyncio.gather(worker, late, return_exceptions=True))


async def queue_getter_cancelled_while_being_woken(log: Log) -> None:
    queue: asyncio.Queue[int] = asyncio.Queue()
    getters = [asyncio.create_task(queue.get()) for _ in range(2)]
    await turns(1)
    queue.put_nowait(7)
    getters[0].cancel()
    await turns(3)
    log.append([(task.cancelled(), task.done() and not task.cancelled() and task.result()) for task in getters])


async def barrier_meets_and_breaks(log: Log) -> None:
    barrier = asyncio.Barrier(2)

    async def party() -> None:
        async with barrier as position:
            log.append((position, barrier.n_waiting, barrier.broken))

    await asyncio.gather(party(), party())
    lonely = asyncio.create_task(barrier.wait())
    await turns(1)
    log.append((barrier.n_waiting, barrier.parties))
    await barrier.abort()
    log.append([type(each) for each in await asyncio.gather(lonely, return_exceptions=True)])
    log.append(barrier.broken)
    await barrier.reset()
    log.append(barrier.broken)


async def nothing_suspends_that_did_not(log: Log) -> None:
    lock, semaphore, event, queue = asyncio.Lock(), asyncio.Semaphore(), asyncio.Event(), asyncio.Queue[int]()
    event.set()
    coroutines: list[Any] = [lock.acquire(), semaphore.acquire(), event.wait(), queue.put(1), queue.get(), queue.join()]
    for coroutine in coroutines:
        try:
            coroutine.send(None)
            log.append("suspended")
            coroutine.close()
        except StopIteration as stop:
            log.append(stop.value)
            if coroutine.__qualname__ == "Queue.get":
                queue.task_done()


PROGRAMS: dict[str, tuple[Callable[[Log], Coroutine[Any, Any, None]], Callable[[Log], bool]]] = {
    "lock fifo": (
        lock_is_fifo_and_skips_the_cancelled,
        lambda log: [name for what, name in filter(_is_pair, log) if what == "has"] == ["a", "c", "d"],
    ),
    "lock woken": (lock_cancelled_while_being_woken, lambda log: log[0] == "b"),
    "errors": (
        errors_are_the_same,
        lambda log: (
            [each[0] for each in log]
            == [RuntimeError, ValueError, RuntimeError, RuntimeError, asyncio.QueueFull, asyncio.QueueEmpty]
            + [ValueError] * 3
            + [TypeError] * 3
        ),
    ),
    "semaphore": (semaphore_hands_permits_on, lambda log: [each[0] for each in filter(_is_pair, log)] == list("abce")),
    "condition": (condition_notifies_in_order, lambda log: log[:2] == [("b", True, True), ("a", True, True)]),
    "event": (event_wakes_all, lambda log: log == [False, ("a", True), ("b", True)]),
    "queue": (queue_blocks_and_joins, lambda log: [each[0] for each in log if _is_item(each)][:3] == [3, 1, 2]),
    "queue woken": (queue_getter_cancelled_while_being_woken, lambda log: log == [[(True, False), (False, 7)]]),
    "barrier": (barrier_meets_and_breaks, lambda log: log[-3:] == [[asyncio.BrokenBarrierError], True, False]),
    "no suspension": (nothing_suspends_that_did_not, lambda log: log == [True, True, True, None, 1, None]),
}


def _is_pair(entry: Any) -> bool:
    return isinstance(entry, tuple) and len(entry) == 2


def _is_item(entry: Any) -> bool:
    return isinstance(entry, tuple) and len(entry) == 4


def _played(program: Callable[[Log], Coroutine[Any, Any, None]]) -> Log:
    log: Log = []
    asyncio.run(program(log))
    return [_comparable(entry) for entry in log]


def _comparable(entry: Any) -> Any:
    if isinstance(entry, BaseException):
        return type(entry), str(entry)
    return [_comparable(each) for each in entry] if isinstance(entry, list) else entry


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_watched_program_behaves_like_the_plain_one(name: str) -> None:
    program, expected = PROGRAMS[name]
    plain = _played(program)
    assert expected(plain), plain
    watch.recorder = Recorder()
    watch.install()
    watch.start_run()
    try:
        seen = _played(program)
    finally:
        watch.uninstall()
        watch.recorder = None
    assert seen == plain


def test_no_step_is_added() -> None:
    """The loop runs equally many handles with and without the watch."""

    def handles() -> int:
        count = 0
        plain = asyncio.events.Handle._run

        def counted(self: asyncio.Handle) -> None:
            nonlocal count
            count += 1
            plain(self)

        asyncio.events.Handle._run = counted  # type: ignore[method-assign]
        try:
            for program, _ in PROGRAMS.values():
                _played(program)
        finally:
            asyncio.events.Handle._run = plain  # type: ignore[method-assign]
        return count

    before = handles()
    watch.install()
    try:
        assert handles() == before
    finally:
        watch.uninstall()


def test_install_and_uninstall_are_idempotent_and_restore_the_originals() -> None:
    before = {(cls, name): value for cls in PRIMITIVES for name, value in vars(cls).items()}
    watch.install()
    once = {(cls, name): value for cls in PRIMITIVES for name, value in vars(cls).items()}
    watch.install()
    assert once == {(cls, name): value for cls in PRIMITIVES for name, value in vars(cls).items()}
    assert once[(asyncio.Lock, "acquire")] is not before[(asyncio.Lock, "acquire")]
    watch.uninstall()
    watch.uninstall()
    after = {(cls, name): value for cls in PRIMITIVES for name, value in vars(cls).items()}
    assert all(after[key] is before[key] for key in before)
    assert after.keys() == before.keys()


def test_signatures_names_and_kinds_stay(watched: PrimitiveWatch) -> None:
    wrapped = {
        (cls, name): value for cls in PRIMITIVES for name, value in vars(cls).items() if inspect.isroutine(value)
    }
    watched.uninstall()
    for (cls, name), seen in wrapped.items():
        plain = vars(cls)[name]
        if isinstance(plain, classmethod):
            continue
        assert inspect.signature(seen) == inspect.signature(plain)
        assert (seen.__name__, seen.__qualname__, seen.__module__) == (
            plain.__name__,
            plain.__qualname__,
            plain.__module__,
        )
        assert inspect.iscoroutinefunction(seen) == inspect.iscoroutinefunction(plain)
        assert seen.__doc__ == plain.__doc__


def test_a_condition_made_while_watched_still_works_afterwards(watched: PrimitiveWatch) -> None:
    async def scenario() -> bool:
        cond = asyncio.Condition()
        watched.uninstall()
        async with cond:
            return cond.locked()

    assert asyncio.run(scenario())


def test_subclasses_that_override_methods_keep_their_own(watched: PrimitiveWatch) -> None:
    class Counting(asyncio.Queue[int]):
        def __init__(self) -> None:
            super().__init__(maxsize=1)
            self.calls: list[str] = []

        def full(self) -> bool:
            self.calls.append("full")
            return super().full()

        async def get(self) -> int:
            self.calls.append("get")
            return await super().get()

    async def scenario() -> list[str]:
        queue = Counting()
        await queue.put(1)
        await queue.get()
        return queue.calls

    assert asyncio.run(scenario()) == ["full", "full", "get"]


def test_the_instances_carry_nothing_new(watched: PrimitiveWatch) -> None:
    async def scenario() -> set[str]:
        lock = asyncio.Lock()
        async with lock:
            return set(vars(lock)) | set(vars(copy.copy(lock)))

    assert asyncio.run(scenario()) <= {"_waiters", "_locked", "_loop"}


def test_an_abandoned_task_stays_collectable(watched: PrimitiveWatch) -> None:
    async def scenario() -> tuple[Any, Any]:
        lock = asyncio.Lock()
        await lock.acquire()

        async def waiter(lock: asyncio.Lock) -> None:
            await lock.acquire()

        task = asyncio.create_task(waiter(lock))
        await turns(1)
        refs = weakref.ref(task), weakref.ref(lock)
        del task, lock
        gc.collect()
        return refs[0](), refs[1]()

    errors: list[Any] = []
    old, sys.unraisablehook = sys.unraisablehook, errors.append
    try:
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda _loop, context: errors.append(context))
        assert loop.run_until_complete(scenario()) == (None, None)
        loop.close()
    finally:
        sys.unraisablehook = old
    assert [context["message"] for context in errors] == ["Task was destroyed but it is pending!"]
