"""What the watch reports: accesses in the step in which they take effect, holdings, waits, lock order."""

from __future__ import annotations

import asyncio

import pytest

from chaossloth.evidence import Frame, LockOrderEdge
from chaossloth.liveness import distinct_cycles, lock_order_cycles, suspended_at
from chaossloth.subject.primitives import as_frame, watch
from tests.liveness.stuck import FILE, Run, run

Access = tuple[str, str, str]


def _accesses(body: str) -> tuple[list[Access], list[Access]]:
    """Sync and data accesses that `body` (lines of an async function) makes."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    outcome = run(f"async def main():\n{lines}")
    return outcome.recorder.sync, outcome.recorder.data


@pytest.mark.parametrize(
    ("body", "sync"),
    [
        ("x = named(asyncio.Lock(), 'x')\nx.locked()", [("x", "free", "read")]),
        (
            "x = named(asyncio.Lock(), 'x')\nawait x.acquire()\nx.release()",
            [("x", "queue", "update"), ("x", "free", "update"), ("x", "free", "update"), ("x", "queue", "blocked")],
        ),
        (
            "x = named(asyncio.Event(), 'x')\nx.set()\nx.is_set()\nawait x.wait()\nx.clear()",
            [
                ("x", "flag", "write"),
                ("x", "flag", "read"),
                ("x", "flag", "read"),
                ("x", "flag", "write"),
                ("x", "clear", "write"),
            ],
        ),
        ("x = named(asyncio.Barrier(2), 'x')\nx.n_waiting\nx.broken", [("x", "count", "read")] * 2),
    ],
)
def test_operations_are_accesses_to_the_parts_that_they_touch(body: str, sync: list[Access]) -> None:
    assert _accesses(body) == (sync, [])


def test_a_condition_speaks_for_its_own_lock() -> None:
    sync, _ = _accesses("x = named(asyncio.Condition(), 'x')\nasync with x:\n    x.notify()")
    assert ("x", "waiters", "update") in sync
    assert {name for name, _, _ in sync} == {"x"}
    assert {key for _, key, _ in sync} == {"lock.queue", "lock.free", "waiters"}


def test_a_condition_does_not_speak_for_a_lock_that_it_was_given() -> None:
    sync, _ = _accesses("x = named(asyncio.Lock(), 'x')\nasync with asyncio.Condition(x):\n    pass")
    assert {(name, key) for name, key, _ in sync} == {("x", "queue"), ("x", "free")}


def test_a_barrier_speaks_for_its_own_condition() -> None:
    sync, _ = _accesses("x = named(asyncio.Barrier(1), 'x')\nawait x.wait()")
    assert {name for name, _, _ in sync} == {"x"}
    assert {"count", "cond.waiters", "cond.lock.free"} <= {key for _, key, _ in sync}


@pytest.mark.parametrize(
    ("call", "mode"),
    [
        ("q.qsize()", "read"),
        ("q.empty()", "read"),
        ("q.full()", "read"),
        ("q.get_nowait()", "update"),
        ("q.put_nowait(2)", "update"),
        ("await q.get()", "update"),
        ("await q.put(2)", "update"),
    ],
)
def test_queue_contents_are_data_too(call: str, mode: str) -> None:
    sync, data = _accesses(f"q = named(asyncio.Queue(), 'q')\nq.put_nowait(1)\n{call}")
    assert data[1:] == [("q", "items", mode)]
    assert ("q", "items", mode) in sync
    assert {name for name, _, _ in sync} == {"q"}  # not its inner event


def test_a_refused_queue_operation_only_reads() -> None:
    _, data = _accesses(
        "q = named(asyncio.Queue(), 'q')\ntry:\n    q.get_nowait()\nexcept asyncio.QueueEmpty:\n    pass"
    )
    assert data == [("q", "items", "read")]


def test_join_and_task_done_meet_at_the_unfinished_count() -> None:
    sync, _ = _accesses("q = named(asyncio.Queue(), 'q')\nq.put_nowait(1)\nq.task_done()\nawait q.join()")
    assert [mode for _, key, mode in sync if key == "unfinished"] == ["update", "update", "read"]


def test_a_blocked_acquire_reports_its_permit_only_when_it_gets_it() -> None:
    outcome = run(
        """
        async def second(lock, log):
            await lock.acquire()
            log.append("second")

        async def main():
            lock, log = named(asyncio.Lock(), "x"), []
            await lock.acquire()
            task = asyncio.create_task(second(lock, log))
            await asyncio.sleep(0)
            named(None, "mark")
            lock.release()
            await task
        """
    )
    assert outcome.recorder.sync == [
        ("x", "queue", "update"),
        ("x", "free", "update"),
        ("x", "queue", "update"),
        ("x", "free", "blocked"),
        ("x", "free", "update"),
        ("x", "queue", "blocked"),
        ("x", "free", "update"),
    ]


def _observed(source: str) -> Run:
    """Run with `look(task)` as a global: (what it holds, what it waits for, where it is suspended)."""
    return run("from tests.liveness.test_watch import look\n" + source)


def look(task: asyncio.Task[object]) -> tuple[object, ...]:
    held = [(watch.label(permit.resource), as_frame(permit.at)) for permit in watch.held(task)]
    wait = watch.waiting(task)
    return held, wait and (watch.label(wait.resource), wait.operation, as_frame(wait.at)), suspended_at(task)


HOLDINGS = """
async def work(a, b):
    await a.acquire()
    async with b:
        pass

