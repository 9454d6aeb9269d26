"""The hooks are transparent: what a program can see of its tasks is what it sees without them."""

from __future__ import annotations

import asyncio
import contextvars
import time
import traceback
from typing import Any

import pytest

from chaossloth.loop.quiet import NothingRunnable, QuietSelector, TimeIsUp
from chaossloth.loop.stock import StockRun
from tests.stock.programs import FILE, Scenario, is_subject


def execute(source: str, kind: str = "async", hooked: bool = True) -> tuple[StockRun, Any, BaseException | None]:
    run = StockRun(is_subject, 5.0, hooked=hooked)
    result, error = run.execute(Scenario(source, kind))
    return run, result, error


TRANSPARENT = {
    "result": "async def scenario(): return 7",
    "contextvars": """
        import asyncio, contextvars
        v = contextvars.ContextVar("v", default=0)
        async def inner():
            before = v.get(); v.set(before + 1); await asyncio.sleep(0); return before, v.get()
        async def scenario():
            v.set(5)
            given = contextvars.copy_context(); given.run(v.set, 40)
            a = asyncio.create_task(inner()); b = asyncio.create_task(inner(), context=given)
            return await a, await b, v.get(), given[v]
    """,
    "cancellation": """
        import asyncio
        async def worker(log):
            try: await asyncio.sleep(60)
            except asyncio.CancelledError as e:
                log.append(e.args); await asyncio.sleep(0); raise
        async def scenario():
            log = []
            t = asyncio.create_task(worker(log)); unstarted = asyncio.create_task(worker(log))
            unstarted.cancel("never"); await asyncio.sleep(0); t.cancel("enough")
            out = await asyncio.gather(t, unstarted, return_exceptions=True)
            return log, [type(o).__name__ for o in out], t.cancelled(), t.cancelling()
    """,
    "swallowed": """
        import asyncio
        async def stubborn():
            try: await asyncio.sleep(60)
            except asyncio.CancelledError: return "stayed"
        async def scenario():
            t = asyncio.create_task(stubborn()); await asyncio.sleep(0); t.cancel(); return await t, t.uncancel()
    """,
    "taskgroup": """
        import asyncio
        async def fail(): await asyncio.sleep(0); raise ValueError("no")
        async def wait(log):
            try: await asyncio.sleep(60)
            finally: log.append("cleaned")
        async def scenario():
            log = []
            try:
                async with asyncio.TaskGroup() as g: g.create_task(fail()); g.create_task(wait(log))
            except* ValueError as e: log += [repr(x) for x in e.exceptions]
            return log
    """,
    "timeout": """
        import asyncio
        async def scenario():
            try:
                async with asyncio.timeout(0.005): await asyncio.sleep(60)
            except TimeoutError: first = "late"
            try: await asyncio.wait_for(asyncio.sleep(60), 0.005)
            except TimeoutError: return first, "late"
    """,
    "names": """
        import asyncio
        async def leaf(): await asyncio.sleep(0); return seen(asyncio.current_task())
        def seen(t):
            c = t.get_coro()
            return t.get_name(), c.__name__, c.__qualname__, c.cr_code.co_name, asyncio.iscoroutine(c)
        async def scenario():
            t = asyncio.create_task(leaf(), name="named"); await asyncio.sleep(0)
            c = t.get_coro()
            return len(t.get_stack()), c.cr_frame.f_lineno, c.cr_await is not None, seen(t), await t
    """,
    "asyncgen": """
        import asyncio
        async def numbers(log):
            try:
                for i in range(9): await asyncio.sleep(0); yield i
            finally: log.append("closed")
        async def scenario():
            log = []
            async for n in numbers(log):
                if n == 2: break
            await asyncio.sleep(0); await asyncio.sleep(0)
            return n, log
    """,
    "sync primitives": """
        import asyncio
        async def scenario():
            lock, queue, out = asyncio.Lock(), asyncio.Queue(1), []
            async def producer():
                for i in range(4): await queue.put(i)
            async def consumer():
                for _ in range(4):
                    async with lock: out.append(await queue.get())
            await asyncio.gather(producer(), consumer())
            return out
    """,
    "threads": """
        import asyncio
        async def scenario(): return await asyncio.gather(*(asyncio.to_thread(pow, 2, n) for n in range(4)))
    """,
    "generator-based awaitable": """
        class Twice:
            def __await__(self): yield; yield; return "done"
        async def scenario(): return await Twice()
    """,
    "factory": """
        import asyncio
        async def leaf(): return 1
        async def scenario():
            made = []
            def factory(loop, coro, **kw): made.append(coro.__name__); return asyncio.Task(coro, loop=loop, **kw)
            asyncio.get_running_loop().set_task_factory(factory)
            return await asyncio.create_task(leaf()), made
    """,
}


