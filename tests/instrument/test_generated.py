"""Generated programs: instrumented and plain version do the same, whatever the program is."""

from __future__ import annotations

import re

from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from tests.instrument.support import fresh_name, load_instrumented, load_plain, outcome, recording

HEADER = """
import asyncio, contextlib, functools
g = 0
G = {"k": [1]}
class Base:
    kind = "base"
    def m(self, v=1): self.x = ("base", v); return self
    def who(self): return self.__class__.__name__
    def __secret(self): return "base's"
    def told(self): return self.__secret()
class Slots:
    __slots__ = ("x", "__hidden", "y")
    def __init__(self): self.x, self.__hidden = [1], 7
    def hidden(self): self.__hidden += 1; return self.__hidden
    def __repr__(self): return f"Slots({self.x!r}, {self.__hidden})"
class C(Base):
    c = 1
    def __init__(self, *a): self.x = a; self.y = {"a": 1, "b": [1, 2]}; self.z = [3, 1, 2]; self.s = {1, 2}
    def m(self, v=1): super().m(v); self.x = v; return self
    def __secret(self): return "C's"
    def mine(self): return super().told(), self.__secret(), super().kind, __class__.__name__
    @classmethod
    def made(cls, *a, **k): return cls(*a, *k)
    @staticmethod
    def plain(v): return [v]
    def __len__(self): return 3
    def __iter__(self): return iter(self.z)
    def __contains__(self, v): return v in self.z
    def __getitem__(self, k): return self.y[k] if isinstance(k, str) else self.z[k]
    def __setitem__(self, k, v): self.z[k] = v
    def __delitem__(self, k): del self.z[k]
    def __iadd__(self, v): self.z += [v]; return self
    def __matmul__(self, v): return (self.x, v)
    def __call__(self, *a, **k): return (len(a), sorted(k))
    async def __aenter__(self): await asyncio.sleep(0); return self
    async def __aexit__(self, *a): await asyncio.sleep(0); return a[0] is KeyError
    def __aiter__(self): return numbers(2)
    def __repr__(self): return "C"
    def __enter__(self): return self
    def __exit__(self, *a): return False
    @property
    def p(self): return self.z
    @p.setter
    def p(self, v): self.z = v
    @p.deleter
    def p(self): self.z = []
class D(C):
    for i in (1, 2): pass
    table = {k: v for k, v in zip("ab", (1, 2))}
    kind = C.kind + "!"
    if kind: late = [x * 2 for x in (1, 2) if x]
    def m(self, v=(), *, key=None, **rest): return super().m([v, key, rest])
def wrapped(f):
    @functools.wraps(f)
    def inner(*a, **k): return f(*a, **k)
    return inner
def times(n):
    def deco(f):
        @functools.wraps(f)
        async def inner(*a, **k):
            return [await f(*a, **k) for _ in range(n)]
        return inner
    return deco
@contextlib.contextmanager
def scope(log, v):
    log.append("in")
    try: yield v
    except KeyError: log.append("key")
    finally: log.append("out")
async def numbers(n):
    try:
        for i in range(n):
            await asyncio.sleep(0)
            yield i
    finally: await asyncio.sleep(0)
def talker(log):
    got = None
    while True:
        try: got = yield (got, len(log))
        except KeyError as error: got = repr(error); log.append(got)
        except GeneratorExit: log.append("closed"); raise
def chained(log):
    v = yield from talker(log)
    return v
def trace(log, v): log.append(v); return v
"""

NAMES = ["a", "b", "o"]
SCALARS = st.sampled_from(["0", "1", "-1", "'a'", "'b'", "None", "True", "2.5"])


