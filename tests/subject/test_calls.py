"""From a choice to executions: arguments, tests of several kinds, concurrent calls and their sequential outcomes."""

from __future__ import annotations

import asyncio
import random
import sys
import textwrap
import types
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from chaossloth.errors import UsageError
from chaossloth.evidence import Outcome
from chaossloth.subject.arguments import args_example, candidates, constructor_candidates, parse_literals
from chaossloth.subject.entry import CallSpec, Program, build_program
from chaossloth.subject.locate import locate

FILE = "subject_under_test.py"


class Source:
    """A module made of text; executed anew by `reload`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.code = compile(path.read_text(), str(path), "exec")
        self.module = self.reload()

    def reload(self) -> types.ModuleType:
        module = types.ModuleType(self.path.stem)
        module.__file__ = str(self.path)
        sys.modules[module.__name__] = module
        exec(self.code, module.__dict__)
        self.module = module
        return module

    def is_subject(self, filename: str) -> bool:
        return filename == str(self.path)


def run(coro: Coroutine[Any, Any, Any], seed: int) -> Any:
    random.seed(seed)

    async def bounded() -> Any:
        return await asyncio.wait_for(coro, 0.5)

    return asyncio.run(bounded())


Make = Callable[..., Program]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    monkeypatch.setitem(sys.modules, Path(FILE).stem, types.ModuleType("placeholder"))

    def build(text: str, target: str | None = None, methods: tuple[str, ...] = (), **spec: Any) -> Program:
        path = tmp_path / FILE
        path.write_text("import asyncio\nfrom asyncio import sleep\n" + textwrap.dedent(text))
        cls = target if methods else None
        found = locate(path, None if methods else target, cls, methods)
        return build_program(found.choice, Source(path), CallSpec(**spec))

    return build


def judged(program: Program) -> Outcome:
    try:
        result = program.call() if program.kind == "sync" else asyncio.run(program.make())
    except BaseException as error:
        return program.judge(None, error)
    return program.judge(result, None)


def prepared(program: Program) -> Program:
    program.prepare(run)
    return program


WALLET = """
    class Wallet:
        def __init__(self):
            self.row = {"gold": 0}
        async def grant(self, amount):
            gold = self.row["gold"]
            await sleep(0)
            self.row["gold"] = gold + amount
        async def safe(self, amount):
            await sleep(0)
            self.row["gold"] += amount
            return self.row["gold"]