@pytest.mark.parametrize("source", TRANSPARENT.values(), ids=TRANSPARENT.keys())
def test_same_with_and_without_hooks(source: str) -> None:
    _, bare, no_error = execute(source, hooked=False)
    run, hooked, error = execute(source)
    assert (no_error, error) == (None, None)
    assert hooked == bare
    assert run.switches > 0


def test_eager_tasks_keep_the_identity_of_their_creator() -> None:
    if not hasattr(asyncio, "eager_task_factory"):
        pytest.skip("eager tasks are new in 3.12")
    source = """
        import asyncio
        async def leaf(): return 1
        async def slow(): await asyncio.sleep(0); return 2
        async def scenario():
            asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
            return [await asyncio.create_task(leaf()), await asyncio.create_task(slow())]
    """
    run, result, error = execute(source)
    assert (result, error) == ([1, 2], None)
    assert run.current is run.outside


def test_not_a_coroutine_is_still_a_type_error() -> None:
    _, _, error = execute("import asyncio\nasync def scenario(): asyncio.get_running_loop().create_task(3)")
    assert isinstance(error, TypeError) and "a coroutine was expected" in str(error)


def test_tracebacks_end_at_the_users_line() -> None:
    source = "import asyncio\nasync def scenario():\n    await asyncio.sleep(0)\n    raise KeyError('x')\n"
    _, _, error = execute(source)
    assert error is not None
    last = traceback.extract_tb(error.__traceback__)[-1]
    assert (type(error), last.filename, last.lineno, last.name) == (KeyError, FILE, 4, "scenario")


def test_identities_follow_creation() -> None:
    source = """
        import asyncio
        async def leaf(): await asyncio.sleep(0)
        async def branch(): await asyncio.gather(leaf(), leaf())
        async def scenario(): await asyncio.gather(branch(), leaf()); await asyncio.create_task(leaf())
    """
    seen: list[str] = []

    class Spy(StockRun):
        def step_ended(self, delegate: Any, started: int, ended: int) -> None:
            if delegate.actor.steps == 1:
                seen.append(delegate.actor.identity)

    Spy(is_subject, 5.0).execute(Scenario(source))
    assert seen == ["0", "0.1", "0.2", "0.1.1", "0.1.2", "0.3"]


def test_suspension_sites_are_the_subjects_deepest_lines() -> None:
    source = (
        "import asyncio\n"
        "async def helper():\n"
        "    await asyncio.sleep(0.002)\n"
        "async def numbers():\n"
        "    await asyncio.sleep(0.002)\n"
        "    yield 1\n"
        "async def scenario():\n"
        "    await helper()\n"
        "    async for _ in numbers():\n"
        "        await asyncio.sleep(0)\n"
    )
    run, _, _ = execute(source)
    sites = {line for file, line in run.suspended_ns if file == FILE}
    assert {3, 10} <= sites and not sites & {8}
    assert run.suspended_ns[FILE, 3] >= 2_000_000