def _expressions(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    two = st.tuples(children, children)
    return st.one_of(
        st.sampled_from(NAMES),
        st.tuples(children, st.sampled_from(["x", "y", "z", "s", "p", "c", "q", "m"])).map(
            lambda t: f"({t[0]}).{t[1]}"
        ),
        two.map(lambda t: f"({t[0]})[{t[1]}]"),
        two.map(lambda t: f"({t[0]})[{t[1]}:]"),
        st.tuples(children, st.sampled_from(["+", "|", "-", "*", "%"]), children).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        st.tuples(children, st.sampled_from(["==", "<", "in", "not in", "is", "!="]), children).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        st.tuples(children, st.sampled_from(["and", "or"]), children).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        two.map(lambda t: f"({t[0]} if {t[1]} else log)"),
        children.map(lambda e: f"(not {e})"),
        children.map(lambda e: f"trace(log, {e})"),
        children.map(lambda e: f"len({e})"),
        children.map(lambda e: f"sorted({e})"),
        children.map(lambda e: f"f'{{ {e} !r:>4}}'"),
        children.map(lambda e: f"[i for i in {e} if i]"),
        two.map(lambda t: f"{{{t[0]}: {t[1]}}}"),
        two.map(lambda t: f"[{t[0]}, *{t[1]}]"),
        children.map(lambda e: f"{{**{e}}}"),
        children.map(lambda e: f"(lambda v: v)({e})"),
        two.map(lambda t: f"({t[0]}).get({t[1]}, 7)"),
        two.map(lambda t: f"({t[0]}).append({t[1]})"),
        two.map(lambda t: f"({t[0]}).pop({t[1]})"),
        two.map(lambda t: f"C({t[0]}, *{t[1]})"),
        two.map(lambda t: f"D.made(*{t[0]}, **{t[1]})"),
        two.map(lambda t: f"(lambda *a, k=1, **r: (a, k, r))(*{t[0]}, **{t[1]})"),
        two.map(lambda t: f"o({t[0]}, k={t[1]})"),
        two.map(lambda t: f"[(i, j) for i in list({t[0]})[:4] for j in list({t[1]})[:4] if i != j]"),
        two.map(lambda t: f"{{i: {t[1]} for i in list({t[0]})[:4]}}"),
        children.map(lambda e: f"sorted({e}, key=lambda v: repr(v), reverse=True)"),
        children.map(lambda e: f"max({e}, key=str, default=None)"),
        children.map(lambda e: f"list(map(repr, {e}))"),
        children.map(lambda e: f"list(zip({e}, enumerate({e})))"),
        children.map(lambda e: f"tuple(v for v in list({e})[:4] if trace(log, v))"),
        children.map(lambda e: f"[v async for v in numbers(2) if {e}]"),
        children.map(lambda e: f"[await wait(v) for v in list({e})[:4]]"),
        children.map(lambda e: f"f'{{{e}!s:>{{len(log)}}}}|{{ {e} = }}'"),
        children.map(lambda e: f"(-{e})"),
        children.map(lambda e: f"(c := [n, {e}])[1]"),
        children.map(lambda e: f"[d := v for v in list({e})[:4]]"),
        children.map(lambda e: f"next(iter({e}), None)"),
        children.map(lambda e: f"t.send({e})"),
        children.map(lambda e: f"t.throw(KeyError({e}))"),
        children.map(lambda e: f"(await pair({e}))"),
        two.map(lambda t: f"(o @ {t[0]} == {t[1]})"),
        two.map(lambda t: f"(0 < {t[0]} <= {t[1]})"),
        st.sampled_from(
            ["o.mine()", "o.told()", "o.who()", "sl.hidden()", "sl.x", "sl.y", "D.table", "D.late", "z", "D.kind"]
        ),
        children.map(lambda e: f"(a := {e})"),
        children.map(lambda e: f"(await wait({e}))"),
        st.just("o.m"),
        st.just("o.m()"),
    )


EXPRESSIONS = st.recursive(
    st.one_of(SCALARS, st.sampled_from(["a", "b", "o", "o.y", "o.z", "o.s", "G", "g"])), _expressions, max_leaves=6
)
TARGETS = st.one_of(
    st.sampled_from(
        ["a", "b", "g", "n", "o.x", "o.z", "o.y['a']", "o.z[0]", "(a, b)", "a, *o.x", "[a, o.z[1]]"]
        + ["o.p", "sl.x", "sl.y", "o.z[:1]", "o.z[::2]", "o[0]", "g2", "a.b", "(o.x, (a, *b))", "D.kind", "late"]
    ),
    EXPRESSIONS.map(lambda e: f"o.y[{e}]"),
    EXPRESSIONS.map(lambda e: f"({e}).x"),
)
AUGMENTED = st.one_of(
    st.sampled_from(
        ["a", "g", "n", "o", "o.x", "o.z", "o.z[0]", "o.z[:1]", "o.y['a']", "o.p", "sl.x", "o.y['b'][0]", "D.late"]
    ),
    EXPRESSIONS.map(lambda e: f"o.y[{e}]"),
)


def _indent(block: list[str]) -> str:
    return "\n".join("    " + line for statement in block for line in statement.split("\n"))


TRY = "try:\n{}\nexcept (TypeError, KeyError) as a:\n{}\nfinally:\n    log.append('f')"
GROUP = (
    "try:\n    try:\n        raise ExceptionGroup('g', [KeyError(1), ValueError(2), TypeError(3)])\n"
    "    except* KeyError as a:\n        log.append(len(a.exceptions))\n    except* (TypeError, OSError):\n{}\n"
    "except BaseException as a:\n    log.append(type(a).__name__)\nelse:\n    log.append({})"
)
NESTED = (
    "@times(2)\n@wrapped\nasync def nested(v, *rest, w=log, **more):\n    nonlocal n, late\n    n += 1\n    c = [v]\n"
    "    def deeper():\n        nonlocal c\n        c = [*c, n]\n        return c\n    try:\n{}\n"
    "    finally:\n        late = deeper()\n    return late\n"
    "log.append(repr(await nested({}, 1, w=2, k=3)))"
)
LOCAL_CLASS = (
    "class Local(Base):\n    z = {}\n    def __init__(self): self.__own = log\n"
    "    async def act(self):\n        nonlocal a, b\n        global g\n        o, sl, t = C(), Slots(), talker(log)\n        next(t)\n{}\n"
    "        return self.__own\nb = await Local().act()"
)
MATCHES = (
    "match {}:\n    case (int() | str()) as a if n >= 0:\n{}\n    case {{'b': [i, *b], **a}}: log.append((i, b, a))\n"
    "    case D(x=[a]) | C(x=(a,)): log.append(a)\n    case [[a, _] | [_, a, _], *_]: log.append(a)\n    case None | True: pass\n"
    "    case _ if (a := n): log.append('none')"
)
MATCH = (
    "match {}:\n    case [b, *_]:\n{}\n    case {{'a': a}}: log.append(a)\n    case C(x=a): pass\n"
    "    case _: log.append('none')"
)


def _statements(children: st.SearchStrategy[list[str]]) -> st.SearchStrategy[list[str]]:
    compound = st.one_of(
        st.tuples(EXPRESSIONS, children).map(lambda t: f"if {t[0]}:\n{_indent(t[1])}\nelse:\n    log.append('else')"),
        st.tuples(EXPRESSIONS, children).map(
            lambda t: f"for i in {t[0]}:\n{_indent(t[1])}\n    if len(log) > 20: break"
        ),
        st.tuples(EXPRESSIONS, children).map(
            lambda t: f"for i in {t[0]}:\n    await wait(1)\n{_indent(t[1])}\n    if len(log) > 20: break"
        ),
        st.tuples(children, children).map(lambda t: TRY.format(_indent(t[0]), _indent(t[1]))),
        SIMPLE.map(lambda s: f"try:\n{_indent([s])}\nexcept Exception as error:\n    log.append(repr(error))"),
        children.map(lambda b: f"with C() as b:\n{_indent(b)}"),
        st.tuples(EXPRESSIONS, children).map(
            lambda t: f"while len(log) < 4:\n    log.append(0)\n    if {t[0]}: continue\n{_indent(t[1])}"
        ),
        children.map(lambda b: f"async with C(1) as o.x:\n{_indent(b)}"),
        st.tuples(EXPRESSIONS, children).map(
            lambda t: f"with scope(log, {t[0]}) as (a, b), C() as o.z[0]:\n{_indent(t[1])}"
        ),
        children.map(
            lambda b: f"async for i in o:\n{_indent(b)}\n    if len(log) > 20: break\nelse:\n    log.append('all')"
        ),
        children.map(lambda b: f"for i in t:\n    log.append(i)\n{_indent(b)}\n    if len(log) > 4: break"),
        st.tuples(children, EXPRESSIONS).map(lambda t: GROUP.format(_indent([_indent(t[0])]), t[1])),
        st.tuples(children, EXPRESSIONS).map(lambda t: NESTED.format(_indent([_indent(t[0])]), t[1])),
        st.tuples(EXPRESSIONS, children).map(lambda t: LOCAL_CLASS.format(t[0], _indent([_indent(t[1])]))),
        st.tuples(EXPRESSIONS, children).map(lambda t: MATCHES.format(t[0], _indent([_indent(t[1])]))),
        st.tuples(EXPRESSIONS, children).map(lambda t: MATCH.format(t[0], _indent([_indent(t[1])]))),
    )
    return st.lists(st.one_of(SIMPLE, compound), min_size=1, max_size=4)


SIMPLE = st.one_of(
    st.tuples(TARGETS, EXPRESSIONS).map(lambda t: f"{t[0]} = {t[1]}"),
    st.tuples(AUGMENTED, st.sampled_from(["+=", "|=", "-=", "*="]), EXPRESSIONS).map(lambda t: f"{t[0]} {t[1]} {t[2]}"),
    EXPRESSIONS.map(lambda e: f"log.append({e})"),
    st.sampled_from(
        [
            "o.y.pop('a', 0)",
            "del o.z[0]",
            "del o.p",
            "del o[0]",
            "del o.z[:1], o.y['a']",
            "del late",
            "del sl.y",
            "del g2",
            "global_add(1)",
            "n = add(2)",
            "o += 4",
            "o.z += (5,)",
            "o.z[1:] += [6]",
            "o.y |= {'c': 1}",
            "o.s &= {1}",
            "o.y['b'] += await wait([8])",
            "t.close()",
            "t = chained(log)",
            "o.y.setdefault('l', []).append(n)",
            "log.append((await asyncio.gather(wait(1), pair(2))))",
            "return",
            "raise KeyError(n)",
            "del o.y['b']",
            "del a",
            "add(1)",
            "o.s.add(3)",
            "o.s.discard(1)",
            "o.z.sort()",
        ]
    ),
    EXPRESSIONS.map(lambda e: f"assert {e}, log"),
)
BLOCKS = st.recursive(st.lists(SIMPLE, min_size=1, max_size=4), _statements, max_leaves=4)


PROGRAM = """
async def wait(v):
    await asyncio.sleep(0)
    return v
async def pair(v):
    async with asyncio.TaskGroup() as group:
        first = group.create_task(wait(v))
        second = group.create_task(wait([v]))
    return first.result(), await second
def global_add(k):
    global g2
    g2 += k
g2 = 0
print_out = []
async def run():
    global g, g2
    log = []
    n = 0
    late = c = d = None
    a, b, o = {'a': 1}, [1, 2], D(5)
    sl, t = Slots(), talker(log)
    next(t)
    def add(k):
        nonlocal n
        n += k
        return n
    try:
BODY
    finally:
        log.append(n)
        end = repr((log, n, sl, o, g, G, globals().get("g2"), D.kind, D.late, D.table))
        if isinstance(o, C): end += repr((vars(o), o.mine()))
        t = None
        print_out.append(end)
    return end
"""


def _program(body: list[str]) -> str:
    return HEADER + PROGRAM.replace("BODY", _indent([_indent(body)]))


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(BLOCKS)
def test_generated_programs_do_the_same(body: list[str]) -> None:
    source = _program(body)
    name = fresh_name()
    filename = f"/{name}.py"
    try:
        plain = load_plain(source, name, filename)
    except SyntaxError:  # quotes nested in an f-string, on 3.11
        reject()
    expected = outcome(plain.run)
    hooked = load_instrumented(source, name, filename)
    with recording():
        found = outcome(hooked.run)
    assert _without_addresses(found.frames) == _without_addresses(expected.frames)
    assert _without_addresses(found) == _without_addresses(expected)
    assert _without_addresses(hooked.print_out) == _without_addresses(plain.print_out)


def _without_addresses(value: object) -> str:
    return re.sub(r"0x[0-9a-f]+", "0x", repr(value))
