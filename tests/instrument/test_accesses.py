"""What each construct records: the exact locations and modes, in order. "m" is the subject's module."""

from __future__ import annotations

import textwrap

import pytest

from tests.instrument.support import accesses, recorded

# A class with plain state, made before the accesses under test; `body` is the function that is recorded.
PRELUDE = """
import asyncio, collections, copy, functools, heapq, json, random, weakref
class Box:
    level = 1
    def __init__(self):
        self.n = 0
        self.d = {"a": 1, "b": [1]}
        self.l = [1, 2]
        self.s = {"x"}
        self.q = collections.deque([1])
        self.name = "box"
    def m(self): return None
    @property
    def p(self): return self.n
class Slots:
    __slots__ = ("v", "w")
    def __init__(self): self.v = 0
box = Box()
slots = Slots()
count = 0
limit = 5
table = {}
"""

R, W, U = "read", "write", "update"
N, D, L, S, Q = ("Box.n", "Box.d", "Box.l", "Box.s", "Box.q")

CASES: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "attribute load": ("b.n", [(N, R)]),
    "attribute store": ("b.n = 1", [(N, W)]),
    "attribute delete": ("del b.n", [(N, W)]),
    "attribute augmented": ("b.n += 1", [(N, U)]),
    "attribute in a tuple target": ("b.n, x = 1, 2", [(N, W)]),
    "attribute as loop target": ("for b.n in (1,): pass", [(N, W)]),
    "method": ("b.m()", []),
    "property": ("b.p", [(N, R)]),
    "class attribute through an instance": ("b.level", [("Box.level", R), ("Box.level", R)]),
    "class attribute through the class": ("Box.level = 2", [("Box.level", W)]),
    "slot": ("sl.v = sl.v + 1", [("Slots.v", R), ("Slots.v", W)]),
    "missing attribute": ("hasattr(b, 'zz')", [("Box.zz", R)]),
    "setattr and getattr": ("setattr(b, 'n', getattr(b, 'n'))", [(N, R), (N, W)]),
    "instance dict": ("b.__dict__['n'] = 3", [(N, W)]),
    "vars": ("vars(b)['n']", [(N, R)]),
    "function attribute": ("run.calls = 1", [("run.calls", W)]),
    "dict item": ("d['a']", [(f"{D}['a']", R)]),
    "dict item missing": ("try: d['z']\nexcept KeyError: pass", [(f"{D}['z']", R)]),
    "dict overwrite": ("d['a'] = 2", [(f"{D}['a']", W)]),
    "dict new key": ("d['c'] = 2", [(f"{D}['c']", W), (D, W)]),
    "dict augmented": ("d['a'] += 2", [(f"{D}['a']", U)]),
    "dict delete": ("del d['a']", [(D, W), (f"{D}['a']", U)]),
    "dict computed key": ("d[str('a')]", [(f"{D}['a']", R)]),
    "dict get": ("d.get('a', 0)", [(f"{D}['a']", R)]),
    "dict setdefault present": ("d.setdefault('a', 0)", [(f"{D}['a']", R)]),
    "dict setdefault absent": ("d.setdefault('c', 0)", [(f"{D}['c']", U), (D, W)]),
    "dict pop": ("d.pop('a')", [(D, W), (f"{D}['a']", U)]),
    "dict pop absent": ("d.pop('c', None)", [(f"{D}['c']", R)]),
    "dict update": ("d.update(a=1, c=2)", [(f"{D}['a']", W), (f"{D}['c']", W), (D, W)]),
    "dict merge in place": ("d |= {'a': 5}", [(f"{D}['a']", W), ("dict", R), ("dict['a']", R)]),
    "dict clear": ("d.clear()", [(D, W), (f"{D}['a']", W), (f"{D}['b']", W)]),
    "dict popitem": ("d.popitem()", [(D, U), (f"{D}['b']", W)]),
    "dict membership": ("'a' in d", [(f"{D}['a']", R)]),
    "dict membership of an expression": ("str('a') not in d", [(f"{D}['a']", R)]),
    "dict length": ("len(d)", [(D, R)]),
    "dict truth": ("if d: pass", [(D, R)]),
    "dict not": ("not d", [(D, R)]),
    "dict in a condition": ("1 if d and True else 2", [(D, R)]),
    "dict loop": ("for k in d: pass", [(D, R)]),
    "dict values loop": ("for k in d.values(): pass", [(D, R), (f"{D}['a']", R), (f"{D}['b']", R)]),
    "dict comprehension over items": ("[k for k, v in d.items()]", [(D, R), (f"{D}['a']", R), (f"{D}['b']", R)]),
    "dict keys sorted": ("sorted(d)", [(D, R)]),
    "dict unpacked": ("{**d}", [(D, R), (f"{D}['a']", R), (f"{D}['b']", R)]),
    "dict shown": (
        "str(d)",
        [(D, R), (f"{D}['a']", R), (f"{D}['b']", R), (f"{D}['b']", R), (f"{D}['b'][0]", R)],
    ),
    "dict as keywords": ("dict(**t)", [("m.table", R)]),
    "nested": ("d['b'][0] = 3", [(f"{D}['b']", R), (f"{D}['b'][0]", W)]),
    "list item": ("l[0]", [(f"{L}[0]", R)]),
    "list item from the end": ("l[-1]", [(f"{L}[1]", R)]),
    "list out of range": ("try: l[9]\nexcept IndexError: pass", [(L, R)]),
    "list store": ("l[0] = 5", [(f"{L}[0]", W)]),
    "list append": ("l.append(5)", [(f"{L}[2]", W), (L, W)]),
    "list pop": ("l.pop()", [(L, W), (f"{L}[1]", W)]),
    "list pop first": ("l.pop(0)", [(L, W), (f"{L}[0]", W), (f"{L}[1]", W)]),
    "list insert": ("l.insert(1, 0)", [(L, W), (f"{L}[1]", W), (f"{L}[2]", W)]),
    "list extend": ("l.extend((1, 2))", [(L, W), (f"{L}[2]", W), (f"{L}[3]", W)]),
    "list extend by a generator": ("l.extend(i for i in (1, 2))", [(L, W), (f"{L}[2]", W), (f"{L}[3]", W)]),
    "list in place": ("l += (1,)", [(L, W), (f"{L}[2]", W)]),
    "list slice": ("l[0:1]", [(L, R), (f"{L}[0]", R)]),
    "list sort": ("l.sort()", [(L, W), (f"{L}[0]", W), (f"{L}[1]", W)]),
    "list delete": ("del l[0]", [(L, W), (f"{L}[0]", W), (f"{L}[1]", W)]),
    "list membership": ("1 in l", [(L, R), (f"{L}[0]", R), (f"{L}[1]", R)]),
    "list equality": ("l == [1, 2]", [(L, R), (f"{L}[0]", R), (f"{L}[1]", R)]),
    "list concatenation": ("l + [3]", [(L, R), (f"{L}[0]", R), (f"{L}[1]", R)]),
    "list sum": ("sum(l)", [(L, R), (f"{L}[0]", R), (f"{L}[1]", R)]),
    "list starred": ("print(*l, end='')", [(L, R), (f"{L}[0]", R), (f"{L}[1]", R)]),
    "list unpacked": ("x, y = l", [(L, R), (f"{L}[0]", R), (f"{L}[1]", R)]),
    "list formatted": ("f'{l}'", [(L, R), (f"{L}[0]", R), (f"{L}[1]", R)]),
    "list joined": ("','.join(map(str, l))", [(L, R), (f"{L}[0]", R), (f"{L}[1]", R)] * 2),
    "set add": ("s.add('y')", [(f"{S}['y']", W), (S, W)]),
    "set add present": ("s.add('x')", [(f"{S}['x']", R)]),
    "set discard": ("s.discard('x')", [(S, W), (f"{S}['x']", U)]),
    "set discard absent": ("s.discard('q')", [(f"{S}['q']", R)]),
    "set membership": ("'x' in s", [(f"{S}['x']", R)]),
    "set in place": ("s |= {'y'}", [(S, W), ("set", R), (f"{S}['y']", W)]),
    "set operator": ("s | {'y'}", [(S, R)]),
    "deque": ("q.append(1); q.popleft(); q[0]; len(q)", [(Q, W), (Q, U), (Q, R), (Q, R)]),
    "copy": ("copy.copy(l)", [(L, R), (f"{L}[0]", R), (f"{L}[1]", R)]),
    "heapq": ("heapq.heappush(l, 3)", [(L, W), (f"{L}[0]", W), (f"{L}[1]", W), (f"{L}[2]", W)]),
    "json": ("json.dumps(l)", [(L, R), (f"{L}[0]", R), (f"{L}[1]", R)]),
    "shuffle": ("random.shuffle(l)", [(L, W), (f"{L}[0]", W), (f"{L}[1]", W)]),
    "partial": ("functools.partial(l.append, 1)()", [(f"{L}[2]", W), (L, W)]),
    "unbound method": ("list.append(l, 1)", [(f"{L}[2]", W), (L, W)]),
    "match": ("match b:\n    case Box(n=0): pass", [(N, R)]),
    "walrus": ("if (y := d): pass", [(D, R)]),
    "getattr chain": ("b.d['b'].append(1)", [(D, R), (f"{D}['b']", R), (f"{D}['b'][1]", W), (f"{D}['b']", W)]),
    "global load": ("count", [("m.count", R)]),
    "global augmented": ("count += 1", [("m.count", U)]),
    "global store": ("count = 1", [("m.count", W)]),
    "global never rebound": ("limit", []),
    "global container": ("table['k'] = 1", [("m.table['k']", W), ("m.table", W)]),
}


