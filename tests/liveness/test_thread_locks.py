"""Locks of threads: a step that stops the loop's thread for ever is a deadlock, with line and holder, not a hang."""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
from collections.abc import Iterator

import pytest

from chaossloth.evidence import LABELS
from chaossloth.explore.schedule import Schedule
from chaossloth.liveness import lock_order_cycles
from chaossloth.loop.quiet import NothingRunnable
from chaossloth.loop.stock import StockRun
from chaossloth.natural import sample
from chaossloth.subject.primitives import watch
from tests.liveness.controlled import deadlock, executor, lines, once
from tests.stock.programs import Scenario, is_subject

ACROSS_AN_AWAIT = """
import asyncio, threading

class Store:
    def __init__(self):
        self._gate = threading.Lock()
        self.rows = {}

    async def put(self, key):
        with self._gate:
            await asyncio.sleep(0)
            self.rows[key] = 1

async def main():
    store = Store()
    await asyncio.gather(store.put("a"), store.put("b"))
    assert len(store.rows) == 2
"""


def test_a_lock_held_across_an_await() -> None:
    report = deadlock(ACROSS_AN_AWAIT)
    assert report.kind == "blocked-loop"
    assert lines(report) == [("Store.put #2", 9, "Store.put #1", 9), ("Store.put #1", 10, "Store.put #2", 9)]
    assert [(edge.resource, edge.operation) for edge in report.cycle] == [
        ("Store._gate", "threading.Lock.acquire"),
        ("the loop's thread", "await"),
    ]
    name = report.cycle[0].at.file.rpartition("/")[2]  # type: ignore[union-attr]
    assert report.sentence == (
        f"Store.put #2 waits for Store._gate at {name}:9 and holds the loop's thread meanwhile; "
        f"Store.put #1 holds Store._gate (since {name}:9) and needs the loop's thread to go on at {name}:10"
    )
    assert report.coffman == (
        "mutual exclusion: Store._gate (threading.Lock, one holder at a time), the loop's thread (one step at a time)",
        f"hold and wait: Store.put #2 keeps the loop's thread while it waits for Store._gate at {name}:9; "
        f"Store.put #1 keeps Store._gate (since {name}:9) while it needs the loop's thread at {name}:10",
        "no preemption: only release() frees Store._gate, and Store.put #1 cannot reach its own",
        "circular wait: Store.put #2 → Store.put #1 → Store.put #2",
    )


def test_the_same_on_the_stock_loop() -> None:
    """Natural runs say it too, and end at once instead of at their time limit."""
    program = Scenario(ACROSS_AN_AWAIT.replace("main", "scenario"))
    run = StockRun(is_subject, 60.0)
    run.execute(program)
    assert isinstance(run.stop, NothingRunnable)
    assert run.audit is not None
    report = run.audit.deadlock
    assert report is not None
    assert lines(report) == [("Store.put #2", 10, "Store.put #1", 10), ("Store.put #1", 11, "Store.put #2", 10)]
    found = sample(program, 2, is_subject=is_subject, step_limit_s=60.0)
    assert [outcome.failure for outcome in found.outcomes] == ["deadlock", "deadlock"]
    assert found.deadlock == report
    assert found.natural.aborted is None
    assert not watch.active


def test_a_lock_that_the_task_holds_itself() -> None:
    report = deadlock(
        """
        import threading
        gate = threading.Lock()

        def inner():
            with gate:
                pass

        async def main():
            with gate:
                inner()
        """
    )
    assert report.kind == "self-deadlock"
    assert lines(report) == [("main", 5, "main", 9)]
    assert report.sentence.endswith("; threading.Lock is not reentrant")
    assert report.coffman[-1] == "circular wait: main → main"