DEADLOCKS = {
    "lock": "l = asyncio.Lock(); await l.acquire(); await l.acquire()",
    "event": "await asyncio.Event().wait()",
    "future": "await asyncio.get_running_loop().create_future()",
    "idle pool": "await asyncio.to_thread(int); await asyncio.Event().wait()",
}


@pytest.mark.parametrize("body", DEADLOCKS.values(), ids=DEADLOCKS.keys())
@pytest.mark.parametrize("kind", ["async", "sync"])
def test_a_deadlock_raises(body: str, kind: str) -> None:
    source = f"import asyncio\nasync def scenario():\n    {body}\ndef test():\n    asyncio.run(scenario())\n"
    run, _, error = execute(source, kind)
    assert isinstance(error, NothingRunnable) and isinstance(run.stop, NothingRunnable)
    assert [(name, place.line) for name, place in run.waiting] == [("scenario", 3)]


def test_working_threads_are_waited_for() -> None:
    source = """
        import asyncio, threading, time
        async def scenario():
            loop, done = asyncio.get_running_loop(), asyncio.Event()
            def body(): time.sleep(0.05); loop.call_soon_threadsafe(done.set)
            threading.Thread(target=body).start()
            await done.wait()
            return await asyncio.to_thread(lambda: time.sleep(0.05) or "slow")
    """
    _, result, error = execute(source)
    assert (result, error) == ("slow", None)


def test_sockets_and_subprocesses_are_waited_for() -> None:
    source = """
        import asyncio, sys
        async def scenario():
            async def echo(r, w): w.write(await r.readline()); w.close()
            server = await asyncio.start_server(echo, "127.0.0.1", 0)
            r, w = await asyncio.open_connection(*server.sockets[0].getsockname())
            w.write(b"hi\\n"); line = await r.readline(); w.close(); server.close()
            p = await asyncio.create_subprocess_exec(sys.executable, "-c", "print(1)", stdout=asyncio.subprocess.PIPE)
            return line, (await p.communicate())[0].strip(), p.returncode
    """
    _, result, error = execute(source)
    assert (result, error) == ((b"hi\n", b"1", 0), None)


@pytest.mark.parametrize(
    ("body", "spinning"), [("while True: await asyncio.sleep(0)", True), ("await asyncio.sleep(60)", False)]
)
def test_the_wall_clock_limit(body: str, spinning: bool) -> None:
    run = StockRun(is_subject, 0.1)
    _, error = run.execute(Scenario(f"import asyncio\nasync def scenario():\n    {body}\n"))
    assert isinstance(error, TimeIsUp) and error.spinning is spinning
    assert run.stop is error


def test_a_task_that_refuses_to_be_cancelled_does_not_hide_the_result() -> None:
    source = """
        import asyncio
        async def deaf():
            while True:
                try: await asyncio.Event().wait()
                except asyncio.CancelledError: pass
        async def scenario(): keep.append(asyncio.create_task(deaf())); await asyncio.sleep(0); return "done"
        keep = []
    """
    run, result, error = execute(source)
    assert (result, error, run.stop) == ("done", None, None)


def test_nothing_stays_behind() -> None:
    before = asyncio.get_event_loop_policy()
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
    source = """
        import asyncio
        left = []
        async def forever(): await asyncio.sleep(60)
        async def scenario(): left.append(asyncio.create_task(forever())); await asyncio.sleep(0)
    """
    scenario = Scenario(source)
    StockRun(is_subject, 5.0).execute(scenario)
    assert scenario.module.left[0].cancelled()
    assert asyncio.get_event_loop_policy() is before and variable.get() == 0


def test_a_selector_without_a_limit_only_watches_for_deadlocks() -> None:
    loop = asyncio.SelectorEventLoop(QuietSelector())
    try:
        began = time.monotonic()
        loop.run_until_complete(asyncio.sleep(0.01))
        assert time.monotonic() > began
        with pytest.raises(NothingRunnable):
            loop.run_forever()
    finally:
        loop.close()