async def main():
    a, b = named(asyncio.Lock(), "a"), named(asyncio.Semaphore(1), "b")
    await b.acquire()
    task = asyncio.create_task(work(a, b))
    await asyncio.sleep(0)
    seen = [look(task)]
    {end}
    await asyncio.wait([task])
    seen.append(look(task)[:2])
    return seen
"""


@pytest.mark.parametrize(
    ("end", "holds_after"),
    [("b.release()", ["a"]), ("task.cancel()", ["a"]), ("a.release(); b.release()", [])],
    ids=["goes on", "cancelled", "released by another task"],
)
def test_holdings_and_waits_follow_the_task(end: str, holds_after: list[str]) -> None:
    before, after = _observed(HOLDINGS.format(end=end)).result
    line = Frame(FILE, 5, "work")
    assert before == ([("a", Frame(FILE, 4, "work"))], ("b", "acquire", line), line)
    assert ([name for name, _ in after[0]], after[1]) == (holds_after, None)


def test_a_condition_wait_gives_the_lock_up_and_takes_it_back() -> None:
    seen = _observed(
        """
async def work(c):
    async with c:
        await c.wait()
        await asyncio.sleep(0)

async def main():
    c = named(asyncio.Condition(), "c")
    task = asyncio.create_task(work(c))
    await asyncio.sleep(0)
    seen = [look(task)]
    async with c:
        c.notify()
    await asyncio.sleep(0)
    seen.append(look(task))
    await task
    return seen
"""
    ).result
    wait = Frame(FILE, 5, "work")
    assert seen[0][:2] == ([], ("c", "wait", wait))
    assert seen[1][:2] == ([("c", wait)], None)


def test_a_new_run_forgets_the_last_one_and_numbers_alike() -> None:
    acquire = "    await asyncio.Lock().acquire()\n"
    source = f"async def main():\n{acquire}{acquire}    return look(asyncio.current_task())\n"
    first, second = (_observed(source).result for _ in range(2))
    assert first == second
    assert [name for name, _ in second[0]] == ["Lock#1 created at buggy.py:3", "Lock#2 created at buggy.py:4"]


def test_positions_end_where_the_loop_begins() -> None:
    """A library's task is not blamed on the subject's line that runs the loop."""
    watch.install()
    watch.is_subject = lambda file: file == __file__
    watch.start_run()

    lock = asyncio.Lock()
    namespace = {"lock": lock, "watch": watch}
    exec(compile("async def lib():\n    await lock.acquire()\n", "/lib/foreign.py", "exec"), namespace)

    async def main() -> object:
        task = asyncio.create_task(namespace["lib"]())  # type: ignore[operator]
        await task
        return [as_frame(permit.at) for permit in watch.held(task)]

    try:
        assert asyncio.run(main()) == [None]
    finally:
        watch.uninstall()


# -- lock order --------------------------------------------------------------------------------------------------------

ORDER = """
async def take(*locks):
    if locks:
        async with locks[0]:
            await take(*locks[1:])

async def main():
    a, b, c, g = (named(asyncio.Lock(), name) for name in "abcg")
    s, t = named(asyncio.Semaphore(1), "s"), named(asyncio.Semaphore(2), "t")
    orders = {orders}
    for i, order in enumerate(orders):
        await asyncio.create_task(take(*order), name=f"T{{i}}")
