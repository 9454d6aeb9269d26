"""Identities are equal in every execution, keep disjoint keys apart, and keep nothing alive that the subject let go."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from chaossloth.explore.happens_before import CONFLICTS
from chaossloth.subject.record import SYNC, recorder
from tests.instrument.support import fresh_name, load_instrumented, recorded, recording

TWO_TASKS = """
import asyncio, collections, dataclasses, enum, json, uuid
class Word(enum.StrEnum):
    NINE = "nine"
class Color(enum.Enum):
    RED = 1
    BLUE = 2
@dataclasses.dataclass(frozen=True)
class Point:
    x: int
class Own:
    def __init__(self, v): self.v = v
    def __hash__(self): return hash(self.v)
    def __eq__(self, o): return isinstance(o, Own) and self.v == o.v
class Shared:
    def __init__(self):
        self.rows = {k: 0 for k in KEYS}
        self.items = [0, 0]
        self.a = self.b = 0
        self.members = {1, 2}
KEYS = [1, 2]
async def left(s): pass
async def right(s): pass
async def run():
    s = Shared()
    await step(1, left(s))
    await step(2, right(s))
"""

DISJOINT = {
    "dict keys": ("s.rows[1] += 1", "s.rows[2] += 1"),
    "dict get and store": ("s.rows.get(1)", "s.rows[2] = 3"),
    "list items": ("s.items[0] = 1", "s.items[1] = 1"),
    "list item and append": ("s.items[0]", "s.items.append(1)"),
    "attributes": ("s.a += 1", "s.b += 1"),
    "set members": ("1 in s.members", "s.members.discard(2)"),
    "overwrite and iterate keys": ("s.rows[1] = 5", "sorted(s.rows)"),
    "overwrite and length": ("s.rows[1] = 5", "len(s.rows)"),
    "tuple keys": ("s.rows.get((1, 'a'))", "s.rows[1, 'b'] = 1"),
    "enum keys": ("s.rows.get(Color.RED)", "s.rows[Color.BLUE] = 1"),
    "frozen dataclass keys": ("s.rows.get(Point(1))", "s.rows[Point(2)] = 1"),
    "reads": ("sum(s.items)", "list(s.items)"),
}
CONFLICTING = {
    "same key": ("s.rows[1]", "s.rows[1] = 2"),
    "iterate values and overwrite": ("sum(s.rows.values())", "s.rows[2] = 1"),
    "iterate keys and add": ("sorted(s.rows)", "s.rows[3] = 1"),
    "length and remove": ("len(s.rows)", "s.rows.pop(1)"),
    "check then act": ("3 in s.rows", "s.rows[3] = 1"),
    "truth and append": ("not s.items", "s.items.append(1)"),
    "item and shift": ("s.items[0]", "s.items.pop(0)"),
    "equal frozen dataclass keys": ("s.rows.get(Point(1))", "s.rows[Point(1)] = 1"),
    "string enum key and string": ("s.rows.get(Word.NINE)", "s.rows['nine'] = 1"),
    "true and one": ("s.rows[True]", "s.rows[1] = 1"),
    "keys with their own equality": ("s.rows.get(Own(1))", "s.rows[Own(1)] = 1"),
    "out of range and append": ("s.items[5:]", "s.items.append(1)"),
    "equality and item": ("s.items == [0]", "s.items[1] = 2"),
    "format and overwrite": ("f'{s.rows}'", "s.rows[1] = 2"),
    "unknown update and key": ("s.rows.get(9)", "s.rows.update((k, 1) for k in [9])"),
    "extension by a generator and item": ("s.items[2:]", "s.items.extend(i for i in [1])"),
    "dict of attributes": ("s.a", "s.__dict__['a'] = 2"),
    "setattr": ("s.a", "setattr(s, 'a', 1)"),
}


def _steps(left: str, right: str) -> tuple[list[Any], list[Any]]:
    source = TWO_TASKS.replace("left(s): pass", f"left(s): {left}").replace("right(s): pass", f"right(s): {right}")
    name = fresh_name()
    module = load_instrumented(source, name, f"/{name}.py")
    found: dict[int, list[Any]] = {}

    async def step(proc: int, coro: Any) -> None:
        recorder.end_step()
        recorder.begin_step(proc, 1)
        await coro
        found[proc] = recorder.end_step()
        recorder.begin_step(0, 2)

    vars(module)["step"] = step
    with recording():
        asyncio.run(module.run())
    return found[1], found[2]


def _conflict(first: list[Any], second: list[Any]) -> bool:
    return any(a[:2] == b[:2] and CONFLICTS[a[2] & ~SYNC] & b[2] for a in first for b in second)


@pytest.mark.parametrize("title", DISJOINT)
def test_disjoint_locations_do_not_conflict(title: str) -> None:
    first, second = _steps(*DISJOINT[title])
    assert first and second
    assert not _conflict(first, second)


@pytest.mark.parametrize("title", CONFLICTING)
def test_conflicting_operations_share_a_location_in_both_orders(title: str) -> None:
    first, second = CONFLICTING[title]
    assert _conflict(*_steps(first, second))
    assert _conflict(*_steps(second, first))


STABLE = """
import asyncio, collections, json
class Node:
    def __init__(self, name): self.name = name; self.edges = []; self.meta = {"tags": set()}
class Slotted:
    __slots__ = ("v",)
    def __init__(self): self.v = [1]