@pytest.mark.parametrize(
    ("setup", "wait", "operation"),
    [
        ("import queue; q = queue.Queue()", "q.get()", "queue.Queue.get"),
        ("import queue; q = queue.Queue(1); q.put(1)", "q.put(2)", "queue.Queue.put"),
        ("import queue; q = queue.Queue(); q.put(1)", "q.join()", "queue.Queue.join"),
        ("import concurrent.futures as c; f = c.Future()", "f.result()", "concurrent.futures.Future.result"),
        ("import concurrent.futures as c; f = c.Future()", "f.exception()", "concurrent.futures.Future.exception"),
        ("import concurrent.futures as c; f = c.Future()", "c.wait([f])", "concurrent.futures.wait"),
        ("e = threading.Event()", "e.wait()", "threading.Event.wait"),
        ("s = threading.Semaphore(0)", "s.acquire()", "threading.Semaphore.acquire"),
        ("b = threading.Barrier(2)", "b.wait()", "threading.Barrier.wait"),
        ("c = threading.Condition(); c.acquire()", "c.wait()", "threading.Condition.wait"),
        (
            "f = asyncio.run_coroutine_threadsafe(asyncio.sleep(0), asyncio.get_running_loop())",
            "f.result()",
            "concurrent.futures.Future.result",
        ),
    ],
)
def test_whatever_waits_without_a_holder(setup: str, wait: str, operation: str) -> None:
    report = deadlock(f"import asyncio, threading\nasync def main():\n    {setup}\n    {wait}\n")
    assert report.kind == "blocked-loop"
    assert [(edge.task, edge.operation, edge.holder) for edge in report.cycle] == [("main", operation, None)]
    assert lines(report)[0][1] == 4
    assert f"main waits in {operation}() at " in report.sentence
    assert report.sentence.endswith("no task can run and no thread is left to end the wait")


def test_a_wait_in_a_function_of_the_subject_names_the_inner_line() -> None:
    report = deadlock(
        """
        import queue

        class Jobs:
            def __init__(self):
                self.waiting = queue.Queue()

            def next(self):
                return self.waiting.get()

        async def main():
            Jobs().next()
        """
    )
    assert lines(report) == [("main", 8, None, None)]
    assert report.cycle[0].at is not None
    assert report.cycle[0].at.function == "Jobs.next"
    assert "on Jobs.waiting" in report.sentence


def test_no_except_clause_hides_it() -> None:
    execution = once(
        """
        import threading
        gate = threading.Lock()

        async def main():
            gate.acquire()
            try:
                gate.acquire()
            except BaseException:
                return "swallowed"
        """
    )
    assert execution.outcome.failure == "deadlock"


CORRECT = {
    "within one step": """
        async def use():
            with gate:
                rows.append(1)
        await asyncio.gather(use(), use())
        """,
    "held across an await, nobody else": """
        with gate:
            await asyncio.sleep(1)
        """,
    "not blocking": """
        with gate:
            assert not gate.acquire(False)
            assert not gate.acquire(blocking=False)
        """,
    "reentrant": """
        lock = threading.RLock()
        async def use():
            with lock, lock:
                await asyncio.sleep(0)
        await asyncio.gather(use(), use())
        """,
    "handed over by a callback": """
        gate.acquire()
        asyncio.get_running_loop().call_soon(gate.release)
        await asyncio.sleep(0)
        with gate:
            pass
        """,
    "a thread that works": """
        ready = threading.Event()
        threading.Thread(target=ready.set).start()
        ready.wait()
        """,
    "a thread that is joined": """
        thread = threading.Thread(target=rows.append, args=(1,))
        thread.start()
        thread.join()
        assert rows
        """,
    "a pool": """
        import concurrent.futures
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            assert pool.submit(len, [1, 2]).result() == 2
            assert list(pool.map(abs, [-1, -2])) == [1, 2]
        """,
    "a body that waits for a task's lock": """
        def save():
            with gate:
                rows.append("saved")
        async def holder():
            with gate:
                await asyncio.sleep(0.01)
                rows.append("held")
        await asyncio.gather(holder(), asyncio.to_thread(save))
        assert sorted(rows) == ["held", "saved"]
        """,
    "a body that waits for an event of a task": """
        ready = threading.Event()
        def work():
            ready.wait()
            rows.append(2)
        async def ring():
            await asyncio.sleep(0.01)
            rows.append(1)
            ready.set()
        await asyncio.gather(ring(), asyncio.to_thread(work))
        assert rows == [1, 2]
        """,
    "two bodies that hand over": """
        box = queue.Queue()
        await asyncio.gather(asyncio.to_thread(box.get), asyncio.to_thread(box.put, 1))
        """,
}


