"""What a target means, decided from the syntax tree alone; every refusal is one sentence with a remedy."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from chaossloth.errors import UsageError
from chaossloth.subject.context import import_context, own_modules
from chaossloth.subject.locate import Located, locate, parse_target

WALLET = """\
import asyncio
from elsewhere import Remote, Base

class Ledger:
    async def book(self, n): ...

class Wallet(Ledger):
    def __init__(self): self.row = {}
    async def _load(self): await asyncio.sleep(0); return self.row["gold"]
    async def grant(self, n):
        gold = await self._load()
        self.row["gold"] = gold + n
    async def peek(self): return self.row
    def total(self): return 1

class Open(Base):
    async def go(self): ...

def helper(): ...
async def needs(store): ...
"""


def write(directory: Path, text: str | bytes, name: str = "wallet.py") -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refusal(path: Path | str, *args: object) -> str:
    with pytest.raises(UsageError) as caught:
        locate(path, *args)  # type: ignore[arg-type]
    text = str(caught.value)
    assert "\n" not in text and "Traceback" not in text
    return text


def test_parse_target() -> None:
    assert parse_target("a.py") == ("a.py", None)
    assert parse_target("d/a.py::f") == ("d/a.py", "f")
    assert parse_target("a.py::C::m") == ("a.py", "C.m")
    for bad in ("", "::f", "a.py::", "a.py::test_x[1]"):
        with pytest.raises(UsageError):
            parse_target(bad)


def test_the_file_itself(tmp_path: Path) -> None:
    write(tmp_path, WALLET)
    assert f"did you mean {tmp_path / 'wallet.py'}?" in refusal(tmp_path / "walet.py")
    assert "is a directory; name one Python file in it" in refusal(tmp_path)
    assert "is empty" in refusal(write(tmp_path, "\n\n", "empty.py"))
    assert "does not end in .py" in refusal(write(tmp_path, "x", "notes.txt"))
    assert "is binary" in refusal(write(tmp_path, b"\x7fELF\0\0", "b.py"))
    assert "bad.py:2 does not parse: " in refusal(write(tmp_path, "x = 1\ndef f(:\n", "bad.py"))
    assert "latin.py:2 is not valid utf-8: byte 0xe9" in refusal(write(tmp_path, b"# x\n'\xe9'\n", "latin.py"))
    assert "cannot be decoded" in refusal(write(tmp_path, b"# -*- coding: no-such -*-\n", "coding.py"))


@pytest.mark.parametrize(
    "data",
    [
        b"# -*- coding: latin-1 -*-\nasync def scenario(): return '\xe9'\n",
        b"\xef\xbb\xbfasync def scenario(): ...\n",
        b"async def scenario():\r\n    pass\r\n",
    ],
)
def test_encodings_and_line_ends(tmp_path: Path, data: bytes) -> None:
    assert locate(write(tmp_path, data)).choice.name == "scenario"


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((None, "Walet"), "no class 'Walet' in wallet.py; did you mean 'Wallet'?; classes there: Ledger, Wallet, Open"),
        ((None, "Wallet", ["grent"]), "class Wallet in wallet.py has no method 'grent'; did you mean 'grant'?"),
        ((None, "Wallet", ["total"]), "Wallet.total (wallet.py:14) is not async"),
        ((None, "helper"), "helper in wallet.py is a function, not a class; run it with wallet.py::helper"),
        (("needs",), "needs (wallet.py:20) takes store, which a fixture or a caller has to give"),
        (("nothing",), "no function or class 'nothing' in wallet.py"),
        (("Wallet", "Wallet"), "both say what to run"),
        ((None, None, ["flush"]), "no class in wallet.py has a method 'flush'"),
    ],
)
def test_refusals_name_thing_and_remedy(tmp_path: Path, args: tuple[object, ...], text: str) -> None:
    assert text in refusal(write(tmp_path, WALLET), *args)


def test_class_and_methods(tmp_path: Path) -> None:
    path = write(tmp_path, WALLET)
    choice = locate(path, None, "Wallet", ["grant", "book"]).choice
    assert (choice.kind, choice.cls, choice.methods, choice.checked) == ("calls", "Wallet", ("grant", "book"), True)
    assert locate(path, "Wallet.grant").choice.methods == ("grant",)
    assert locate(path, None, None, ["peek"]).choice.cls == "Wallet"
    assert [c.methods for c in locate(path, "Wallet").choices][:2] == [("grant",), ("grant", "book", "peek")]


def test_what_the_tree_cannot_show_is_left_to_the_worker(tmp_path: Path) -> None:
    path = write(tmp_path, WALLET)
    assert not locate(path, None, "Remote", ["go"]).choice.checked
    assert not locate(path, None, "Open", ["inherited"]).choice.checked
    assert not locate(path, "Remote").choice.checked
    assert "the methods of Remote are not visible in wallet.py; name one with --method" in refusal(path, None, "Remote")


def test_cyclic_bases_and_redefinition_end(tmp_path: Path) -> None:
    text = "class A(B): ...\nclass B(A):\n    def m(self): ...\n    async def m(self): ...\n"
    assert locate(write(tmp_path, text), None, "A", ["m"]).choice.methods == ("m",)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("async def main(): ...\nasync def scenario(): ...\n", ["scenario", "main"]),
        ("def test_a(): ...\nasync def test_b(): ...\nasync def main(): ...\n", ["main", "test_b", "test_a"]),
        ("import asyncio\ndef main(): asyncio.run(go())\nasync def go(): ...\n", ["main"]),
        ("async def go(): ...\nif __name__ == '__main__':\n    import asyncio\n    asyncio.run(go())\n", ["go"]),
        ("class TestX:\n    async def test_a(self): ...\n    async def test_b(self, db): ...\n", ["TestX.test_a"]),
        ("class K:\n    async def a(self): ...\n", ["K.a"]),
        (WALLET.replace("async def needs", "async def test_needs"), ["Wallet.grant"]),
    ],
)
def test_discovery(tmp_path: Path, text: str, names: list[str]) -> None:
    found = locate(write(tmp_path, text))
    assert [c.name for c in found.choices][: len(names)] == names
    assert found.how_chosen


ENTRIES = """import asyncio
import contextlib
import pytest

