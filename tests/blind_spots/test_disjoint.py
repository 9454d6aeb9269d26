"""Keys count: what two tasks do to different keys of one container does not conflict, and to the same key it does."""

from __future__ import annotations

import itertools
import textwrap

import pytest

from chaossloth.explore.execute import Execution, Executor
from chaossloth.explore.happens_before import CONFLICTS
from chaossloth.explore.strategy import StockOrder
from chaossloth.subject.record import SYNC
from tests.engine.support import FromSource

_numbers = itertools.count(1)

PROGRAM = """
import asyncio, collections
class Box: pass
class Slots: __slots__ = ("a", "b")
MADE = lambda: (MAKE)
async def act(s, k):
    BODY
async def main():
    s = MADE()
    await asyncio.gather(act(s, FIRST), act(s, SECOND))
    END
"""

BOX = "[setattr(b := Box(), 'a', 0), setattr(b, 'b', 0), b][-1]"

# what is shared, and what a task does with its key
KEYED: dict[str, tuple[str, str]] = {
    "dict item": ("{'a': 0, 'b': 0}", "v = s[k]; await asyncio.sleep(0); s[k] = v + 1"),
    "dict +=": ("{'a': 0, 'b': 0}", "s[k] += 1"),
    "dict += around a suspension": ("{'a': 0, 'b': 0}", "s[k] += await asyncio.sleep(0, 1)"),
    "dict new key": ("{}", "s[k] = 1"),
    "dict setdefault": ("{}", "s.setdefault(k, []).append(1)"),
    "dict get and store": ("{}", "v = s.get(k, 0); await asyncio.sleep(0); s[k] = v + 1"),
    "dict membership and store": ("{}", "if k not in s: s[k] = 1"),
    "dict pop": ("{'a': 0, 'b': 0}", "s.pop(k, None)"),
    "dict del": ("{'a': 0, 'b': 0}", "del s[k]"),
    "dict update": ("{'a': 0}", "s.update({k: 1})"),
    "dict |=": ("{'a': 0}", "s |= {k: 1}"),
    "defaultdict": ("collections.defaultdict(int)", "s[k] += 1"),
    "defaultdict of lists": ("collections.defaultdict(list)", "s[k].append(1)"),
    "Counter": ("collections.Counter()", "s[k] += 1"),
    "Counter update": ("collections.Counter()", "s.update({k: 1})"),
    "OrderedDict": ("collections.OrderedDict()", "s[k] = 1"),
    "nested dicts": ("{'a': {'n': 0}, 'b': {'n': 0}}", "s[k]['n'] += 1"),
    "nested dicts, made where missing": ("{}", "s.setdefault(k, {}).setdefault('n', []).append(1)"),
    "set add": ("set()", "s.add(k)"),
    "set discard": ("{'a', 'b'}", "s.discard(k)"),
    "set check and add": ("set()", "if k not in s: s.add(k)"),
    "set |=": ("set()", "s |= {k}"),
    "set update": ("set()", "s.update([k])"),
    "attribute": (BOX, "setattr(s, k, getattr(s, k) + 1)"),
    "attribute by vars": (BOX, "vars(s)[k] += 1"),
    "slot": ("Slots()", "setattr(s, k, 1)"),
    "list item": ("[0, 0]", "i = 'ab'.index(k); s[i] = s[i] + 1"),
    "list +=": ("[0, 0]", "i = 'ab'.index(k); s[i] += 1"),
    "list of lists": ("[[], []]", "s['ab'.index(k)].append(1)"),
    "tuple of lists": ("([], [])", "s['ab'.index(k)].append(1)"),
    "itemgetter": ("{'a': 0, 'b': 0}", "import operator; s[k] = operator.itemgetter(k)(s) + 1"),
}


def conflicts(make: str, body: str, first: str, second: str, end: str = "pass") -> set[object]:
    """The keys on which the two tasks' accesses conflict, in stock order."""
    source = PROGRAM.replace("MAKE", make).replace("BODY", body).replace("END", end)
    execution = executed(source.replace("FIRST", repr(first)).replace("SECOND", repr(second)))
    assert execution.outcome.ok or execution.outcome.exception in ("KeyError", "TypeError", "RuntimeError"), (
        execution.outcome
    )
    held: dict[object, list[tuple[str, int]]] = {}
    found = set()
    for step in execution.run.steps:
        if step.proc.name == "act":
            for number, key, mode, *_ in step.accesses:
                for other, other_mode in held.get((number, key), ()):
                    if other != step.proc.key and CONFLICTS[mode & ~SYNC] & other_mode:
                        found.add(key)
                held.setdefault((number, key), []).append((step.proc.key, mode))
    return found


def executed(source: str) -> Execution:
    name = f"disjoint{next(_numbers)}"
    program = FromSource(name, textwrap.dedent(source))
    return (executor := Executor(program, lambda: program, bool)).execute(StockOrder(), executor.model("stock"), 0)


@pytest.mark.parametrize("title", KEYED)
def test_different_keys_do_not_conflict(title: str) -> None:
    assert conflicts(*KEYED[title], "a", "b") == set()


@pytest.mark.parametrize("title", KEYED)
def test_the_same_key_conflicts(title: str) -> None:
    assert conflicts(*KEYED[title], "a", "a") != set()


GROWING = {
    t: p for t, p in KEYED.items() if t in ("dict new key", "dict pop", "dict setdefault", "set add", "set discard")
}
SIZE_READERS = ["len(s)", "bool(s)", "list(s)", "sorted(s)", "str(s)", "[x for x in s]", "s == {}", "s.copy()"]


@pytest.mark.parametrize("reader", SIZE_READERS)
@pytest.mark.parametrize("title", GROWING)
def test_a_change_of_size_conflicts_with_who_looks_at_it(title: str, reader: str) -> None:
    make, body = GROWING[title]
    assert "#" in conflicts(make, f"if k == 'a':\n        {body}\n    else: {reader}", "a", "b")


@pytest.mark.parametrize("reader", ["list(s)", "str(s)", "[x for x in s]", "s.copy()", "next(iter(s))", "{*s}"])
@pytest.mark.parametrize("title", ["dict new key", "dict setdefault", "set add"])
def test_the_order_of_insertions_counts_where_somebody_iterates_later(title: str, reader: str) -> None:
    make, body = GROWING[title]
    assert conflicts(make, body, "a", "b", end=reader) == {"#"}
    assert conflicts(make, body, "a", "b", end="assert len(s) == 2 and 'a' in s") == set()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("s.clear()", "s['b'] = 1"),
        ("s.popitem()", "s['b'] = 1"),
        ("s.popitem()", "s.popitem()"),
        ("for x in s: await asyncio.sleep(0)", "s['b'] = 1"),
        ("s.update(list(zip('ab', 'ab')))", "s['b'] = 1"),
    ],
)
def test_operations_on_the_whole_conflict(first: str, second: str) -> None:
    assert conflicts("{'a': 0}", f"if k == 'a':\n        {first}\n    else: {second}", "a", "b") != set()