"""


def _cycles(orders: str) -> list[list[tuple[str, str, str]]]:
    edges = run(ORDER.format(orders=orders)).edges
    return [[(edge.task, edge.first, edge.second) for edge in cycle] for cycle in lock_order_cycles(edges)]


@pytest.mark.parametrize(
    ("orders", "cycles"),
    [
        ("[(a, b), (b, a)]", [[("T0", "a", "b"), ("T1", "b", "a")]]),
        ("[(a, b), (b, c), (c, a)]", [[("T0", "a", "b"), ("T1", "b", "c"), ("T2", "c", "a")]]),
        ("[(a, s), (s, a)]", [[("T0", "a", "s"), ("T1", "s", "a")]]),
        ("[(a, b), (a, b), (b, c)]", []),
        ("[(g, a, b), (g, b, a)]", []),
        ("[(g, a, b), (b, a)]", [[("T0", "a", "b"), ("T1", "b", "a")]]),
        ("[(g, a, b), (g, b, a), (b, a)]", [[("T0", "a", "b"), ("T2", "b", "a")]]),
        ("[(a, t), (t, a)]", []),
    ],
    ids=["AB-BA", "of three", "semaphore of 1", "acyclic", "gate", "gate of one only", "gate of two of three", "of 2"],
)
def test_lock_order_cycles(orders: str, cycles: list[list[tuple[str, str, str]]]) -> None:
    """None of these programs gets stuck: the tasks run one after the other."""
    assert _cycles(orders) == cycles


def test_tasks_without_names_of_their_own_are_named_alike_in_every_run() -> None:
    source = ORDER.replace(', name=f"T{{i}}"', "").format(orders="[(a, b), (b, a)]")
    first, second = (run(source).edges for _ in range(2))
    assert first == second
    assert [edge.task for edge in first] == ["take #1", "take #2"]
    assert len(lock_order_cycles(first)) == 1


def test_one_task_that_uses_both_orders_is_no_deadlock() -> None:
    source = ORDER.format(orders="[]") + "    await take(a, b)\n    await take(b, a)\n"
    edges = run(source).edges
    assert {(edge.first, edge.second) for edge in edges} == {("a", "b"), ("b", "a")}
    assert lock_order_cycles(edges) == ()


def test_edges_carry_positions_and_gates() -> None:
    edges = run(ORDER.format(orders="[(g, a)]") + "    async with g, a:\n        await b.acquire()\n").edges
    take = Frame(FILE, 3, "take")
    assert edges == (
        LockOrderEdge("g", "a", "T0", take, take, ()),
        LockOrderEdge("g", "a", "main", Frame(FILE, 12, "main"), Frame(FILE, 12, "main"), ()),
        LockOrderEdge("g", "b", "main", Frame(FILE, 12, "main"), Frame(FILE, 13, "main"), ("a",)),
        LockOrderEdge("a", "b", "main", Frame(FILE, 12, "main"), Frame(FILE, 13, "main"), ("g",)),
    )


def test_locks_that_share_a_path_stay_apart() -> None:
    edges = run(
        """
        async def take(first, second):
            async with first, second:
                pass

        async def main():
            x, y = named(asyncio.Lock(), "Entry._gate"), named(asyncio.Lock(), "Entry._gate")
            await asyncio.create_task(take(x, y), name="A")
            await asyncio.create_task(take(y, x), name="B")
        """
    ).edges
    (cycle,) = lock_order_cycles(edges)
    assert [(edge.task, edge.first) for edge in cycle] == [("A", "Entry._gate #1"), ("B", "Entry._gate #2")]


def test_a_cycle_is_said_once_whichever_instances_and_tasks_it_is_met_with() -> None:
    there, back = Frame(FILE, 3, "there"), Frame(FILE, 7, "back")

    def edges(left: str, right: str, tasks: tuple[str, str]) -> list[LockOrderEdge]:
        return [
            LockOrderEdge(left, right, tasks[0], there, there),
            LockOrderEdge(right, left, tasks[1], back, back),
        ]

    first = edges("Bank.left #1", "Bank.right #2", ("A", "B"))
    again = edges("Bank.left #4", "Bank.right #3", ("C", "D"))
    (cycle,) = lock_order_cycles([*again, *first])
    assert distinct_cycles([cycle, cycle[::-1], tuple(first)]) == (cycle,)
    nameless = [edges(f"threading.Lock#{n} created at a.py:1", f"Lock#{n + 1}", ("A", "B")) for n in (1, 3)]
    assert len(lock_order_cycles([edge for each in nameless for edge in each])) == 1
    other = edges("Bank.left #1", "Shop.till", ("A", "B"))
    assert len(lock_order_cycles([*first, *other])) == 2
