"""Where a new lock is created: kinds of classes, closures, modules, imports. Every patched program is executed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chaossloth.diagnose import intents
from chaossloth.repair.proposal import Candidate
from tests.repair.scene import diagnosed, of_kind, proposed, text

METHOD = """
    async def add(self):
        seen = self.count
        await self.check(seen)
        self.count = seen + 1

    async def check(self, seen):
        await sleep(0)
"""
MAIN = """

async def scenario():
    thing = make()
    await asyncio.gather(thing.add(), thing.add())
    return thing.count
"""


def candidates(source: str, location: str, read: str = "seen = ", write: str = "= seen + 1") -> list[Candidate]:
    events = [("A", "read", read), ("B", "read", read), ("A", "write", write), ("B", "write", write)]
    return of_kind(proposed(diagnosed(source, location, events, (1, 2))), intents.WRAP_ATOMIC_SECTION)


def run(source: str) -> Any:
    scope: dict[str, Any] = {"__name__": "shop"}
    exec(compile(source, "shop.py", "exec", dont_inherit=True), scope)
    scope.setdefault("asyncio", asyncio)
    return asyncio.run(scope["scenario"]())


def patched(head: str, imports: str = "import asyncio\nfrom asyncio import sleep\n") -> str:
    """Class head (with its own `__init__`, if any), then the racy method; the first candidate, which must repair it."""
    source = imports + text(head) + METHOD + MAIN
    best = candidates(source, "Thing.count")[0]
    assert (run(source), run(best.new_source)) == (1, 2)
    return best.new_source


MAKE = "\n\ndef make():\n    return Thing()\n"


def with_make(head: str, call: str = "Thing()") -> str:
    return f"def make():\n    return {call}\n\n" + text(head)


def test_the_lock_is_created_at_the_end_of_init() -> None:
    new = patched(with_make("class Thing:\n    def __init__(self):\n        self.count = 0  # none\n"))
    assert "        self.count = 0  # none\n        self._count_lock = asyncio.Lock()\n" in new


def test_init_on_one_line() -> None:
    new = patched(with_make("class Thing:\n    def __init__(self): self.count = 0\n"))
    assert "    def __init__(self):\n        self.count = 0\n        self._count_lock = asyncio.Lock()\n" in new


def test_init_that_may_leave_early() -> None:
    head = 'class Thing:\n    def __init__(me):\n        """Doc."""\n        me.count = 0\n'
    head += "        if me.count == 0:\n            return\n"
    new = patched(with_make(head))
    assert '        """Doc."""\n        me._count_lock = asyncio.Lock()\n        me.count = 0\n' in new


def test_a_class_without_init_gets_one() -> None:
    new = patched(with_make('class Thing:\n    """Doc."""\n\n    count = 0\n'))
    assert "    def __init__(self):\n        self._count_lock = asyncio.Lock()\n\n    async def add(self):" in new


def test_a_derived_class_without_init_calls_its_base() -> None:
    head = "class Base:\n    def __init__(self, start):\n        self.count = start\n\n\nclass Thing(Base):\n    pass\n"
    new = patched(with_make(head, "Thing(0)"))
    assert "    def __init__(self, *args, **kwargs):\n        super().__init__(*args, **kwargs)\n" in new


def test_the_lock_belongs_to_the_class_that_defines_the_method() -> None:
    source = (
        "import asyncio\nfrom asyncio import sleep\n\n\nclass Base:\n    def __init__(self):\n        self.count = 0\n"
        + METHOD
        + "\n\nclass Thing(Base):\n    def __init__(self):\n        super().__init__()\n        self.other = 1\n"
        + MAKE
        + MAIN
    )
    new = candidates(source, "Thing.count")[0].new_source
    assert "        self.count = 0\n        self._count_lock = asyncio.Lock()\n" in new
    assert (run(source), run(new)) == (1, 2)


@pytest.mark.parametrize(
    ("imports", "decorator", "function"),
    [
        ("from dataclasses import dataclass\n", "@dataclass", "field"),
        ("from dataclasses import dataclass, field as f\n", "@dataclass(slots=True)", "f"),
        ("import dataclasses\n", "@dataclasses.dataclass(eq=True)", "dataclasses.field"),
    ],
)
def test_a_dataclass_gets_a_field(imports: str, decorator: str, function: str) -> None:
    head = f"{decorator}\nclass Thing:\n    count: int = 0\n"
    new = patched(with_make(head), "import asyncio\nfrom asyncio import sleep\n" + imports)
    assert (
        f"    _count_lock: asyncio.Lock = {function}"
        "(default_factory=asyncio.Lock, init=False, repr=False, compare=False)\n"
    ) in new
    scope: dict[str, Any] = {"__name__": "shop"}
    exec(compile(new, "shop.py", "exec", dont_inherit=True), scope)
    assert repr(scope["Thing"](3)) == "Thing(count=3)"
    assert scope["Thing"](3) == scope["Thing"](3)


@pytest.mark.parametrize(
    ("slots", "expected"),
    [
        ('("count",)', '("count", "_count_lock",)'),
        ("['count', 'x']", "['count', 'x', '_count_lock']"),
        ('"count"', '("count", "_count_lock")'),
    ],
)
def test_slots_are_extended(slots: str, expected: str) -> None:
    new = patched(
        with_make(f"class Thing:\n    __slots__ = {slots}\n\n    def __init__(self):\n        self.count = 0\n")
    )
    assert f"    __slots__ = {expected}\n" in new


@pytest.mark.parametrize(
    "head",
    [
        "class Thing(NamedTuple):\n    count: int = 0\n",
        "@attr.define\nclass Thing:\n    count: int = 0\n",
        "class Thing:\n    def __new__(cls):\n        return object.__new__(cls)\n",
        "class Thing:\n    __slots__ = names()\n",
    ],
    ids=["named-tuple", "attrs", "own-new", "computed-slots"],
)
def test_classes_that_cannot_be_given_a_lock(head: str) -> None:
    source = "import asyncio\n" + head + METHOD
    assert not candidates(source, "Thing.count")


@pytest.mark.parametrize(
    ("imports", "constructor", "added"),
    [
        ("import asyncio as aio\nfrom asyncio import sleep\n", "aio.Lock()", False),
        ("from asyncio import Lock as L, sleep\n", "L()", False),
        ("from asyncio import sleep\n", "asyncio.Lock()", True),
        (
            '"""Doc."""\nfrom __future__ import annotations\n\n# ours\nfrom asyncio import sleep\n',
            "asyncio.Lock()",
            True,
        ),
    ],
)
def test_the_modules_own_way_to_say_asyncio(imports: str, constructor: str, added: bool) -> None:
    head = with_make("class Thing:\n    def __init__(self):\n        self.count = 0\n")
    source = imports + head + METHOD + MAIN
    new = candidates(source, "Thing.count")[0].new_source
    assert f"self._count_lock = {constructor}\n" in new
    assert ("import asyncio\nfrom asyncio" in new) == added
    assert run(new) == 2


def test_a_name_in_use_is_not_taken() -> None:
    head = with_make("class Thing:\n    def __init__(self):\n        self.count = 0\n        self._count_lock = None\n")
    assert "self._count_lock_2 = asyncio.Lock()" in patched(head)


def test_the_lock_of_a_local_variable_is_local() -> None:
    source = text('''
    import asyncio

    async def scenario():
        """Two of them."""
        count = 0

        async def add():
            nonlocal count
            seen = count
            await asyncio.sleep(seen * 0)
            count = seen + 1

        await asyncio.gather(add(), add())
        return count
    ''')
    new = candidates(source, "add.count")[0].new_source
    assert "    count = 0\n    count_lock = asyncio.Lock()\n" in new
    assert "        nonlocal count\n        async with count_lock:\n            seen = count\n" in new
    assert (run(source), run(new)) == (1, 2)


MODULE = text("""
import asyncio

