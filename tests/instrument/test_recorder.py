"""The recorder's own promises: detail, stacks, accesses added by others, what it could not see, what was skipped."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from chaossloth.subject import record
from chaossloth.subject.instrument import instrument
from chaossloth.subject.record import SITES, recorder
from tests.instrument.support import accesses, fresh_name, load_instrumented, recorded, recording

WALLET = """
class Wallet:
    def __init__(self):
        self.gold = 1
        self.rows = {"k": [1, 2], "me": self}
    def __repr__(self):
        raise AssertionError("never called")
    def grant(self, amount):
        self.gold += amount
        self.rows["k"].append(amount)
        self.rows["new"] = {"a": "b"}
        return self.rows["me"]
def outer(w):
    return w.grant(2)
def run():
    w = Wallet()
    outer(w)
"""


def test_detail_shows_values_after_writes_and_never_runs_a_repr() -> None:
    _module, found = recorded(WALLET, detail=True)
    shown = [(a.name, a.mode, a.value) for a in found]
    assert ("Wallet.gold", "write", "1") in shown
    assert ("Wallet.gold", "update", "3") in shown
    assert ("Wallet.rows['k']", "read", "[1, 2]") in shown
    assert ("Wallet.rows['k'][2]", "write", "2") in shown
    assert ("Wallet.rows['new']", "write", "{'a': 'b'}") in shown
    assert ("Wallet.rows['me']", "read", "<Wallet>") in shown


def test_detail_stack_is_innermost_first_and_holds_only_subject_frames() -> None:
    module, found = recorded(WALLET, detail=True)
    update = next(a for a in found if a.mode == "update")
    assert [(f.line, f.function) for f in update.stack] == [(9, "Wallet.grant"), (14, "outer"), (17, "run")]
    assert {f.file for f in update.stack} == {module.__file__}


def test_stack_goes_through_awaiting_coroutines() -> None:
    source = """
import asyncio
class C: n = 0
async def inner(c):
    await asyncio.sleep(0)
    c.n = 1
async def outer(c):
    await inner(c)
async def run():
    await asyncio.create_task(outer(C()))
"""
    _module, found = recorded(source, detail=True)
    assert [f.function for f in found[-1].stack] == ["inner", "outer"]


def test_lean_accesses_know_their_site() -> None:
    module, found = recorded(WALLET)
    update = next(a for a in found if a.mode == "update")
    assert update.value is None
    assert [(f.file, f.line, f.function) for f in update.stack] == [(module.__file__, 9, "Wallet.grant")]


def test_sites_are_shared_between_loads_of_the_same_text() -> None:
    name = fresh_name()
    instrument(WALLET, f"/{name}.py", name)
    before = len(SITES)
    instrument(WALLET, f"/{name}.py", name)
    assert len(SITES) == before


def test_accesses_added_by_others_have_the_subject_s_site() -> None:
    source = "class C: pass\ndef run():\n    c = C()\n    use(c)\n"
    name = fresh_name()
    module = load_instrumented(source, name, f"/{name}.py")

    def use(c: object) -> None:
        recorder.add(c, "x", "read")
        recorder.add_sync(c, "free", "write")

    vars(module)["use"] = use
    with recording() as raw:
        module.run()
    found = [a for a in map(recorder.to_access, raw) if a.name in ("C.x", "C.free")]
    assert [(a.name, a.mode, a.sync, a.stack[0].line) for a in found] == [
        ("C.x", "read", False, 4),
        ("C.free", "write", True, 4),
    ]


def test_nothing_is_recorded_while_disabled() -> None:
    name = fresh_name()
    module = load_instrumented(WALLET, name, f"/{name}.py")
    recorder.start_run()
    module.run()
    recorder.add(module, "x", "write")
    assert recorder.end_step() == []


def test_code_in_strings_is_named_as_unobservable() -> None:
    module, _found = recorded("def run():\n    d = {}\n    exec('d[1] = 2', {'d': d})\n    return eval('1')\n")
    assert recorder.unobservable == {
        f"code run by eval or exec: {module.__file__}:3",
        f"code run by eval or exec: {module.__file__}:4",
    }


@pytest.mark.parametrize("depth", [300, 900])
def test_what_cannot_be_rewritten_is_left_and_named(depth: int) -> None:
    """The compiler's limit on the depth of a tree differs between versions; 3.13 takes both."""
    source = f"def fine(d):\n    return d['k']\ndef deep(a):\n    return a{'[0]' * depth}\n"
    name = fresh_name()
    made = instrument(source, f"/{name}.py", name)
    left = [s.partition(":")[0] for s in made.skipped]
    assert left == (["deep (line 3)"] if depth == 900 and sys.version_info < (3, 13) else [])
    space: dict[str, Any] = {"__chaossloth__": record.hooks}
    exec(made.code, space)
    nested: list[Any] = []
    nested.append(nested)
    with recording() as raw:
        assert space["fine"]({"k": 1}) == 1
        assert space["deep"](nested) is nested
    assert len(raw) == 1 + (0 if left else depth)