"""


def test_lost_update_is_not_serializable_and_its_repair_is(make: Make) -> None:
    program = prepared(make(WALLET, "Wallet", ("grant",)))
    assert program.arguments == ("(1,)", "(1,)")
    outcome = judged(program)
    assert outcome.failure == "not-serializable"
    assert outcome.message == "Wallet.row['gold'] is 1; one after another it is 2"
    assert judged(prepared(make(WALLET, "Wallet", ("safe",)))).ok


@pytest.mark.parametrize("calls", [1, 3, 4, 6])
def test_equal_calls_in_any_number(make: Make, calls: int) -> None:
    program = prepared(make(WALLET, "Wallet", ("safe",), calls=calls))
    assert judged(program).ok
    assert program.serial is not None and program.serial.complete and program.serial.orders == 1


def test_given_arguments_are_cycled_and_checked(make: Make) -> None:
    program = prepared(make(WALLET, "Wallet", ("grant",), args=("(10,)", "{'amount': 5}")))
    assert program.arguments == ("(10,)", "(amount=5)")
    assert "one after another it is 15" in judged(program).message
    with pytest.raises(UsageError, match=r"--args \(1, 2\) does not fit Wallet.grant\(self, amount\)"):
        prepared(make(WALLET, "Wallet", ("grant",), args=("(1, 2)",)))
    with pytest.raises(UsageError, match="no Python literal"):
        make(WALLET, "Wallet", ("grant",), args=("foo(",))


def test_a_call_that_only_concurrency_makes_raise(make: Make) -> None:
    text = """
        class Room:
            def __init__(self): self.guests = {"a": 1}
            async def leave(self):
                if "a" in self.guests:
                    await sleep(0)
                    del self.guests["a"]
    """
    outcome = judged(prepared(make(text, "Room", ("leave",))))
    assert (outcome.failure, outcome.exception) == ("exception", "KeyError")
    assert outcome.where is not None and outcome.where.function == "Room.leave" and outcome.where.line == 9


def test_instances_instead_of_one(make: Make) -> None:
    text = """
        class Thing: ...
        class Lazy:
            def __init__(self): self.thing = None
            async def get(self):
                if self.thing is None:
                    await sleep(0)
                    self.thing = Thing()
                return self.thing
    """
    assert "the same object as Lazy.thing" in judged(prepared(make(text, "Lazy", ("get",)))).message


def test_time_randomness_and_ids_are_left_out_and_listed(make: Make) -> None:
    text = """
        import random, uuid
        class Log:
            def __init__(self): self.n, self.entries, self.last = 0, {}, 0.0
            async def add(self):
                self.entries[uuid.UUID(int=random.getrandbits(64))] = 1
                self.last = random.random()
                self.n += 1
    """
    program = prepared(make(text, "Log", ("add",)))
    assert judged(program).ok
    assert any("Log.entries[...], Log.last" in note for note in program.notes)


def test_an_exception_that_depends_on_chance_is_left_out(make: Make) -> None:
    text = """
        import random
        class Flaky:
            async def go(self):
                if random.random() < 0.4:
                    raise TimeoutError
    """
    program = prepared(make(text, "Flaky", ("go",)))
    assert all(judged(program).ok for _ in range(20))
    assert any("result of A" in note for note in program.notes)


def test_state_of_the_class_is_compared_afresh(make: Make) -> None:
    text = """
        class Shared:
            total = {"n": 0}
            async def add(self):
                n = self.total["n"]
                await sleep(0)
                self.total["n"] = n + 1
    """
    program = prepared(make(text, "Shared", ("add",)))
    assert not any("not compared" in note for note in program.notes)
    program.source.reload()
    message = judged(program).message
    assert message == "Shared.total['n'] is 1; one after another it is 2"


def test_background_tasks_are_waited_for_when_they_end(make: Make) -> None:
    text = """
        class Buffer:
            def __init__(self): self.sent, self.tasks = 0, []
            async def put(self):
                self.tasks.append(asyncio.create_task(self.flush()))
            async def flush(self):
                await sleep(0.001)
                self.sent += 1
    """
    assert judged(prepared(make(text, "Buffer", ("put",)))).ok
    endless = text.replace("await sleep(0.001)", "while True: await sleep(0.01)")
    program = prepared(make(endless, "Buffer", ("put",)))
    assert any("background tasks outlive" in note for note in program.notes)
    assert judged(program).ok


def test_methods_that_need_each_other(make: Make) -> None:
    text = """
        class Box:
            def __init__(self): self.q = asyncio.Queue()
            async def get(self): return await self.q.get()
            async def put(self, item): await self.q.put(item)
    """
    program = prepared(make(text, "Box", ("get", "put")))
    assert judged(program).ok
    assert any("a sequential order that does not end" in note for note in program.notes)
    with pytest.raises(UsageError, match=r"Box.get\(\) raises even when it runs alone: TimeoutError; add the method"):
        prepared(make(text, "Box", ("get",)))


def test_generators_and_context_managers(make: Make) -> None:
    text = """
        import contextlib
        class S:
            async def stream(self):
                yield 1
                yield 2
            @contextlib.asynccontextmanager
            async def held(self):
                yield 5
    """
    program = prepared(make(text, "S", ("stream", "held")))
    assert asyncio.run(program.make()).flat[("result of A", "[1]")] == ("plain", "int", 2)
    assert asyncio.run(program.make()).flat[("result of B",)] == ("plain", "int", 5)


def test_setup_function_of_the_file(make: Make) -> None:
    text = (
        WALLET
        + """
    async def prepared_wallet():
        wallet = Wallet()
        wallet.row["gold"] = 100
        return wallet
    """
    )
    program = prepared(make(text, "Wallet", ("grant",), setup="subject_under_test:prepared_wallet"))
    assert judged(program).message == "Wallet.row['gold'] is 101; one after another it is 102"
    for setup, message in (
        ("nothing", "not of the form module:function"),
        ("subject_under_test:gone", "there is no function 'gone'"),
        ("no_such_module_x:f", "cannot be imported"),
    ):
        with pytest.raises(UsageError, match=message):
            make(text, "Wallet", ("grant",), setup=setup)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("class C:\n    def __init__(self, db): db.open()\n    async def m(self): ...\n", "C cannot be constructed"),
        ("class C:\n    async def m(self, db): db.open()\n", "no value found for db that C.m accepts: AttributeError"),
        ("import abc\nclass C(abc.ABC):\n    @abc.abstractmethod\n    async def m(self): ...\n", "C is abstract"),
        (
            "class C:\n    async def m(self): raise OSError('down')\n",
            "C.m.. raises even when it runs alone: OSError: down",
        ),
    ],
)
def test_what_cannot_be_called_says_what_to_pass(make: Make, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        prepared(make(text, "C", ("m",)))
    assert "--setup module:function" in str(caught.value)


def test_arguments_are_fresh_for_each_execution(make: Make) -> None:
    text = """
        class C:
            def __init__(self): self.n = 0
            async def take(self, items: list[int]):
                items.append(1)
                self.n = len(items)
    """
    program = prepared(make(text, "C", ("take",)))
    assert [judged(program).ok for _ in range(3)] == [True] * 3


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ("n: int", "1"),
        ("n: 'int | None'", "1"),
        ("names: list[str]", "['a']"),
        ("m: dict[str, list[int]]", "{'a': [1]}"),
        ("c: Colour", "Colour.RED"),
        ("p: Point", "Point(1, 'a')"),
        ("p: Nested", "Nested(Point(1, 'a'))"),
        ("x: typing.Literal['on', 'off']", "'on'"),
        ("x: typing.Annotated[int, 'doc']", "1"),
        ("x: tuple[int, ...]", "(1,)"),
        ("f: typing.Callable[[], None]", "<async function that does nothing>"),
        ("x: UnknownName", "1"),
        ("point", "Point(1, 'a')"),
        ("user_id", "'a'"),
        ("amount, key='k'", "1"),
        ("a: int, *, flag: bool", "1, flag=True"),
        ("*args, **kwargs", ""),
    ],
)
def test_first_candidate(parameters: str, text: str) -> None:
    namespace: dict[str, Any] = {}
    source = f"""