def _correct(name: str, main: str) -> str:
    body = "\n".join("    " + line for line in inspect.cleandoc(CORRECT[name]).splitlines())
    return f"import asyncio, queue, threading\n\nasync def {main}():\n    gate, rows = threading.Lock(), []\n{body}\n"


@pytest.mark.parametrize("name", CORRECT)
def test_correct_programs_pass_under_control(name: str) -> None:
    with executor(_correct(name, "main")) as made:
        for label in LABELS:
            for _ in range(2):
                assert made.replay(Schedule(label, 0, ())).outcome.ok, label


@pytest.mark.parametrize("name", CORRECT)
def test_correct_programs_pass_on_the_stock_loop(name: str) -> None:
    found = sample(Scenario(_correct(name, "scenario")), 3, is_subject=is_subject, step_limit_s=20.0)
    assert [outcome.message for outcome in found.outcomes] == ["", "", ""]


def test_a_wait_with_a_timeout_costs_virtual_time_only() -> None:
    execution = once(
        """
        import queue, threading
        async def main():
            gate = threading.Lock()
            gate.acquire()
            assert not gate.acquire(timeout=3600)
            assert not threading.Event().wait(3600)
            try:
                queue.Queue().get(timeout=3600)
            except queue.Empty:
                return
            raise AssertionError("an empty queue gave something")
        """
    )
    assert execution.outcome.ok, execution.outcome
    assert execution.run.now >= 3 * 3600


BOTH_WAIT = """
import asyncio, threading

class Store:
    def __init__(self):
        self._gate = threading.Lock()

    def save(self):
        with self._gate:
            pass

    async def put(self):
        with self._gate:
            await asyncio.to_thread(self.save)

async def main():
    await Store().put()
"""


def test_a_task_that_waits_for_a_thread_that_waits_for_its_lock() -> None:
    report = deadlock(BOTH_WAIT)
    assert report.kind == "cycle"
    assert lines(report) == [("main", 13, "thread Store.save", None), ("thread Store.save", 8, "main", 12)]
    assert report.cycle[1].resource == "Store._gate"


def test_the_same_cycle_on_the_stock_loop() -> None:
    run = StockRun(is_subject, 60.0)
    run.execute(Scenario(BOTH_WAIT.replace("main", "scenario")))
    assert run.audit is not None
    report = run.audit.deadlock
    assert report is not None
    assert (report.kind, [edge.task for edge in report.cycle]) == ("cycle", ["scenario", "thread Store.save"])


def test_executions_of_a_deadlock_with_a_thread_are_equal() -> None:
    """The thread of one execution must not hand anything in to the next."""
    with executor(BOTH_WAIT) as made:
        runs = [made.replay(Schedule("stock", 0, ())) for _ in range(12)]
    assert len({run.schedule.check for run in runs}) == 1
    assert {run.outcome.failure for run in runs} == {"deadlock"}


# -- lock order --------------------------------------------------------------------------------------------------------

ORDER = """
import asyncio, threading

x, y = threading.Lock(), threading.Lock()
r, s = threading.RLock(), threading.RLock()
a = asyncio.Lock()

def both(first, second):
    with first:
        with second:
            pass

async def step(first, second):
    both(first, second)

async def suspended(first, second):
    with first:
        await asyncio.sleep(0)
        with second:
            pass

async def mixed(first, second):
    async with first:
        await asyncio.sleep(0)
        with second:
            pass

async def turned(first, second):
    with first:
        async with second:
            pass

async def thread(first, second):
    await asyncio.to_thread(both, first, second)

async def main():
    for work in {work}:
        await asyncio.create_task(work)
"""