class Plain:
    def total(self): ...

async def fill(): ...

async def first():
    await asyncio.gather(fill(), fill())

async def with_argument(x): ...

async def again(n=3):
    await again(0)

async def _private(): ...

async def rows():
    yield 1

async def poll():
    while True:
        await asyncio.sleep(1)

async def until():
    while True:
        if await asyncio.sleep(1, True):
            return

@contextlib.asynccontextmanager
async def opened(): ...

@pytest.fixture
async def database(): ...
"""


def test_async_functions_that_nothing_uses_are_offered_last(tmp_path: Path) -> None:
    found = locate(write(tmp_path, ENTRIES))
    assert [c.name for c in found.choices] == ["first", "again", "until"]
    assert found.how_chosen == (
        "async function first (line 10), which nothing else in the file uses; "
        "there is no scenario, main, test or class with async methods (2 more: again, until)"
    )
    beside = locate(write(tmp_path, ENTRIES.replace("def total", "async def total"), "beside.py"))
    assert [c.name for c in beside.choices] == ["Plain.total", "first", "again", "until"]
    assert "nothing else" not in beside.how_chosen
    scenario = locate(write(tmp_path, "async def scenario(): ...\nasync def f(): ...\n", "scenario.py"))
    assert [c.name for c in scenario.choices] == ["scenario", "f"]


def test_tests_that_need_fixtures_are_named_not_chosen(tmp_path: Path) -> None:
    found = locate(write(tmp_path, "async def test_a(db): ...\nasync def test_b(): ...\n"))
    assert found.choice.name == "test_b"
    assert found.alternatives == ("test_a (takes db, which needs a fixture)",)
    assert "can be run without arguments: test_a" in refusal(write(tmp_path, "async def test_a(db): ...\n", "only.py"))
    assert "holds nothing asynchronous" in refusal(write(tmp_path, "x = 1\n", "plain.py"))


def test_json_round_trip(tmp_path: Path) -> None:
    found = locate(write(tmp_path, WALLET))
    again = Located.from_json(found.to_json())
    assert again.to_json() == found.to_json()
    assert again.choices == found.choices and again.context == found.context


def test_import_context(tmp_path: Path) -> None:
    root = tmp_path / "project"
    write(root, "[tool.pytest.ini_options]\npythonpath = ['lib']\n", "pyproject.toml")
    (root / "lib").mkdir()
    for name in ("src/app/__init__.py", "src/app/sub/__init__.py", "tests/conftest.py"):
        write(root, "", name)
    module = import_context(write(root, "x = 1", "src/app/sub/mod.py"))
    assert (module.module_name, module.package, module.root) == ("app.sub.mod", "app.sub", root)
    assert module.sys_path == (str(root / "src"),) and not module.is_main
    test = import_context(write(root, "x = 1", "tests/test_mod.py"))
    assert test.sys_path == (str(root / "tests"), str(root / "lib"), str(root), str(root / "src"))
    script = import_context(write(root, "x = 1", "tools/my-script.py"))
    assert (script.module_name, script.sys_path, script.is_main) == ("my_script", (str(root / "tools"),), True)
    assert script.sys_path_last == (str(root), str(root / "src"))
    assert import_context(write(root, "x = 1", "tools/random.py")).module_name == "subject_random"


def test_own_modules(tmp_path: Path) -> None:
    own = own_modules(tmp_path)
    write(tmp_path, "", ".venv/pyvenv.cfg")
    for name in ("a.py", "pkg/b.py"):
        assert own(str(write(tmp_path, "", name)))
    for name in (".venv/lib/c.py", "x/site-packages/d.py", "build/e.py", "data.txt"):
        assert not own(str(write(tmp_path, "", name)))
    assert not own(sys.modules["json"].__file__ or "")
    assert not own_modules(Path(__file__).parents[2])(sys.modules["chaossloth.errors"].__file__ or "")
