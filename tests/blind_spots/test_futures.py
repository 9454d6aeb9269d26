"""Futures and tasks: who completes one and who looks whether it is done, as synchronization on (future, "done")."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from chaossloth.explore.strategy import StockOrder
from chaossloth.subject.record import READ, SYNC, WRITE, recorder
from chaossloth.subject.recorder import NO_SITE
from tests.engine.support import executor_of_source
from tests.instrument.support import fresh_name, load_instrumented, outcome, recording

PROGRAM = """
import asyncio
from asyncio import gather, wait
class Holder: pass
async def plain(): return 1
async def awaiting(f): return await f
def future(done=True):
    f = asyncio.get_running_loop().create_future()
    if done: f.set_result(1)
    return f
async def main():
    loop = asyncio.get_running_loop()
    h = Holder()
    DONE = loop.create_future()
    LEFT = loop.create_future()
    await before(DONE)
    await tested(h, DONE, LEFT)
async def before(f):
    exec("f.set_result(1)")
async def tested(h, f, p):
    BODY
"""

OPERATIONS: dict[str, tuple[str, list[int]]] = {
    "done": ("f.done()", [READ]),
    "result": ("f.result()", [READ]),
    "exception": ("f.exception()", [READ]),
    "cancelled": ("f.cancelled()", [READ]),
    "callback": ("f.add_done_callback(print)\n    f.remove_done_callback(print)", [READ, READ]),
    "set_result": ("p.set_result(1)", [WRITE]),
    "set_exception": ("p.set_exception(KeyError())\n    p.exception()", [WRITE, READ]),
    "cancel": ("p.cancel()", [WRITE]),
    "by getattr": ("getattr(p, 'set_result')(1)", [WRITE]),
    "await of a name": ("await f", [READ]),
    "await of an attribute": ("h.f = f\n    await h.f", [READ]),
    "await of an item": ("await [f][0]", [READ]),
    "await of a call": ("async def one(): pass\n    def get(): return f\n    await get()\n    await one()", [READ]),
    "await in an expression": ("x = (await f) + 1", [READ]),
    "await in a callee": ("await awaiting(f)", [READ]),
    "await of one that is not done": (
        "loop = p.get_loop()\n    loop.call_soon(lambda: p.set_result(1))\n    await p",
        [WRITE],
    ),
    "gather": ("await asyncio.gather(f, f)", [READ, READ]),
    "gather by its own name": ("await gather(f)", [READ]),
    "gather of coroutines": ("await asyncio.gather(plain())", []),
    "wait": ("await asyncio.wait([f])", [READ]),
    "wait by its own name": ("await wait({f})", [READ]),
    "wait_for": ("await asyncio.wait_for(f, 1)", [READ]),
    "as_completed": ("for x in asyncio.as_completed((f,)): await x", [READ]),
    "shield": ("await asyncio.shield(f)", [READ, READ]),
}


def accesses(body: str) -> list[int]:
    """Modes, without SYNC, of what the program does to futures; what the loop notes at the end of steps is its own."""
    source = PROGRAM.replace("BODY", body).replace("DONE", "done").replace("LEFT", "left")
    executor, _made = executor_of_source(source)
    execution = executor.execute(StockOrder(), executor.model("stock"), 0)
    assert execution.outcome.ok, execution.outcome
    found = [a for step in execution.run.steps for a in step.accesses if a[1] == "done" and a[3] != NO_SITE]
    assert all(mode & SYNC for _number, _key, mode, *_ in found)
    return [mode & ~SYNC for _number, _key, mode, *_ in found]


@pytest.mark.parametrize("title", OPERATIONS)
def test_operations_on_futures(title: str) -> None:
    body, expected = OPERATIONS[title]
    found = accesses(body)
    if title.startswith("gather of") or not title.startswith("gather"):
        assert found == expected
    else:  # since 3.12 what `gather` returns is done at once, and is awaited
        assert found in (expected, [*expected, READ])


def test_tasks_are_futures() -> None:
    assert accesses("t = asyncio.create_task(plain())\n    await asyncio.sleep(0)\n    await t\n    t.result()") == [
        READ,
        READ,
    ]


TRANSPARENT = """
import asyncio
async def fails(): raise KeyError("x")
class Awaitable:
    def __await__(self):
        yield from asyncio.sleep(0).__await__()
        return 5
class Broken:
    def __await__(self): return 3
async def step(make):
    seen = []
    async def other():
        seen.append("other")
    t = asyncio.create_task(other())
    try:
        got = await make()
    except BaseException as error:
        got = (type(error).__name__, str(error))
    seen.append(got)
    await t
    return seen
def done(value=None, error=None):
    f = asyncio.get_running_loop().create_future()
    f.set_exception(error) if error is not None else f.set_result(value)
    return f
def cancelled():
    f = asyncio.get_running_loop().create_future()
    f.cancel("why")
    return f
async def run():
    o = object()
    marked = await done(o)
    return [
        marked is o,
        await step(lambda: done(1)),
        await step(lambda: done(error=ValueError("v"))),
        await step(cancelled),
        await step(lambda: Awaitable()),
        await step(lambda: Broken()),
        await step(lambda: 3),
        await step(fails),
        await step(lambda: asyncio.gather(done(1), done(error=KeyError(2)), return_exceptions=True)),
        await step(lambda: asyncio.wait_for(asyncio.sleep(0, 7), 1)),
    ]
"""


def test_awaiting_suspends_where_it_did_and_gives_what_it_gave() -> None:
    from tests.instrument.support import load_plain

    name = fresh_name()
    plain = load_plain(TRANSPARENT, name, f"/{name}.py")
    expected = outcome(plain.run)
    hooked = load_instrumented(TRANSPARENT, name, f"/{name}.py")
    with recording():
        found = outcome(hooked.run)
    assert found == expected
    assert expected.value is not None and "'other'" in expected.value


def test_the_recorder_keeps_no_future_alive() -> None:
    source = """
import asyncio
async def run(seen):
    f = asyncio.get_running_loop().create_future()
    t = asyncio.ensure_future(asyncio.sleep(0))
    seen(f, t)
    f.done()
    f.set_result(1)
    await f
    await asyncio.gather(t, f)
    await t
"""
    refs: list[weakref.ref[Any]] = []
    name = fresh_name()
    module = load_instrumented(source, name, f"/{name}.py")
    with recording():
        asyncio.run(module.run(lambda *futures: refs.extend(map(weakref.ref, futures))))
        gc.collect()
        assert [ref() for ref in refs] == [None, None]
    assert recorder.unobservable == set()