@pytest.mark.parametrize(
    ("work", "hows"),
    [
        ("[suspended(x, y), suspended(y, x)]", [["await", "await"]]),
        ("[suspended(x, y), step(y, x)]", [["await", "step"]]),
        ("[step(x, y), step(y, x)]", []),
        ("[thread(x, y), thread(y, x)]", [["thread", "thread"]]),
        ("[thread(x, y), step(y, x)]", [["thread", "step"]]),
        ("[thread(x, y), thread(x, y)]", []),
        ("[mixed(a, x), turned(x, a)]", [["await", "await"]]),
        ("[suspended(r, s), suspended(s, r)]", []),
        ("[thread(r, s), thread(s, r)]", [["thread", "thread"]]),
        ("[thread(r, s), step(s, r)]", [["thread", "step"]]),
    ],
)
def test_which_orders_of_thread_locks_could_deadlock(work: str, hows: list[list[str]]) -> None:
    execution = once(ORDER.format(work=work))
    assert execution.outcome.ok, execution.outcome
    cycles = lock_order_cycles(execution.lock_order)
    assert sorted(sorted(edge.how for edge in cycle) for cycle in cycles) == [sorted(each) for each in hows]


def test_locks_of_libraries_are_not_the_subjects() -> None:
    execution = once(
        """
        import logging, queue
        log = logging.getLogger("quiet")
        async def main():
            log.debug("x")
            q = queue.Queue()
            q.put(1)
            q.get()
        """
    )
    assert (execution.lock_order, execution.locks) == ((), 0)


# -- transparency ------------------------------------------------------------------------------------------------------


@pytest.fixture
def watched() -> Iterator[None]:
    watch.install()
    watch.start_run()
    yield
    watch.uninstall()


NAMES = ("acquire", "release", "__enter__", "__exit__")


@pytest.mark.parametrize("make", [threading.Lock, threading.RLock], ids=["Lock", "RLock"])
def test_the_types_are_the_interpreters_own_afterwards(make: type) -> None:
    cls = type(make())
    before = {name: cls.__dict__[name] for name in NAMES}
    watch.install()
    during = {name: cls.__dict__[name] for name in NAMES}
    assert type(make()) is cls
    watch.uninstall()
    assert all(during[name] is not before[name] for name in NAMES)
    assert all(cls.__dict__[name] is before[name] for name in NAMES)


@pytest.mark.parametrize("make", [threading.Lock, threading.RLock], ids=["Lock", "RLock"])
def test_results_and_errors_are_the_same(watched: None, make: type) -> None:
    lock = make()
    with pytest.raises(ValueError, match="can't specify a timeout for a non-blocking call"):
        lock.acquire(False, 1)
    with pytest.raises(ValueError, match="timeout value must be"):
        lock.acquire(True, -2)
    with pytest.raises(TypeError):
        lock.acquire(True, "1")
    with pytest.raises(RuntimeError):
        lock.release()
    assert lock.acquire(timeout=1) is True
    assert lock.release() is None
    with lock as entered:
        assert entered is True
    assert (lock.acquire.__name__, lock.__enter__.__name__) == ("acquire", "__enter__")


def test_threads_still_exclude_each_other(watched: None) -> None:
    lock, counted = threading.Lock(), [0]

    def count() -> None:
        for _ in range(500):
            with lock:
                seen = counted[0]
                counted[0] = seen + 1

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted == [2000]


def test_a_condition_and_a_queue_between_threads(watched: None) -> None:
    box: queue.Queue[int] = queue.Queue(1)
    got: list[int] = []
    consumer = threading.Thread(target=lambda: got.extend(box.get() for _ in range(50)))
    consumer.start()
    for number in range(50):
        box.put(number)
    consumer.join()
    assert got == list(range(50))


def test_without_a_run_a_blocking_wait_is_left_alone(watched: None) -> None:
    """A loop that is nobody's business: the wait ends when a thread ends it."""

    async def main() -> bool:
        gate = threading.Lock()
        gate.acquire()
        threading.Timer(0.01, gate.release).start()
        return gate.acquire()

    assert asyncio.run(main())
