"""Racy programs whose conflict goes only through one construct, each. Two tasks execute `act`; stock order passes.

The second task starts late, so that in stock order the first is done by then: a search that reduces by the recorded
accesses meets the failing order only if the construct's own accesses (the lines marked `# here`) are recorded.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

__all__ = ["SPOTS", "Spot", "source_of"]

PRELUDE = """
class Box:
    def __init__(self):
        self.n, self.l, self.d, self.q = 0, [0], {"n": 0}, {"x", "y"}
def make(): return Box()
"""


@dataclass(frozen=True, slots=True)
class Spot:
    """act: body of `async def act(s, name)`; check: expression that holds after both; setup: `make()` and the rest.

    starts: how `main` starts the two tasks. modules: other modules of the program. named: what the verdict must name as
    unobservable, where the accesses cannot be recorded.
    """

    act: str
    check: str
    setup: str = PRELUDE
    starts: str = "await asyncio.gather(act(s, 'a'), late(s, 'b'))"
    modules: tuple[tuple[str, str], ...] = ()
    named: str = ""


def source_of(spot: Spot) -> str:
    body = textwrap.indent(textwrap.dedent(spot.act).strip("\n"), "    ")
    return (
        f"import asyncio\n{textwrap.dedent(spot.setup)}\n"
        f"async def act(s, name):\n{body}\n"
        "async def late(s, name):\n"
        "    for _ in range(6):\n        await asyncio.sleep(0)\n"
        "    await act(s, name)\n"
        f"async def main():\n    s = make()\n{textwrap.indent(spot.starts, '    ')}\n"
        f"    assert {spot.check}\n"
    )


def _count(read: str, write: str, check: str, setup: str = PRELUDE, **more: Any) -> Spot:
    """A lost update: `v = read`, a suspension, then `write`, which mentions v."""
    reads, writes = (
        "\n".join(f"{line}  # here" for line in textwrap.dedent(text).strip("\n").split("\n")) for text in (read, write)
    )
    return Spot(f"{reads}\nawait asyncio.sleep(0)\n{writes}", check, setup, **more)


def _with(made: str, imports: str = "") -> str:
    return f"{imports}\nclass Box:\n    def __init__(self):\n        {made}\ndef make(): return Box()\n"


SPOTS: dict[str, Spot] = {
    # -- containers, looked at as a whole
    "truth of a local alias": Spot(
        "l = s\nif not l:  # here\n    await asyncio.sleep(0)\n    l.append(name)  # here",
        "len(s) == 1",
        "def make(): return []",
    ),
    "truth in a conditional expression": Spot(
        "l = s\nfirst = 0 if l else 1  # here\nawait asyncio.sleep(0)\nif first: l.append(name)  # here",
        "len(s) == 1",
        "def make(): return []",
    ),
    "vars": _count("v = vars(s)['n']", "vars(s)['n'] = v + 1", "s.n == 2"),
    "vars update": _count("v = vars(s)['n']", "vars(s).update(n=v + 1)", "s.n == 2"),
    "vars unpacked": _count("v = {**vars(s)}['n']", "s.n = v + 1", "s.n == 2"),
    "dict unpacked": _count("v = {**s.d}['n']", "s.d['n'] = v + 1", "s.d['n'] == 2"),
    "dict |=": _count("v = s.d | {}", "s.d |= {'n': v['n'] + 1}", "s.d['n'] == 2"),
    "dict |= on an alias": _count("d = s.d\nv = dict(d)", "d |= {'n': v['n'] + 1}", "s.d['n'] == 2"),
    "set |=": Spot(
        "q = s.q\nmine = q | set()  # here\nawait asyncio.sleep(0)\nq |= {len(mine)}  # here", "s.q >= {'x', 'y', 2, 3}"
    ),
    "set -= and truth": Spot(
        "q = s.q\nif q & {'x'}:  # here\n    await asyncio.sleep(0)\n    q -= {'x'}  # here\n    s.n += 1", "s.n == 1"
    ),
    "heappop": Spot(
        "top = heapq.nsmallest(1, s)  # here\nawait asyncio.sleep(0)\nassert heapq.heappop(s) == top[0]  # here",
        "s == []",
        "import heapq\ndef make(): return [1, 2]",
    ),
    "heappop by its own name": Spot(
        "if s.h:  # here\n    await asyncio.sleep(0)\n    pop(s.h)  # here",
        "True",
        _with("self.h = [1]", "from heapq import heappop as pop"),
    ),
    "sorted": Spot(
        "m = sorted(s.l)[-1]  # here\nawait asyncio.sleep(0)\ns.l.append(m + 1)  # here", "sorted(s.l) == [0, 1, 2]"
    ),
    "max": Spot("m = max(s.l)  # here\nawait asyncio.sleep(0)\ns.l.append(m + 1)  # here", "sorted(s.l) == [0, 1, 2]"),
    "sorted by a method of a dict": Spot(
        "best = sorted(['n', 'm'], key=s.get)[0]  # here\nawait asyncio.sleep(0)\ns[best] = s[best] + 5  # here",
        "s == {'n': 5, 'm': 6}",
        "def make(): return {'n': 0, 'm': 1}",
    ),
    "max with key, in place": Spot(
        "best = max(s, key=s.__getitem__)  # here\nawait asyncio.sleep(0)\ns.update({best: 0})  # here",
        "s == {'n': 0, 'm': 0}",
        "def make(): return {'n': 2, 'm': 1}",
    ),
    "star unpacking": _count("a, *_ = [*s.l]", "s.l[0] = a + 1", "s.l == [2]"),
    "keyword unpacking": _count("v = dict(**s.d)['n']", "s.d['n'] = v + 1", "s.d['n'] == 2"),
    "format": _count("v = int(f\"{s.d['n']}\")", "s.d['n'] = v + 1", "s.d['n'] == 2"),
    "text of a list": _count("v = int(str(s.l)[1:-1])", "s.l[0] = v + 1", "s.l == [2]"),
    "slice": _count("v = s.l[:]", "s.l[:] = [v[0] + 1]", "s.l == [2]"),
    "slice of an alias, augmented": Spot(
        "l = s.l\nv = l[-1:]  # here\nawait asyncio.sleep(0)\nl[len(l):] = [v[0] + 1]  # here", "s.l == [0, 1, 2]"
    ),
    "method handed to map": Spot(
        "fresh = name not in s and not s  # here\nawait asyncio.sleep(0)\nif fresh: list(map(s.add, [name]))  # here",
        "len(s) == 1",
        "def make(): return set()",
    ),
    "method as a callback": Spot(
        "if not s:  # here\n"
        "    task = asyncio.create_task(asyncio.sleep(0), name='work')\n"
        "    task.add_done_callback(s.append)  # here\n"
        "    await task",
        "len(s) == 1",
        "def make(): return []",
    ),
    "Counter arithmetic": Spot(
        "v = +s  # here\nawait asyncio.sleep(0)\ns.update(n=3 - v['n'])  # here",
        "s['n'] == 3",
        "import collections\ndef make(): return collections.Counter(n=1)",
    ),
    "mapping proxy": Spot(
        "v = s.view['n']  # here\nawait asyncio.sleep(0)\ns.d['n'] = v + 1  # here",
        "s.d['n'] == 2",
        _with("self.d = {'n': 0}; self.view = types.MappingProxyType(self.d)", "import types"),
    ),
    "ChainMap": Spot(
        "v = s.d['n']  # here\nawait asyncio.sleep(0)\ns.chain['n'] = v + 1  # here",
        "s.d['n'] == 2",
        _with("self.d = {'n': 0}; self.chain = collections.ChainMap(self.d)", "import collections"),
    ),
    "subclass of UserDict": Spot(
        "v = s['n']  # here\nawait asyncio.sleep(0)\ns['n'] = v + 1  # here",
        "s['n'] == 2",
        "import collections\nclass Store(collections.UserDict): pass\ndef make(): return Store(n=0)",
    ),
    "subclass of UserList": Spot(
        "if not s:  # here\n    await asyncio.sleep(0)\n    s.append(name)  # here",
        "len(s) == 1",
        "import collections\nclass Store(collections.UserList): pass\ndef make(): return Store()",
    ),
    # -- queues and locks
    "Queue.empty and get_nowait": Spot(
        "if not s.empty():  # here\n    await asyncio.sleep(0)\n    s.get_nowait()  # here",
        "True",
        "def make():\n    q = asyncio.Queue()\n    q.put_nowait(1)\n    return q",
    ),
    "Queue.qsize and get_nowait": Spot(
        "if s.qsize() > 0:  # here\n    await asyncio.sleep(0)\n    s.get_nowait()  # here",
        "True",
        "def make():\n    q = asyncio.Queue()\n    q.put_nowait(1)\n    return q",
    ),
    "Queue.full and put_nowait": Spot(
        "if not s.full():  # here\n    await asyncio.sleep(0)\n    s.put_nowait(1)  # here",
        "True",
        "def make(): return asyncio.Queue(1)",
    ),
    "attribute of a primitive": _count(
        "v = s.level",
        "s.level = v + 1",
        "s.level == 2",
        "def make():\n    e = asyncio.Event()\n    e.level = 0\n    return e",
    ),
    "semaphores AB-BA": Spot(
        "first, second = (s.a, s.b) if name == 'a' else (s.b, s.a)\n"
        "async with first:  # here\n    await asyncio.sleep(0)\n    async with second:  # here\n        pass",
        "True",
        _with("self.a, self.b = asyncio.Semaphore(1), asyncio.Semaphore(1)"),
    ),
    # -- C functions that change their argument
    "struct.pack_into": _count(
        "v = s[0]", "struct.pack_into('b', s, 0, v + 1)", "s[0] == 2", "import struct\ndef make(): return bytearray(1)"
    ),
    "readinto": _count(
        "v = s[0]", "io.BytesIO(bytes([v + 1])).readinto(s)", "s[0] == 2", "import io\ndef make(): return bytearray(1)"
    ),
    "memoryview": _count("v = s[0]", "memoryview(s)[0] = v + 1", "s[0] == 2", "def make(): return bytearray(1)"),
    "array": _count("v = s[0]", "s[0] = v + 1", "s[0] == 2", "import array\ndef make(): return array.array('i', [0])"),
    "operator.setitem": _count(
        "v = operator.getitem(s, 'n')",
        "operator.setitem(s, 'n', v + 1)",
        "s['n'] == 2",
        "import operator\ndef make(): return {'n': 0}",
    ),
    "operator.iadd": _count(
        "v = len(s)", "operator.iadd(s, [v])", "s == [0, 1]", "import operator\ndef make(): return []"
    ),
    "reduce with operator.ior": Spot(
        "v = frozenset(s)  # here\nawait asyncio.sleep(0)\nfunctools.reduce(operator.ior, [{len(v)}], s)  # here",
        "s == {0, 1}",
        "import functools, operator\ndef make(): return set()",
    ),
    "itemgetter": _count(
        "v = get(s)",
        "s['n'] = v + 1",
        "s['n'] == 2",
        "import operator\nget = operator.itemgetter('n')\ndef make(): return {'n': 0}",
    ),
    "attrgetter": _count(
        "v = get(s)", "s.n = v + 1", "s.n == 2", "import operator\nget = operator.attrgetter('n')\n" + PRELUDE
    ),
    "attrgetter as a key": Spot(
        "best = min(s, key=operator.attrgetter('n'))  # here\nawait asyncio.sleep(0)\nbest.n += 2  # here",
        "[b.n for b in s] == [2, 3]",
        "import operator\nclass Box:\n    def __init__(self, n): self.n = n\ndef make(): return [Box(0), Box(1)]",
    ),
    "methodcaller": Spot(
        "if not s:  # here\n    await asyncio.sleep(0)\n    add(s)  # here",
        "len(s) == 1",
        "import operator\nadd = operator.methodcaller('append', 1)\ndef make(): return []",
    ),
    "insort": Spot(
        "v = len(s)  # here\nawait asyncio.sleep(0)\nbisect.insort(s, v)  # here",
        "s == [0, 1]",
        "import bisect\ndef make(): return []",
    ),
    "numpy item": _count(
        "v = int(s[0])", "s[0] = v + 1", "s[0] == 2", "import numpy\ndef make(): return numpy.zeros(1)"
    ),
    "numpy in place": Spot(
        "v = -s  # here\nawait asyncio.sleep(0)\ns *= 0\ns += 1 - v[0]  # here",
        "s[0] == 2",
        "import numpy\ndef make(): return numpy.zeros(1)",
    ),
    "numpy out argument": _count(
        "v = float(s.sum())", "numpy.add(v, 1, out=s)", "s[0] == 2", "import numpy\ndef make(): return numpy.zeros(1)"
    ),
    # -- attributes by other means
    "setattr and getattr": _count("v = getattr(s, 'n')", "setattr(s, 'n', v + 1)", "s.n == 2"),
    "delattr and hasattr": Spot(
        "if hasattr(s, 'n'):  # here\n    await asyncio.sleep(0)\n    delattr(s, 'n')  # here", "True"
    ),
    "object.__setattr__": _count(
        "v = object.__getattribute__(s, 'n')", "object.__setattr__(s, 'n', v + 1)", "s.n == 2"
    ),
    "partial of setattr": _count(
        "v = functools.partial(getattr, s)('n')",
        "functools.partial(setattr, s, 'n')(v + 1)",
        "s.n == 2",
        "import functools\n" + PRELUDE,
    ),
    "__dict__ item": _count("v = s.__dict__['n']", "s.__dict__['n'] = v + 1", "s.n == 2"),
    "__dict__ update": _count("v = s.n", "s.__dict__.update(n=v + 1)", "s.n == 2"),
    "__dict__ |=": _count("v = s.n", "s.__dict__ |= {'n': v + 1}", "s.n == 2"),
    "__dict__ replaced": _count("v = s.n", "s.__dict__ = {**s.__dict__, 'n': v + 1}", "s.n == 2"),
    "__dict__ shared by two objects": _count(
        "o = Borg()\nv = o.n",
        "o.n = v + 1",
        "s.n == 2",
        "class Borg:\n    state = {'n': 0}\n    def __init__(self): self.__dict__ = self.state\ndef make(): return Borg()",
    ),
    "slots": _count(
        "v = s.n",
        "s.n = v + 1",
        "s.n == 2",
        "class Box:\n    __slots__ = ('n',)\n    def __init__(self): self.n = 0\ndef make(): return Box()",
    ),
    "property": _count(
        "v = s.p",
        "s.p = v + 1",
        "s._n == 2",
        """
        class Box:
            def __init__(self): self._n = 0
            @property
            def p(self): return self._n  # here
            @p.setter
            def p(self, v): self._n = v  # here
        def make(): return Box()
        """,
    ),
    "property of a C getter": _count(
        "v = s.p",
        "s.n = v + 1",
        "s.n == 2",
        "import operator\nclass Box:\n    p = property(operator.attrgetter('n'))\n    def __init__(self): self.n = 0\ndef make(): return Box()",
    ),
    "descriptor": _count(
        "v = s.f",
        "s.f = v + 1",
        "s.f == 2",
        """
        class Field:
            def __set_name__(self, owner, name): self.name = "_" + name
            def __get__(self, o, cls): return vars(o).get(self.name, 0)  # here
            def __set__(self, o, v): vars(o)[self.name] = v  # here
        class Box:
            f = Field()
        def make(): return Box()
        """,
    ),
    "descriptor with a weak dictionary": _count(
        "v = s.f",
        "s.f = v + 1",
        "s.f == 2",
        """
        import weakref
        class Field:
            def __init__(self): self.values = weakref.WeakKeyDictionary()
            def __get__(self, o, cls): return self.values.get(o, 0)  # here
            def __set__(self, o, v): self.values[o] = v  # here
        class Box:
            f = Field()
        def make(): return Box()
        """,
    ),
    "class attribute": _count(
        "v = type(s).n",
        "type(s).n = v + 1",
        "Box.n == 2",
        "class Box: n = 0\ndef make():\n    Box.n = 0\n    return Box()",
    ),
    "class attribute through the instance": _count(
        "v = s.n",
        "s.__class__.n = v + 1",
        "Box.n == 2",
        "class Box: n = 0\ndef make():\n    Box.n = 0\n    return Box()",
    ),
    "class attribute through the class's __dict__": _count(
        "v = vars(Box)['n']",
        "Box.n = v + 1",
        "Box.n == 2",
        "class Box: n = 0\ndef make():\n    Box.n = 0\n    return Box()",
    ),
    "attribute of an enum member": _count(
        "v = s.n",
        "s.n = v + 1",
        "s.n == 2",
        "import enum\nclass Kind(enum.Enum):\n    A = 1\ndef make():\n    Kind.A.n = 0\n    return Kind.A",
    ),
    "attribute of a function": _count(
        "v = act.n", "act.n = v + 1", "act.n == 2", "def make():\n    act.n = 0\n    return None"
    ),
    "dataclasses.replace": Spot(
        "v = dataclasses.replace(s.p)  # here\nawait asyncio.sleep(0)\ns.p.n = v.n + 1  # here",
        "s.p.n == 2",
        "import dataclasses\n@dataclasses.dataclass\nclass P: n: int\n" + _with("self.p = P(0)"),
    ),
    "dataclasses.astuple": Spot(
        "v = dataclasses.astuple(s.p)[0]  # here\nawait asyncio.sleep(0)\ns.p.n = v + 1  # here",
        "s.p.n == 2",
        "import dataclasses\n@dataclasses.dataclass(slots=True)\nclass P: n: int\n" + _with("self.p = P(0)"),
    ),
    "copy": _count("v = copy.copy(s)", "s.n = v.n + 1", "s.n == 2", "import copy\n" + PRELUDE),
    # -- variables
    "global": Spot(
        "global n\nv = n  # here\nawait asyncio.sleep(0)\nn = v + 1  # here",
        "n == 2",
        "n = 0\ndef make():\n    global n\n    n = 0",
    ),
    "global of another module": _count(
        "v = shared.n",
        "shared.n = v + 1",
        "shared.n == 2",
        "import SHARED as shared\ndef make(): shared.n = 0",
        modules=(("SHARED", "n = 0\n"),),
    ),
    "global of another module, read there": _count(
        "v = shared.get()",
        "shared.n = v + 1",
        "shared.n == 2",
        "import SHARED as shared\ndef make(): shared.n = 0",
        modules=(("SHARED", "n = 0\ndef get():\n    return n  # here\n"),),
    ),
    "own module by sys.modules": _count(
        "v = n",
        "me = sys.modules[__name__]\nme.n = v + 1",
        "n == 2",
        "import sys\nn = 0\ndef make(): sys.modules[__name__].n = 0",
    ),
    "globals()": _count(
        "v = globals()['n']", "globals()['n'] = v + 1", "n == 2", "n = 0\ndef make(): globals()['n'] = 0"
    ),
    "globals() and the name": _count(
        "v = n", "globals()['n'] = v + 1", "n == 2", "n = 0\ndef make(): globals()['n'] = 0"
    ),
    "setattr on a module": _count(
        "v = n",
        "setattr(sys.modules[__name__], 'n', v + 1)",
        "n == 2",
        "import sys\nn = 0\ndef make(): setattr(sys.modules[__name__], 'n', 0)",
    ),
    "vars of a module": _count(
        "v = vars(sys.modules[__name__])['n']",
        "vars(sys.modules[__name__])['n'] = v + 1",
        "n == 2",
        "import sys\nn = 0\ndef make(): vars(sys.modules[__name__])['n'] = 0",
    ),
    "closure": _count(
        "v = s[0]()",
        "s[1](v + 1)",
        "s[0]() == 2",
        """
        def make():
            n = 0
            def get(): return n  # here
            def put(v):
                nonlocal n
                n = v  # here
            return get, put
        """,
    ),
    "closure deleted": Spot(
        "if s[0]():\n    await asyncio.sleep(0)\n    s[1]()",
        "True",
        """
        def make():
            n = 1
            def get():
                try: n  # here
                except NameError: return False
                return True
            def drop():
                nonlocal n
                del n  # here
            return get, drop
        """,
    ),
    "default argument": _count(
        "v = f()",
        "f(v + 1)",
        "f() == 2",
        """
        def f(v=None, kept=[0]):
            if v is not None: kept[0] = v  # here
            return kept[0]  # here
        def make(): f(0)
        """,
    ),
    "default argument by keyword": _count(
        "v = f()",
        "f(v + 1)",
        "f() == 2",
        """
        def f(v=None, *, kept={}):
            if v is not None: kept.update(n=v)  # here
            return kept.get("n", 0)  # here
        def make(): f(0)
        """,
    ),
    "context variable in a shared context": _count(
        "v = n.get()",
        "n.set(v + 1)",
        "s.run(n.get) == 2",
        "import contextvars\nn = contextvars.ContextVar('n', default=0)\ndef make(): return contextvars.copy_context()",
        starts="a, b = (asyncio.create_task(f(s, t), context=s) for f, t in ((act, 'a'), (late, 'b')))\nawait a\nawait b",
        named="variables of a context",
    ),
    "object in a context variable": _count(
        "v = n.get()['n']",
        "n.get()['n'] = v + 1",
        "s['n'] == 2",
        "import contextvars\nn = contextvars.ContextVar('n')\ndef make():\n    d = {'n': 0}\n    n.set(d)\n    return d",
    ),
    "cached function": Spot(
        "hits = cached.cache_info().hits  # here\nawait asyncio.sleep(0)\ncached(1)  # here\nassert cached.cache_info().hits == hits + 1",
        "True",
        "import functools\n@functools.lru_cache\ndef cached(x): return x\ndef make(): cached(1)",
    ),
    # -- iterators and generators
    "generator's state": Spot(
        "v = next(s)  # here\nawait asyncio.sleep(0)\nassert next(s) == v + 1  # here",
        "True",
        "def numbers():\n    n = 0\n    while True:\n        n += 1\n        yield n\ndef make(): return numbers()",
    ),
    "generator's state by send": Spot(
        "v = s.send(None)  # here\nawait asyncio.sleep(0)\nassert s.send(None) == v + 1  # here",
        "True",
        "def numbers():\n    n = 0\n    while True:\n        n += 1\n        yield n\ndef make(): return numbers()",
    ),
    "generator in two loops": Spot(
        "got = []\nfor v in s:  # here\n    got.append(v)\n    await asyncio.sleep(0)\n    if len(got) == 2: break\n"
        "assert got[1] == got[0] + 1",
        "True",
        "def numbers():\n    n = 0\n    while True:\n        n += 1\n        yield n\ndef make(): return numbers()",
    ),
    "generator's rest": Spot(
        "if name == 'a':\n    next(s)  # here\n    await asyncio.sleep(0)\n    assert [*s] == [2, 3]  # here\n"
        "else:\n    next(s, None)  # here",
        "True",
        "import itertools\ndef numbers(): yield from (1, 2, 3, 4)\ndef make(): return itertools.islice(numbers(), 3)",
    ),
    "asynchronous generator": Spot(
        "got = []\nasync for v in s:  # here\n    got.append(v)\n    await asyncio.sleep(0)\n    if len(got) == 2: break\n"
        "assert got[1] == got[0] + 1",
        "True",
        "async def numbers():\n    n = 0\n    while True:\n        n += 1\n        yield n\ndef make(): return numbers()",
    ),
    "itertools.count": Spot(
        "v = next(s)  # here\nawait asyncio.sleep(0)\nassert next(s) == v + 1  # here",
        "True",
        "import itertools\ndef make(): return itertools.count()",
    ),
    "iterator consumed as a whole": Spot(
        "if name == 'a':\n    next(s)  # here\n    await asyncio.sleep(0)\n    assert list(s) == [2, 3]  # here\n"
        "else:\n    next(s, None)  # here",
        "True",
        "def make(): return iter([1, 2, 3])",
    ),
    "iterator inside zip": Spot(
        "if name == 'a':\n    next(s)  # here\n    await asyncio.sleep(0)\n    assert list(zip(s, 'ab')) == [(2, 'a'), (3, 'b')]  # here\n"
        "else:\n    next(s, None)  # here",
        "True",
        "def make(): return iter([1, 2, 3])",
    ),
    "generator expression consumed later": Spot(
        "if name == 'a':\n    lazy = (x for x in s)\n    n = len(s)  # here\n    await asyncio.sleep(0)\n"
        "    assert sum(1 for _ in lazy) == n  # here\nelse:\n    s.append(1)  # here",
        "True",
        "def make(): return [1]",
    ),
    # -- weak references
    "weak reference": Spot(
        "if name == 'a':\n    alive = s.ref() is not None  # here\n    await asyncio.sleep(0)\n"
        "    assert (s.ref() is not None) == alive  # here\nelse:\n    s.strong = None  # here",
        "True",
        "import weakref\nclass Thing: pass\n" + _with("self.strong = Thing(); self.ref = weakref.ref(self.strong)"),
    ),
    "WeakValueDictionary": Spot(
        "if s.cache.get('k') is None:  # here\n    await asyncio.sleep(0)\n    s.made += 1\n"
        "    thing = s.cache['k'] = Thing()  # here\n    s.kept.append(thing)",
        "s.made == 1",
        "import weakref\nclass Thing: pass\n"
        + _with("self.cache = weakref.WeakValueDictionary(); self.made = 0; self.kept = []"),
    ),
    "WeakValueDictionary whose value goes": Spot(
        "if name == 'a':\n    had = 'k' in s.cache  # here\n    await asyncio.sleep(0)\n"
        "    assert ('k' in s.cache) == had  # here\nelse:\n    s.strong = None  # here",
        "True",
        "import weakref\nclass Thing: pass\n"
        + _with("self.strong = Thing(); self.cache = weakref.WeakValueDictionary(k=self.strong)"),
    ),
    "WeakSet": Spot(
        "if not len(s.live):  # here\n    await asyncio.sleep(0)\n    t = Thing()\n    s.kept.append(t)\n    s.live.add(t)  # here",
        "len(s.kept) == 1",
        "import weakref\nclass Thing: pass\n" + _with("self.live = weakref.WeakSet(); self.kept = []"),
    ),
    # -- the world outside
    "file by open": _count(
        "with open(PATH) as f: v = int(f.read())",
        "with open(PATH, 'w') as f: f.write(str(v + 1))",
        "open(PATH).read() == '2'",
        "import os, tempfile\nPATH = os.path.join(tempfile.gettempdir(), 'chaossloth_blind_spot_a')\n"
        "def make(): open(PATH, 'w').write('0')",
    ),
    "file by pathlib": _count(
        "v = int(PATH.read_text())",
        "PATH.write_text(str(v + 1))",
        "PATH.read_text() == '2'",
        "import pathlib, tempfile\nPATH = pathlib.Path(tempfile.gettempdir(), 'chaossloth_blind_spot_b')\n"
        "def make(): PATH.write_text('0')",
    ),
    "file that exists": Spot(
        "if not os.path.exists(PATH):  # here\n    await asyncio.sleep(0)\n    os.mkdir(PATH)  # here",
        "True",
        "import os, tempfile\nPATH = os.path.join(tempfile.gettempdir(), 'chaossloth_blind_spot_c')\n"
        "def make():\n    if os.path.exists(PATH): os.rmdir(PATH)",
    ),
    "environment": _count(
        "v = int(os.environ['CHAOSSLOTH_SPOT'])",
        "os.environ['CHAOSSLOTH_SPOT'] = str(v + 1)",
        "os.environ['CHAOSSLOTH_SPOT'] == '2'",
        "import os\ndef make(): os.environ['CHAOSSLOTH_SPOT'] = '0'",
    ),
    "getenv": _count(
        "v = int(os.getenv('CHAOSSLOTH_SPOT'))",
        "os.environ.update(CHAOSSLOTH_SPOT=str(v + 1))",
        "os.environ['CHAOSSLOTH_SPOT'] == '2'",
        "import os\ndef make(): os.environ['CHAOSSLOTH_SPOT'] = '0'",
    ),
    "attribute of a standard module": _count(
        "v = sys.spot", "sys.spot = v + 1", "sys.spot == 2", "import sys\ndef make(): sys.spot = 0"
    ),
    "sqlite on one connection": _count(
        "(v,) = s.execute('select n from t').fetchone()",
        "s.execute('update t set n = ?', (v + 1,))",
        "s.execute('select n from t').fetchone() == (2,)",
        "import sqlite3\ndef make():\n    c = sqlite3.connect(':memory:')\n    c.execute('create table t (n)')\n"
        "    c.execute('insert into t values (0)')\n    return c",
    ),
    # -- tasks made by code that is called
    "tasks of gather in a callee": Spot(
        "await asyncio.sleep(0)\nv = s.n  # here\nawait asyncio.sleep(0)\ns.n = v + 1  # here",
        "s.n == 2",
        PRELUDE + "async def fan_out(s): await asyncio.gather(act(s, 'a'), late(s, 'b'))",
        starts="await fan_out(s)",
    ),
    "tasks of TaskGroup in a callee": Spot(
        "v = s.n  # here\nawait asyncio.sleep(0)\ns.n = v + 1  # here",
        "s.n == 2",
        PRELUDE
        + "async def fan_out(s):\n    async with asyncio.TaskGroup() as g:\n"
        + "        g.create_task(act(s, 'a'))\n        g.create_task(late(s, 'b'))",
        starts="await fan_out(s)",
    ),
    # -- futures
    "Future.done and set_result": Spot(
        "if not s.done():  # here\n    await asyncio.sleep(0)\n    s.set_result(1)  # here",
        "True",
        "def make(): return asyncio.get_running_loop().create_future()",
    ),
    "code in a string": Spot(
        "v = eval('s.n')  # here\nawait asyncio.sleep(0)\nexec('s.n = v + 1')  # here",
        "s.n == 2",
        named="code run by eval or exec",
    ),
}