from __future__ import annotations
import dataclasses, enum, typing
class Colour(enum.Enum):
    RED = 1
@dataclasses.dataclass
class Point:
    x: int
    name: str
class Nested:
    def __init__(self, p: Point): self.p = p
def f({parameters}): ...
"""
    exec(source, namespace)
    first = candidates(namespace["f"], namespace, bound=False)[0]
    assert first.text == text
    positional, named = first.make(namespace)
    namespace["f"](*positional, **named)


def test_candidates_are_few_and_nearest_first() -> None:
    def f(a, b, c, d, e, g):  # type: ignore[no-untyped-def]
        return None

    found = candidates(f, {}, bound=False)
    assert len(found) == len({a.text for a in found}) == 48
    assert found[0].text == "1, 1, 1, 1, 1, 1"
    assert constructor_candidates(object, {})[0].text == ""


def test_parse_literals() -> None:
    assert [a.text for a in parse_literals(["(1, 'x')", "7", "{'k': [1]}", "({'k': 1},)"])] == [
        "1, 'x'",
        "7",
        "k=[1]",
        "{'k': 1}",
    ]


# --- functions and tests ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "target", "kind", "failure"),
    [
        ("async def scenario():\n    assert 1 == 2\n", "scenario", "async", "assertion"),
        ("async def scenario():\n    raise OSError('x')\n", "scenario", "async", "exception"),
        ("async def scenario(n=3):\n    return n\n", "scenario", "async", None),
        ("def test_a():\n    asyncio.run(sleep(0))\n    assert False\n", "test_a", "sync", "assertion"),
        (
            "async def scenario():\n    async with asyncio.TaskGroup() as g:\n        g.create_task(bad())\n"
            "async def bad():\n    await sleep(0)\n    assert False\n",
            "scenario",
            "async",
            "assertion",
        ),
        (
            "import functools\ndef own_loop(f):\n    @functools.wraps(f)\n    def inner():\n"
            "        return asyncio.run(f())\n    return inner\n@own_loop\nasync def main():\n    await sleep(0)\n",
            "main",
            "sync",
            None,
        ),
        (
            "import functools\ndef logged(f):\n    @functools.wraps(f)\n    def inner():\n        return f()\n"
            "    return inner\n@logged\nasync def main():\n    raise ValueError\n",
            "main",
            "async",
            "exception",
        ),
        (
            "class TestX:\n    def setup_method(self): self.x = 1\n"
            "    async def test_a(self):\n        assert self.x == 2\n",
            "TestX.test_a",
            "async",
            "assertion",
        ),
        (
            "import unittest\nclass T(unittest.IsolatedAsyncioTestCase):\n"
            "    async def asyncSetUp(self): self.log = [1]\n    async def test_a(self):\n"
            "        self.addAsyncCleanup(self.last)\n        self.assertEqual(self.log, [1])\n"
            "    async def last(self):\n        raise OSError('cleanup ran')\n",
            "T.test_a",
            "async",
            "exception",
        ),
        (
            "import unittest\nclass T(unittest.TestCase):\n    def setUp(self): self.x = 1\n    def test_a(self):\n"
            "        asyncio.run(sleep(0))\n        self.assertEqual(self.x, 2)\n",
            "T.test_a",
            "sync",
            "assertion",
        ),
        ("import unittest\ndef test_a():\n    raise unittest.SkipTest('not here')\n", "test_a", "sync", None),
    ],
)
def test_functions_and_tests(make: Make, text: str, target: str, kind: str, failure: str | None) -> None:
    program = prepared(make(text, target))
    assert program.kind == kind
    outcome = judged(program)
    assert outcome.failure == failure and outcome.ok is (failure is None)
    if failure:
        assert outcome.where is not None and outcome.where.file.endswith(FILE)


def test_the_module_of_the_moment_is_executed(make: Make) -> None:
    program = make("seen = []\nasync def scenario():\n    seen.append(1)\n    return len(seen)\n", "scenario")
    assert [asyncio.run(program.make()) for _ in range(2)] == [1, 2]
    program.source.reload()
    assert asyncio.run(program.make()) == 1


def test_arguments_of_another_variant_are_used_again(make: Make, tmp_path: Path) -> None:
    first = prepared(make(WALLET, "Wallet", ("grant",), args=("(3,)",)))
    found = locate(tmp_path / FILE, None, "Wallet", ["grant"])
    again = prepared(build_program(found.choice, Source(tmp_path / FILE), CallSpec(), like=first))
    assert again.arguments == ("(3,)", "(3,)")


# --- fresh modules, what is ready, arguments that can conflict ---------------------------------------------------


SINGLETON = """
    class Service:
        _instance = None
        @classmethod
        async def instance(cls):
            if cls._instance is None:
                await sleep(0)
                cls._instance = cls()
            return cls._instance
        async def first_time(self):
            if type(self)._instance is None:
                type(self)._instance = self
                return "first"
            return "again"