async def run():
    loaded = json.loads('{"a": {"b": [1, 2]}, "c": []}')
    nodes = [Node(i) for i in range(3)]
    nodes[0].edges.append(nodes[1])
    nodes[1].meta["tags"].add("x")
    loaded["a"]["b"].append(nodes)
    loaded["c"] += [1]
    s = Slotted(); s.v[0] = 2; s.v.append({})
    s.v[-1]["k"] = collections.deque()
    s.v[-1]["k"].append(1)
    total = 0
    def add(n):
        nonlocal total
        total += n
    add(1); add(2)
    await asyncio.sleep(0)
    return [n.edges for n in nodes]
"""


def test_the_same_program_has_the_same_identities_in_every_run() -> None:
    name = fresh_name()
    module = load_instrumented(STABLE, name, f"/{name}.py")
    runs = []
    garbage = []
    for round_ in range(3):
        garbage.append([object() for _ in range(100 * round_)])  # other addresses every time
        with recording() as raw:
            asyncio.run(module.run())
        runs.append(list(raw))
    assert len(runs[0]) > 30
    assert runs[0] == runs[1] == runs[2]
    texts = {recorder.names.location(r[0], r[1]) for r in runs[0]}
    assert len(texts) == len({(r[0], r[1]) for r in runs[0]})


def test_identities_do_not_depend_on_who_comes_first() -> None:
    """Two objects made in one step keep their names whichever of two later steps touches them first."""
    source = """
class Cell:
    def __init__(self): self.v = 0
def make(): return Cell(), Cell()
def touch(c): c.v += 1
"""
    name = fresh_name()
    module = load_instrumented(source, name, f"/{name}.py")

    def run(order: Callable[[list[Any]], list[Any]]) -> set[tuple[Any, ...]]:
        recorder.start_run()
        recorder.enabled = True
        recorder.begin_step(1, 1)
        cells = list(module.make())
        recorder.end_step()
        found: set[tuple[Any, ...]] = set()
        for proc, cell in order([(2, cells[0]), (3, cells[1])]):
            recorder.begin_step(proc, 1)
            module.touch(cell)
            found.update((proc, r[0], r[1]) for r in recorder.end_step())
        recorder.enabled = False
        return found

    assert run(lambda x: x) == run(lambda x: x[::-1])


def test_persistent_writes_are_those_to_what_existed_before_the_run() -> None:
    source = """
import collections
cache, fixed, count = {}, [], 0
class Config:
    level = 1
    registry = []
def run():
    global count
    count += 1
    cache["k"] = {}
    cache["k"]["inner"] = 1
    Config.level = 2
    Config.registry.append(1)
    local = [1]; local.append(2)
    len(fixed)
"""
    module, _found = recorded(source)
    m = module.__name__
    assert recorder.persistent_writes == {
        f"{m}.count",
        f"{m}.cache",
        f"{m}.cache['k']",
        "Config.level",
        "Config.registry",
        "Config.registry[0]",
    }


def test_module_attributes_set_from_elsewhere_are_that_module_s_globals() -> None:
    settings = fresh_name()
    load_instrumented("limit = 1\ndef get():\n    return limit\n", settings, f"/{settings}.py")
    _module, found = recorded(f"import {settings} as s\ndef run():\n    s.limit = s.limit + 1\n    s.get()\n")
    assert [(a.name, a.mode) for a in found] == [
        (f"{settings}.limit", "read"),
        (f"{settings}.limit", "write"),
        (f"{settings}.limit", "read"),
    ]
    assert len({a.location for a in found}) == 1


def test_unreferenced_tasks_are_collected_while_recording() -> None:
    source = """
import asyncio, weakref
class Keeper:
    def __init__(self): self.task = None
def spawn(loop):
    async def forever(): await loop.create_future()
    tasks = [asyncio.create_task(forever())]
    keeper = Keeper(); keeper.task = tasks[0]
    table = {"t": tasks[0]}
    table["t"], {tasks[0]}, keeper.task
    return weakref.ref(tasks[0]), weakref.ref(keeper)
"""
    name = fresh_name()
    module = load_instrumented(source, name, f"/{name}.py")

    async def main() -> list[bool]:
        task, keeper = module.spawn(asyncio.get_running_loop())
        recorder.end_step()
        recorder.begin_step(1, 2)
        alive = [keeper() is not None]
        recorder.names.release()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gc.collect()
        return [*alive, task() is not None]

    with recording():
        assert asyncio.run(main()) == [False, False]


def test_finalizers_run_when_they_would() -> None:
    source = """
log = []
class Res:
    def __init__(self): self.items = []
    def __del__(self): log.append("gone")
def run():
    r = Res(); r.items.append(1); r.items
    r = None
    log.append("after")
"""
    module, _found = recorded(source)
    assert module.log == ["gone", "after"]


def test_names_of_dead_objects_are_not_given_to_others() -> None:
    source = """
class Box:
    def __init__(self): self.items = [0]
def run():
    for _ in range(50):
        b = Box(); b.items[0] = 1; b.items.append({}); b.items[-1]["k"] = 1
"""
    _module, found = recorded(source)
    written = [a.location for a in found if a.mode == "write" and a.name == "Box.items" and a.location.endswith("'#'")]
    assert len(written) == len(set(written)) == 50


def test_held_objects_are_let_go_at_the_end_of_the_step() -> None:
    class Probe:
        pass

    recorder.start_run()
    recorder.enabled = True
    probe = Probe()
    ref = weakref.ref(probe)
    lists = [[probe]]
    recorder.add(lists[0], "#", "write")
    recorder.enabled = False
    del probe
    lists.clear()
    assert ref() is not None  # held with its name, so that its address is not used again within the step
    recorder.end_step()
    assert ref() is None
