"""Options from the command line, from `[tool.chaossloth]`, and from both."""

from __future__ import annotations

import shlex
import subprocess
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from chaossloth.config import VERSION, Options, command_line, load_defaults, merge, shell_line, validated
from chaossloth.errors import UsageError


def project(folder: Path, table: str) -> Path:
    (folder / "pyproject.toml").write_text(f"[project]\nname = 'p'\n\n[tool.chaossloth]\n{table}\n")
    return folder


def test_no_table_no_defaults(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'p'\n")
    assert load_defaults(tmp_path) == {}


def test_every_key(tmp_path: Path) -> None:
    table = """
target = "src/store.py"
cls = "Store"
method = ["put", "drop"]
calls = 3
args = "(1,)"
setup = "conftest:make"
runs = 0
budget = 60
executions = 40
all = true
seed = 7
include = ["anyio"]
json = "out.json"
repair = false
verbosity = -1
needs = "stock"
memory = 512
step-limit = 0.5
"""
    assert load_defaults(project(tmp_path, table)) == {
        "target": str(tmp_path / "src/store.py"),
        "cls": "Store",
        "methods": ("put", "drop"),
        "calls": 3,
        "args": ("(1,)",),
        "setup": "conftest:make",
        "runs": 0,
        "budget_s": 60.0,
        "executions": 40,
        "all_failures": True,
        "seed": 7,
        "include": ("anyio",),
        "json_path": str(tmp_path / "out.json"),
        "repair": False,
        "verbosity": -1,
        "needs": "stock",
        "memory_mb": 512,
        "step_limit_s": 0.5,
    }
    assert set(load_defaults(tmp_path)) <= {field.name for field in fields(Options)}


def test_nearest_file_counts_and_ends_the_search(tmp_path: Path) -> None:
    project(tmp_path, "runs = 1")
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert load_defaults(inner) == {"runs": 1}
    (tmp_path / "a" / "pyproject.toml").write_text("")
    assert load_defaults(inner) == {}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("bugdet = 3", "unknown key 'bugdet' of [tool.chaossloth] in {file}; did you mean 'budget'?"),
        ("step_limit = 3", "unknown key 'step_limit' of [tool.chaossloth] in {file}; did you mean 'step-limit'?"),
        ("apply = true", "key 'apply' of [tool.chaossloth] in {file} is not accepted: it overwrites source files"),
        ("replay = 'x'", "key 'replay' of [tool.chaossloth] in {file} is not accepted"),
        ("calls = 0", "key 'calls' of [tool.chaossloth] in {file} must be a whole number from 1 to 26, not 0"),
        ("calls = true", "must be a whole number from 1 to 26, not True"),
        ("calls = '2'", "must be a whole number from 1 to 26, not '2'"),
        ("executions = 0", "key 'executions' of [tool.chaossloth] in {file} must be a whole number, 1 or more, not 0"),
        ("budget = nan", "must be a number of seconds above 0, not nan"),
        ("budget = -1", "must be a number of seconds above 0, not -1"),
        ("repair = 'no'", "must be true or false, not 'no'"),
        ("needs = 'more'", 'must be "stock", "latency" or "reorder", not \'more\''),
        ("needs = []", 'must be "stock", "latency" or "reorder", not []'),
        ("include = [1]", "must be a string or an array of strings, not [1]"),
        ("cls = ''", "must be a string, not ''"),
        ("= 3", "is not valid TOML: "),
    ],
)
def test_wrong_table_is_named(tmp_path: Path, table: str, words: str) -> None:
    project(tmp_path, table)
    with pytest.raises(UsageError) as caught:
        load_defaults(tmp_path)
    assert words.format(file=tmp_path / "pyproject.toml") in str(caught.value)
    assert str(tmp_path / "pyproject.toml") in str(caught.value)


def test_unknown_key_without_relatives_lists_the_known(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="known keys: all, args, budget, calls"):
        load_defaults(project(tmp_path, "zzz = 1"))