"""


def test_the_modules_are_fresh_after_prepare(make: Make) -> None:
    """Else the first execution starts with the class's cache filled, and sees no race."""
    program = prepared(make(SINGLETON, "Service", ("instance",)))
    assert program.source.module.Service._instance is None
    assert "result of B is a Service of its own" in judged(program).message


def test_the_modules_are_fresh_before_every_sequential_run(make: Make) -> None:
    """A cache that stays filled after the first run would make the outcome of all others the only allowed one."""
    assert judged(prepared(make(SINGLETON, "Service", ("first_time",)))).ok


def test_another_function_of_the_file_starts_from_fresh_modules(make: Make) -> None:
    program = make("seen = []\nasync def scenario():\n    seen.append(1)\n    assert len(seen) == 1\n")
    assert judged(program).ok and not judged(program).ok
    assert judged(prepared(program)).ok


SINGLE_FLIGHT = """
    class SingleFlight:
        def __init__(self):
            self.inflight = {}
            self.cache = {}
        async def load(self, key):
            await sleep(0.001)
            self.cache[key] = key.upper()
            return self.cache[key]
        async def get(self, key="k"):
            if key in self.cache:
                return self.cache[key]
            task = self.inflight.get(key)
            if task is None:
                task = self.inflight[key] = asyncio.ensure_future(self.load(key))
                task.add_done_callback(lambda _: asyncio.get_running_loop().call_soon(self.clean, key, 4))
            return await asyncio.shield(task)
        def clean(self, key, rounds):
            if rounds:
                asyncio.get_running_loop().call_soon(self.clean, key, rounds - 1)
            else:
                del self.inflight[key]
"""