@pytest.mark.parametrize("source", ["def f(:\n", "return\n", "x = '\n", "def f():\n    nonlocal y\n"])
def test_source_that_does_not_compile_raises_what_compile_raises(source: str) -> None:
    with pytest.raises(SyntaxError):
        instrument(source, "/bad.py", fresh_name())


def test_an_imported_container_is_one_object_with_one_name() -> None:
    state, user = fresh_name(), fresh_name()
    load_instrumented("CACHE = {}\ndef put(k):\n    CACHE[k] = 1\n", state, f"/{state}.py")
    source = f"from {state} import CACHE as shared, put\nimport {state} as s\n"
    source += "def run():\n    shared['a'] = 1\n    put('a')\n    s.CACHE['a'] = 2\n"
    module = load_instrumented(source, user, f"/{user}.py")
    for first in (module.run, lambda: module.put("a")):
        with recording() as raw:
            first()
        found = {a.name for a in map(recorder.to_access, raw)}
        assert found - {f"{state}.CACHE"} == {f"{state}.CACHE['a']"}


def test_a_mutable_default_is_one_object_for_all_runs() -> None:
    source = """
class C:
    def keep(self, x, seen=[]):
        seen.append(x)
def run():
    C().keep(1)
"""
    name = fresh_name()
    module = load_instrumented(source, name, f"/{name}.py")
    with recording() as raw:
        module.run()
    assert [recorder.to_access(r).name for r in raw] == ["C.keep.seen[0]", "C.keep.seen"]
    assert recorder.persistent_writes == {"C.keep.seen[0]", "C.keep.seen"}


def test_async_comprehensions_read_the_structure_at_every_step() -> None:
    source = """
import asyncio
async def run():
    l = [1, 2]
    return [await asyncio.sleep(0, x) for x in l]
"""
    assert accesses(source) == [
        ("list", "read"),
        ("list[0]", "read"),
        ("list", "read"),
        ("list[1]", "read"),
        ("list", "read"),
    ]


def test_copies_read_attributes_at_any_depth() -> None:
    source = """
import copy
class A:
    def __init__(self): self.b = B()
class B:
    def __init__(self): self.n = [1]
def run():
    copy.deepcopy(A())
"""
    assert accesses(source)[2:] == [("A.b", "read"), ("B.n", "read"), ("B.n", "read"), ("B.n[0]", "read")]


def test_cached_functions_and_shared_generators_have_state() -> None:
    source = """
import functools
@functools.lru_cache
def cached(x): return x
def numbers():
    yield 1
    yield 2
def run():
    cached(1)
    g = numbers()
    next(g)
    g.send(None)
"""
    found = accesses(source)
    assert [mode for _name, mode in found] == ["update", "read", "update", "update"]  # the key, the figures
    assert found[2] == found[3] != found[0]


def test_threading_lock_as_context_is_an_access_but_asyncio_lock_is_not() -> None:
    source = """
import asyncio, threading, io
async def run():
    async with asyncio.Lock(): pass
    with io.StringIO() as f: f.write("x")
"""
    names = [name for name, _mode in accesses(source)]
    assert "Lock" not in names
    assert "StringIO" in names


def test_other_threads_do_not_disturb_the_operands_of_the_main_one() -> None:
    source = """
import asyncio
def work(d, n):
    for i in range(n):
        d[str(i % 7)] = d.get(str(i % 7), 0) + 1
    return sum(d.values())
async def run():
    tables = [{}, {}, {}]
    got = await asyncio.gather(*(asyncio.to_thread(work, t, 400) for t in tables))
    return got + [work({}, 400)]
"""
    name = fresh_name()
    module = load_instrumented(source, name, f"/{name}.py")
    with recording():
        assert asyncio.run(module.run()) == [400] * 4
