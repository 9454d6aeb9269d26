"""Wrong use: one sentence that names the thing and the remedy, exit code 2, no stack trace, nothing on stdout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.support import refused, run

Program = Callable[[str, str], Path]

SOURCE = """import abc
import asyncio


class Store:
    def __init__(self):
        self.kept = {}

    async def put(self, key, value):
        await asyncio.sleep(0)
        self.kept[key] = value

    async def add(self, number):
        return number + 1

    def size(self):
        return len(self.kept)


class Sealed:
    def __init__(self):
        raise ValueError("the seal is broken")

    async def open(self):
        pass


class Abstract(abc.ABC):
    @abc.abstractmethod
    def name(self): ...

    async def open(self):
        pass


async def scenario():
    await asyncio.sleep(0)


async def test_with_fixture(database):
    await database.close()


def prepared():
    return 7
"""
STORE = ("--cls", "Store", "--method")

CASES = {
    "unknown file": (("nowhere.py",), ("nowhere.py",)),
    "directory": (("folder",), ("folder",)),
    "unknown function": (("store.py::scenery",), ("scenery", "store.py", "scenario")),
    "unknown class": (("store.py", "--cls", "Stor", "--method", "put"), ("Stor", "store.py", "Store")),
    "unknown method": (("store.py", *STORE, "get"), ("Store", "get", "put")),
    "sync method": (("store.py", *STORE, "size"), ("Store.size", "not async", "put")),
    "method without class": (("store.py", "--method", "put"), ("--method", "--cls")),
    "too many arguments": (("store.py", *STORE, "put", "--args", "(1, 2, 3)"), ("Store.put", "(1, 2, 3)")),
    "arguments of the wrong type": (
        ("store.py", *STORE, "add", "--args", "('x',)"),
        ("Store.add('x')", "TypeError", "--args"),
    ),
    "no literal": (("store.py", *STORE, "put", "--args", "(1, sys)"), ("(1, sys)", "literal")),
    "open bracket": (("store.py", *STORE, "put", "--args", "(1"), ("(1", "literal")),
    "arguments for no method": (("store.py::scenario", "--args", "(1,)"), ("--args",)),
    "class that cannot be made": (
        ("store.py", "--cls", "Sealed", "--method", "open"),
        ("Sealed", "ValueError", "seal", "--setup"),
    ),
    "abstract class": (("store.py", "--cls", "Abstract", "--method", "open"), ("Abstract", "name", "subclass")),
    "setup, unknown module": (("store.py", *STORE, "put", "--setup", "nowhere:make"), ("nowhere", "--setup")),
    "setup, unknown function": (("store.py", *STORE, "put", "--setup", "store:make"), ("make", "store", "--setup")),
    "setup, no colon": (("store.py", *STORE, "put", "--setup", "store"), ("--setup", "store", "module:function")),
    "setup, wrong object": (("store.py", *STORE, "put", "--setup", "store:prepared"), ("prepared", "put")),
    "setup for no class": (("store.py::scenario", "--setup", "store:nowhere"), ("--setup",)),
    "fixture": (("store.py::test_with_fixture",), ("test_with_fixture", "database")),
    "unknown package": (("store.py::scenario", "--include", "no_such_package_1"), ("no_such_package_1", "--include")),
    "malformed token": (("store.py::scenario", "--replay", "nonsense"), ("nonsense", "token", "reproduce")),
    "budget": (("store.py::scenario", "--budget", "-1"), ("--budget", "-1")),
    "json directory": (("store.py::scenario", "--json", "missing/result.json"), ("missing",)),
}


@pytest.mark.parametrize("name", CASES)
def test_sentence(program: Program, tmp_path: Path, name: str) -> None:
    program("store.py", SOURCE)
    (tmp_path / "folder").mkdir()
    words, named = CASES[name]
    sentence = refused(run(*words, cwd=tmp_path))
    for part in named:
        assert part in sentence


def test_remedy_fits_the_parameters(program: Program, tmp_path: Path) -> None:
    """Store.add has one parameter: a tuple of two values in the remedy would be refused in turn."""
    program("store.py", SOURCE)
    sentence = refused(run("store.py", *STORE, "add", "--args", "('x',)", cwd=tmp_path))
    assert "--args \"(1, 'x')\"" not in sentence


def test_exception_at_import(program: Program, tmp_path: Path) -> None:
    program("fails.py", "import asyncio\n\nraise RuntimeError('no licence')\n\n\nasync def scenario():\n    pass\n")
    sentence = refused(run("fails.py::scenario", cwd=tmp_path))
    assert "fails.py" in sentence and "RuntimeError: no licence" in sentence
    assert "fails.py:3" in sentence


def test_missing_import(program: Program, tmp_path: Path) -> None:
    program("fails.py", "import no_such_package_1\n\n\nasync def scenario():\n    pass\n")
    sentence = refused(run("fails.py::scenario", cwd=tmp_path))
    assert "no_such_package_1" in sentence and "fails.py:1" in sentence


def test_syntax_error(program: Program, tmp_path: Path) -> None:
    program("broken.py", "import asyncio\n\n\nasync def scenario(:\n    pass\n")
    sentence = refused(run("broken.py::scenario", cwd=tmp_path))
    assert "broken.py:4" in sentence and "invalid syntax" in sentence


def test_syntax_error_in_a_module_beside(program: Program, tmp_path: Path) -> None:
    program("broken.py", "x = (\n")
    program("main.py", "import broken\n\n\nasync def scenario():\n    pass\n")
    sentence = refused(run("main.py::scenario", cwd=tmp_path))
    assert "broken.py" in sentence


def test_nothing_async(program: Program, tmp_path: Path) -> None:
    program("plain.py", "def scenario():\n    return 1\n")
    sentence = refused(run("plain.py", cwd=tmp_path))
    assert "plain.py" in sentence and "async" in sentence


def test_project_defaults(program: Program, tmp_path: Path) -> None:
    """[tool.chaossloth] applies, the command line goes before it, and a wrong key is named."""
    program("store.py", SOURCE)
    table = "[tool.chaossloth]\nruns = 3\nneeds = 'stock'\nrepair = false\nbudget = 3\n"
    program("pyproject.toml", table)
    defaults = run("store.py::scenario", cwd=tmp_path)
    assert defaults.result["natural"]["runs"] == 3
    assert defaults.result["verdict"]["bounds"]["labels"] == ["stock"]
    given = run("store.py::scenario", "--runs", "2", cwd=tmp_path)
    assert given.result["natural"]["runs"] == 2
    program("pyproject.toml", table.replace("runs", "rums"))
    sentence = refused(run("store.py::scenario", cwd=tmp_path))
    assert "rums" in sentence and "runs" in sentence and "pyproject.toml" in sentence