def test_table_that_is_no_table_and_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool]\nchaossloth = 3\n")
    with pytest.raises(UsageError, match="must be a table"):
        load_defaults(tmp_path)
    (tmp_path / "pyproject.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="cannot be read"):
        load_defaults(tmp_path)


def test_command_line_beats_table() -> None:
    assert merge({"runs": 5, "seed": 1}, {"runs": 7, "target": "a.py"}) == {"runs": 7, "seed": 1, "target": "a.py"}


def test_subject_of_the_command_line_is_not_mixed_with_the_tables() -> None:
    table = {"target": "a.py", "cls": "A", "methods": ("m",), "args": ("(1,)",), "setup": "s:f", "runs": 5}
    assert merge(table, {}) == table
    assert merge(table, {"target": "b.py::scenario"}) == {"target": "b.py::scenario", "runs": 5}
    assert merge(table, {"cls": "B"}) == {"target": "a.py", "cls": "B", "runs": 5}
    assert merge(table, {"cls": "A"}) == table
    del table["target"]
    assert merge(table, {}) == {"runs": 5}


def test_calls_follow_what_was_listed() -> None:
    base = {"target": "a.py", "cls": "A"}
    assert validated(base).calls == 2
    assert validated({**base, "methods": ("a", "b", "c")}).calls == 3
    assert validated({**base, "methods": ("a",), "args": ("()", "()", "()", "()")}).calls == 4
    assert validated({**base, "methods": ("a",), "args": ("()",), "calls": 5}).calls == 5


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"cls": "A"}, "--cls needs a TARGET"),
        ({"args": ("()",)}, "--args needs a TARGET"),
        ({"target": "a.py", "methods": ("m",)}, "--method m needs the class it belongs to: add --cls NAME"),
        ({"target": "a.py::t", "cls": "A"}, "a.py::t already names what to run"),
        ({"target": "a.py::t", "args": ("()",)}, "a.py::t is called without arguments"),
        ({"target": "a.py", "cls": "A", "args": ("('u1')",)}, "is a str, not a tuple; write \"(('u1'),)\""),
        ({"target": "a.py", "cls": "A", "args": ("f(1)",)}, "--args 'f(1)' is not a Python literal"),
        ({"target": "a.py", "cls": "A", "args": ("((",)}, "--args '((' is not a Python literal"),
        ({"target": "a.py", "cls": "A", "methods": ("a", "b", "c"), "calls": 2}, "3 methods cannot share 2 calls"),
        ({"target": "a.py", "cls": "A", "args": ("()", "()"), "calls": 3}, "--args was given 2 times for 3 calls"),
    ],
)
def test_contradictions_are_one_sentence(values: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        validated(values)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_command_line_repeats_the_investigation() -> None:
    options = validated(
        {
            "target": "my dir/a.py",
            "cls": "A",
            "methods": ("m", "n"),
            "args": ("('u', 1)",),
            "budget_s": 2.5,
            "repair": False,
            "json_path": "-",
            "verbosity": 2,
            "apply": True,
        }
    )
    words = command_line(options, "2k:A3-Bx")
    assert shlex.split(shell_line(words)) == list(words)
    assert list(words) == [
        "chaossloth", "my dir/a.py", "--cls", "A", "--method", "m", "--method", "n",
        "--args", "('u', 1)", "--budget", "2.5", "--no-repair", "--replay", "2k:A3-Bx",
    ]  # fmt: skip
    assert command_line(Options()) == ("chaossloth",)
    assert command_line(Options(replay="t")) == ("chaossloth", "--replay", "t")
    assert command_line(Options(replay="t", repair=False), "t") == ("chaossloth", "--replay", "t")


@pytest.mark.parametrize(
    ("word", "quoted"),
    [
        ("('a', 'b')", """"('a', 'b')\""""),
        ("(70,)", "'(70,)'"),
        ("my dir/a.py", "'my dir/a.py'"),
        ("plain.py", "plain.py"),
        ("", "''"),
        ("it's $HOME", """'it'"'"'s $HOME'"""),
        ("'`x`'", """''"'"'`x`'"'"''"""),
        ("'!x'", """''"'"'!x'"'"''"""),
        ("(\"a\", 'b')", """'("a", '"'"'b'"'"')'"""),
        ("'a\\n'", """''"'"'a\\n'"'"''"""),
    ],
)
def test_shell_line_is_legible_and_read_back_as_the_same_words(word: str, quoted: str) -> None:
    assert shell_line(("chaossloth", word)) == f"chaossloth {quoted}"
    printed = subprocess.run(["sh", "-c", f"printf %s {quoted}"], capture_output=True, text=True, check=True)
    assert printed.stdout == word


def test_version_is_that_of_the_package() -> None:
    pyproject = Path(__file__).parents[2] / "pyproject.toml"
    assert tomllib.loads(pyproject.read_text())["project"]["version"] == VERSION
