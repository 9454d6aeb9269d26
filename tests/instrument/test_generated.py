"""Generated programs: instrumented and plain version do the same, whatever the program is."""

from __future__ import annotations

import re

from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from tests.instrument.support import fresh_name, load_instrumented, load_plain, outcome, recording

HEADER = """
import asyncio
g = 0
G = {"k": [1]}
class C:
    c = 1
    def __init__(self, *a): self.x = a; self.y = {"a": 1, "b": [1, 2]}; self.z = [3, 1, 2]; self.s = {1, 2}
    def m(self, v=1): self.x = v; return self
    def __repr__(self): return "C"
    def __enter__(self): return self
    def __exit__(self, *a): return False
    @property
    def p(self): return self.z
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
        children.map(lambda e: f"(a := {e})"),
        children.map(lambda e: f"(await wait({e}))"),
        st.just("o.m"),
        st.just("o.m()"),
    )


EXPRESSIONS = st.recursive(
    st.one_of(SCALARS, st.sampled_from(["a", "b", "o", "o.y", "o.z", "o.s", "G", "g"])), _expressions, max_leaves=6
)
TARGETS = st.one_of(
    st.sampled_from(["a", "b", "g", "n", "o.x", "o.z", "o.y['a']", "o.z[0]", "(a, b)", "a, *o.x", "[a, o.z[1]]"]),
    EXPRESSIONS.map(lambda e: f"o.y[{e}]"),
    EXPRESSIONS.map(lambda e: f"({e}).x"),
)
AUGMENTED = st.one_of(
    st.sampled_from(["a", "g", "n", "o.x", "o.z", "o.z[0]", "o.y['a']"]), EXPRESSIONS.map(lambda e: f"o.y[{e}]")
)


def _indent(block: list[str]) -> str:
    return "\n".join("    " + line for statement in block for line in statement.split("\n"))


TRY = "try:\n{}\nexcept (TypeError, KeyError) as a:\n{}\nfinally:\n    log.append('f')"
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
print_out = []
async def run():
    global g
    log = []
    n = 0
    a, b, o = {'a': 1}, [1, 2], C()
    def add(k):
        nonlocal n
        n += k
        return n
    try:
BODY
    finally:
        log.append(n)
        end = repr((log, o.x, o.y, o.z, o.s, g, G))
        print_out.append(end)
    return end
"""


def _program(body: list[str]) -> str:
    return HEADER + PROGRAM.replace("BODY", _indent([_indent(body)]))


@settings(max_examples=250, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
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