def test_what_is_ready_runs_before_the_state_is_read(make: Make) -> None:
    program = prepared(make(SINGLE_FLIGHT, "SingleFlight", ("get",)))
    assert judged(program).ok
    assert program.serial is not None
    (known,) = program.serial.known.values()
    assert known["SingleFlight", ".inflight"] == ("container", "dict", 0)


def test_a_callback_that_is_always_ready_does_not_hold_the_reading_up(make: Make) -> None:
    text = """
        class Ticker:
            def __init__(self):
                self.on = 1
            def tick(self):
                asyncio.get_running_loop().call_soon(self.tick)
            async def start(self):
                self.tick()
    """
    assert judged(prepared(make(text, "Ticker", ("start",)))).ok


BALANCE = """
    class Refused(Exception):
        pass
    class Account:
        def __init__(self, balance=100):
            self.balance = balance
        async def withdraw(self, amount: int):
            if self.balance < amount:
                raise Refused(amount)
            await sleep(0)
            self.balance -= amount
        async def take(self, *, amount: int):
            if self.balance < amount:
                return False
            await sleep(0)
            self.balance -= amount
            return True
        async def deposit(self, amount: int):
            self.balance += amount
        async def twice(self, amount: int):
            if amount > 2:
                raise Refused(amount)
"""


def test_a_number_is_taken_with_which_calls_can_conflict(make: Make) -> None:
    program = prepared(make(BALANCE, "Account", ("withdraw",)))
    assert program.arguments == ("(100,)", "(100,)")
    assert "Account.balance is -100; one after another it is 0" in judged(program).message
    assert program.notes[:2] == [
        "calls: withdraw(100) on Account() (arguments from the largest number that the fresh object holds; "
        "only these arguments were tried)",
        "arguments: withdraw(100) rather than withdraw(1), after which every call ends alike",
    ]
    assert prepared(make(BALANCE, "Account", ("take",))).arguments == ("(amount=100)", "(amount=100)")


@pytest.mark.parametrize("method", ["deposit", "twice"])
def test_the_plain_number_stays_where_another_makes_no_difference(make: Make, method: str) -> None:
    program = prepared(make(BALANCE, "Account", (method,)))
    assert program.arguments == ("(1,)", "(1,)")
    assert program.notes == [
        f"calls: {method}(1) on Account() (arguments from type hints; only these arguments were tried)"
    ]


def test_given_arguments_are_not_replaced(make: Make) -> None:
    program = prepared(make(BALANCE, "Account", ("withdraw",), args=("(1,)",)))
    assert program.arguments == ("(1,)", "(1,)")
    assert program.notes == ["calls: withdraw(1) on Account() (arguments from --args)"]


def test_a_setup_without_calls_is_refused(make: Make) -> None:
    with pytest.raises(UsageError, match="--setup m:f makes the object for concurrent calls, but scenario"):
        make("async def scenario(): ...", "scenario", setup="m:f")


@pytest.mark.parametrize(
    ("count", "text"),
    [(1, '--args "(1,)"'), (2, "--args \"(1, 'x')\""), (5, "--args \"(1, 'x', 2, 'y', 1)\"")],
)
def test_the_example_has_as_many_values_as_there_are_parameters(count: int, text: str) -> None:
    assert args_example(count) == text