def _program(body: str) -> str:
    header = (
        "def run():\n    global count\n    b, sl, t = setup()\n    d, l, s, q = parts()\n"
        "    return tested(b, sl, t, d, l, s, q)\n"
    )
    helpers = (
        "def setup(): return box, slots, table\n"
        "def parts(): return box.d, box.l, box.s, box.q\n"
        "def bump():\n    global count\n    count = 9\n"
        "def tested(b, sl, t, d, l, s, q):\n    global count\n"
    )
    return PRELUDE + helpers + textwrap.indent(body, "    ") + "\n" + header


SETUP = accesses(_program("pass"))


def test_the_harness_itself_records_only_its_setup() -> None:
    assert SETUP == [(D, R), (L, R), (S, R), (Q, R)]


@pytest.mark.parametrize("title", CASES)
def test_accesses(title: str) -> None:
    body, expected = CASES[title]
    found = accesses(_program(body))
    assert found[: len(SETUP)] == SETUP
    assert found[len(SETUP) :] == expected


def test_augmented_assignment_around_a_suspension_reads_before_and_writes_after() -> None:
    program = """
import asyncio
class C:
    def __init__(self): self.n = 0; self.d = {"k": 0}; self.l = []
    async def one(self): return self.n
    async def many(self): return [self.n]
async def run():
    c = C()
    c.n += await c.one()
    c.d["k"] += await c.one()
    c.l += await c.many()
"""
    found = accesses(program)[3:]
    assert found == [
        ("C.n", "read"),
        ("C.n", "read"),
        ("C.n", "write"),
        ("C.d", "read"),
        ("C.d['k']", "read"),
        ("C.n", "read"),
        ("C.d['k']", "write"),
        ("C.l", "read"),
        ("C.n", "read"),
        ("C.l", "write"),
        ("C.l", "write"),
        ("C.l[0]", "write"),
        ("list", "read"),
        ("list[0]", "read"),
    ]