TOTAL = {"n": 0}  # all of it

async def add():
    seen = TOTAL["n"]
    await asyncio.sleep(seen * 0)
    TOTAL["n"] = seen + 1

async def scenario():
    TOTAL["n"] = 0
    await asyncio.gather(add(), add())
    return TOTAL["n"]
""")


def test_the_lock_of_a_global_stands_beside_it_and_says_what_it_costs() -> None:
    best = candidates(MODULE, "shop.TOTAL['n']")[0]
    assert 'TOTAL = {"n": 0}  # all of it\n_total_lock = asyncio.Lock()\n' in best.new_source
    assert "event loop" in best.note
    assert (run(MODULE), run(best.new_source)) == (1, 2)


def test_a_global_in_a_method_gets_no_lock_per_instance() -> None:
    source = text("""
    import asyncio

    TOTAL = {"n": 0}

    class Desk:
        async def add(self):
            seen = TOTAL["n"]
            await asyncio.sleep(seen * 0)
            TOTAL["n"] = seen + 1
    """)
    found = candidates(source, "shop.TOTAL['n']")
    assert "async with _total_lock:" in found[0].new_source
    assert not any("async with self._total_lock:" in c.new_source for c in found)


def test_a_class_attribute_gets_a_lock_of_the_class() -> None:
    source = text("""
    import asyncio

    class Desk:
        total = 0

        async def add(self):
            seen = Desk.total
            await asyncio.sleep(seen * 0)
            Desk.total = seen + 1

    async def scenario():
        await asyncio.gather(Desk().add(), Desk().add())
        return Desk.total
    """)
    new = candidates(source, "Desk.total")[0].new_source
    assert "    total = 0\n    _total_lock = asyncio.Lock()\n" in new
    assert "async with Desk._total_lock:" in new
    assert (run(source), run(new)) == (1, 2)


def test_the_lock_of_an_argument_is_its_own() -> None:
    source = text("""
    import asyncio

    class Account:
        def __init__(self):
            self.balance = 0

    async def deposit(account, amount):
        seen = account.balance
        await asyncio.sleep(seen * 0)
        account.balance = seen + amount

    async def scenario():
        account = Account()
        await asyncio.gather(deposit(account, 1), deposit(account, 1))
        return account.balance
    """)
    new = candidates(source, "Account.balance", write="= seen + amount")[0].new_source
    assert "    async with account._balance_lock:\n" in new
    assert (run(source), run(new)) == (1, 2)