def test_every_next_of_a_loop_that_suspends_reads_the_structure() -> None:
    program = """
import asyncio
class Hall:
    def __init__(self): self.guests = {"ann": [], "ben": []}
async def run():
    hall = Hall()
    for box in hall.guests.values():
        await asyncio.sleep(0)
        box.append(1)
"""
    assert accesses(program)[1:] == [
        ("Hall.guests", "read"),
        ("Hall.guests", "read"),
        ("Hall.guests['ann']", "read"),
        ("Hall.guests['ann'][0]", "write"),
        ("Hall.guests['ann']", "write"),
        ("Hall.guests", "read"),
        ("Hall.guests['ben']", "read"),
        ("Hall.guests['ben'][0]", "write"),
        ("Hall.guests['ben']", "write"),
        ("Hall.guests", "read"),
    ]


def test_a_reversed_loop_that_suspends_reads_any_item() -> None:
    program = """
import asyncio
async def run():
    l = [1, 2]
    for x in reversed(l):
        await asyncio.sleep(0)
        break
"""
    whole = [("list", "read"), ("list[0]", "read"), ("list[1]", "read")]
    assert accesses(program) == whole * 2  # made, and begun


def test_closure_variables_are_recorded_where_they_can_change() -> None:
    program = """
def run():
    fixed, total, early = 1, 0, 5
    def add(x):
        nonlocal total
        total += x + fixed
        return total
    def peek(): return late, early
    late = 3
    add(1)
    total = 7
    return peek(), total
"""
    assert accesses(program) == [
        ("run.total", "write"),
        ("run.late", "write"),
        ("run.total", "update"),
        ("run.total", "read"),
        ("run.total", "write"),
        ("run.late", "read"),
        ("run.total", "read"),
    ]


def test_closure_container_is_named_by_its_variable() -> None:
    program = """
def run():
    seen = []
    def add(x):
        nonlocal seen
        seen.append(x)
        seen = [x]
    add(1)
"""
    found = accesses(program)
    assert ("run.seen[0]", "write") in found and ("run.seen", "write") in found


def test_futures_are_synchronization() -> None:
    program = """
import asyncio
async def run():
    f = asyncio.get_running_loop().create_future()
    f.done()
    f.set_result(1)
    f.result()
    f.cancel()
"""
    _module, found = recorded(program)
    mine = [a for a in found if a.sync]
    assert [a.mode for a in mine] == ["read", "write", "read", "read"]  # cancelled too late
    assert len({a.location for a in mine}) == 1


def test_foreign_code_writes_what_it_is_given_unless_it_is_known_to_look() -> None:
    import tests.instrument.foreign_helper as helper

    program = f"""
import {helper.__name__} as helper
class Box:
    def __init__(self): self.items = [1]; self.n = 0
def run():
    b = Box()
    helper.unknown(b.items)
    helper.unknown(b)
    helper.Opaque().work(b.items)
"""
    whole = [("Box.items", "write"), ("Box.items[0]", "write")]
    assert accesses(program)[2:] == [
        ("Box.items", "read"),
        *whole,
        ("Box.items", "write"),  # the attributes of the box
        ("Box.n", "write"),
        ("Box.items", "read"),
        ("Opaque", "write"),
        *whole,
    ]
