"""What one invocation asks for: `Options`, its defaults, and the `[tool.chaossloth]` table that changes the defaults.

Three sources, strongest first: command line, table of the nearest pyproject.toml, the defaults written here.
The hard part is which of the table's keys still apply when the command line names another subject. `target`, `cls`,
`method`, `args` and `setup` belong together: a command line that names a TARGET of its own with `::test`, or
another class, would otherwise inherit the method of a class it does not mean. `merge` drops them as one group.

`apply` and `replay` are refused in the table: a file of the project must not decide that sources are overwritten,
and a token belongs to one failure.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args

from chaossloth.errors import UsageError
from chaossloth.evidence import Label

__all__ = ["VERSION", "Options", "command_line", "find_pyproject", "load_defaults", "merge", "shell_line", "validated"]

VERSION = "0.1.0"

_LONGEST_S = 1e6
_SUBJECT = ("cls", "methods", "args", "setup")


@dataclass(frozen=True, slots=True)
class Options:
    """One invocation. Produced by `validated` or by the command line, read by the pipeline; never changed.

    target:       "path/to/file.py", "path/to/file.py::name", or None for the built-in demonstration.
    args:         Python literal tuples as text: none, one for all calls, or one for each call.
    budget_s:     wall-clock seconds for search and repair together.
    executions:   of each label's search at most this many; None: the pipeline's own limits. Repair has its own.
    json_path:    None, "-" for stdout, or a path.
    verbosity:    -1 (-q), 0, 1 (-v), 2 (-vv).
    needs:        how far the search may go: stock, then latency, then reorder.
    cancel:       sweep over cancellations once nothing fails without one.
    all_failures: the search goes on after the first failure (pyproject key and option: all).
    victims:      pattern (fnmatch) of the tasks to cancel; None: the calls under test, or the main task's own tasks.
    double_cancel: cancel a victim a second time while it cleans up after the first.
    step_limit_s: wall-clock seconds that one step (suspension to suspension) of the subject may take.
    command:      the command as typed, program name first.
    """

    target: str | None = None
    cls: str | None = None
    methods: tuple[str, ...] = ()
    calls: int = 2
    args: tuple[str, ...] = ()
    setup: str | None = None
    runs: int = 25
    budget_s: float = 20.0
    executions: int | None = None
    all_failures: bool = False
    seed: int = 0
    include: tuple[str, ...] = ()
    cancel: bool = False
    victims: str | None = None
    double_cancel: bool = False
    replay: str | None = None
    json_path: str | None = None
    apply: bool = False
    repair: bool = True
    verbosity: int = 0
    needs: Label = "reorder"
    memory_mb: int = 2048
    step_limit_s: float = 10.0
    command: tuple[str, ...] = ("chaossloth",)


@dataclass(frozen=True, slots=True)
class _Key:
    """One key of the table: the field it sets, what it must be (for the error message), and its check."""

    field: str
    expected: str
    convert: Callable[[Any], Any]  # raises ValueError when the value is not `expected`


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


def _texts(value: Any) -> tuple[str, ...]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list):
        raise ValueError
    return tuple(_text(item) for item in values)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _whole(low: int, high: int | None = None) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < low or (high is not None and value > high):
            raise ValueError
        return value

    return convert


def _seconds(value: Any) -> float:
    # `0 < value < inf` is also False for nan, which TOML can spell.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise ValueError
    return float(value)


def _label(value: Any) -> str:
    if value not in get_args(Label):
        raise ValueError
    return str(value)


_STRINGS = "a string or an array of strings"
_KEYS: dict[str, _Key] = {
    "target": _Key("target", "a string", _text),
    "cls": _Key("cls", "a string", _text),
    "method": _Key("methods", _STRINGS, _texts),
    "calls": _Key("calls", "a whole number from 1 to 26", _whole(1, 26)),
    "args": _Key("args", _STRINGS, _texts),
    "setup": _Key("setup", 'a string "module:function"', _text),
    "runs": _Key("runs", "a whole number, 0 or more", _whole(0)),
    "budget": _Key("budget_s", "a number of seconds above 0", _seconds),
    "all": _Key("all_failures", "true or false", _flag),
    "executions": _Key("executions", "a whole number, 1 or more", _whole(1)),
    "seed": _Key("seed", "a whole number, 0 or more", _whole(0)),
    "include": _Key("include", _STRINGS, _texts),
    "json": _Key("json_path", "a string", _text),
    "repair": _Key("repair", "true or false", _flag),
    "verbosity": _Key("verbosity", "a whole number from -1 to 2", _whole(-1, 2)),
    "needs": _Key("needs", '"stock", "latency" or "reorder"', _label),
    "cancel": _Key("cancel", "true or false", _flag),
    "victims": _Key("victims", 'a string, a pattern such as "request-*"', _text),
    "double-cancel": _Key("double_cancel", "true or false", _flag),
    "memory": _Key("memory_mb", "a whole number of megabytes, 64 or more", _whole(64)),
    "step-limit": _Key("step_limit_s", "a number of seconds above 0", _seconds),
}
_COMMAND_LINE_ONLY = {
    "apply": "it overwrites source files, so it is accepted on the command line only",
    "replay": "a token belongs to one failure, so it is accepted on the command line only",
    "no-repair": "write repair = false",
}


def find_pyproject(start_dir: Path) -> Path | None:
    """The nearest pyproject.toml at or above `start_dir`, None where there is none."""
    here = start_dir.resolve()
    for folder in (here, *here.parents):
        candidate = folder / "pyproject.toml"
        if candidate.is_file():
            return candidate
    return None


def load_defaults(start_dir: Path | str) -> dict[str, Any]:
    """`[tool.chaossloth]` of the nearest pyproject.toml as {name of an `Options` field: value}; {} without one.

    `target` and `json` are taken relative to the folder of that file.
    Raises UsageError for unreadable TOML, an unknown key (with close matches), or a value of the wrong type.
    """
    path = find_pyproject(Path(start_dir))
    if path is None:
        return {}
    table = _read_table(path)
    defaults: dict[str, Any] = {}
    for name, value in table.items():
        key = _known(name, path)
        defaults[key.field] = _converted(name, key, value, path)
    for name in ("target", "json_path"):
        if defaults.get(name, "-") != "-":
            defaults[name] = str(path.parent / defaults[name])
    return defaults


def _read_table(path: Path) -> Mapping[str, Any]:
    import tomllib

    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    tools = document.get("tool", {})
    table = tools.get("chaossloth", {}) if isinstance(tools, dict) else {}
    if not isinstance(table, dict):
        raise UsageError(f"tool.chaossloth in {path} must be a table, written [tool.chaossloth]")
    return table


def _known(name: str, path: Path) -> _Key:
    if name in _COMMAND_LINE_ONLY:
        raise UsageError(f"key {name!r} of [tool.chaossloth] in {path} is not accepted: {_COMMAND_LINE_ONLY[name]}")
    if name in _KEYS:
        return _KEYS[name]
    close = difflib.get_close_matches(name.replace("_", "-"), _KEYS, n=3)
    remedy = f"did you mean {' or '.join(map(repr, close))}?" if close else f"known keys: {', '.join(sorted(_KEYS))}"
    raise UsageError(f"unknown key {name!r} of [tool.chaossloth] in {path}; {remedy}")


def _converted(name: str, key: _Key, value: Any, path: Path) -> Any:
    try:
        return key.convert(value)
    except ValueError:
        raise UsageError(f"key {name!r} of [tool.chaossloth] in {path} must be {key.expected}, not {value!r}") from None


def merge(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The table's values with the command line's over them; both keyed by the fields of `Options`.

    A subject named on the command line is not mixed with the table's: `::name` or another class drops the table's
    class, methods, arguments and setup; so does having no target at all (the demonstration).
    """
    merged = {**defaults, **given}
    target = merged.get("target")
    own_test = "::" in (given.get("target") or "")
    own_class = given.get("cls") is not None and given["cls"] != defaults.get("cls")
    if target is None or own_test or own_class:
        for name in _SUBJECT:
            merged.pop(name, None)
            if name in given:
                merged[name] = given[name]
    return merged


def validated(values: Mapping[str, Any]) -> Options:
    """`Options` from merged values, with what can be checked before the subject is looked at.

    Raises UsageError for contradictions: a method without a class, a class beside `::name`, arguments that are no
    literal tuple, more methods or argument tuples than calls.
    """
    options = dict(values)
    explicit = len(options.get("methods", ())), len(options.get("args", ()))
    options.setdefault("calls", max(2, *explicit))
    result = Options(**options)
    for flag, seconds in (("--budget", result.budget_s), ("--step-limit", result.step_limit_s)):
        if not 0 < seconds < float("inf"):  # nan is neither
            raise UsageError(f"{flag} {seconds:g} must be a number of seconds above 0")
        if seconds > _LONGEST_S:
            raise UsageError(f"{flag} {seconds:g} is longer than {_LONGEST_S:g} s; pass a shorter time")
    _check_subject(result)
    if not result.cancel and (result.victims is not None or result.double_cancel):
        flag = "--double-cancel" if result.victims is None else f"--victims {result.victims}"
        raise UsageError(f"{flag} says how to cancel, and nothing is cancelled; add --cancel")
    for text in result.args:
        _check_tuple(text)
    if len(result.methods) > result.calls:
        raise UsageError(
            f"{len(result.methods)} methods cannot share {result.calls} calls; pass --calls {len(result.methods)}"
        )
    if len(result.args) not in (0, 1, result.calls):
        raise UsageError(
            f"--args was given {len(result.args)} times for {result.calls} calls; "
            f"give it once (the same for each call) or {result.calls} times"
        )
    return result


def _check_subject(options: Options) -> None:
    named = "::" in (options.target or "")
    if options.target is None and (options.cls or options.methods or options.args or options.setup):
        given = "--cls" if options.cls else "--method" if options.methods else "--args" if options.args else "--setup"
        raise UsageError(f"{given} needs a TARGET: chaossloth path/to/file.py {given} ...")
    if named and (options.cls or options.methods):
        raise UsageError(
            f"{options.target} already names what to run; use either ::name or --cls and --method, not both"
        )
    if options.methods and not options.cls:
        raise UsageError(f"--method {options.methods[0]} needs the class it belongs to: add --cls NAME")
    if options.args and named:
        raise UsageError(f"--args belongs to --cls and --method; {options.target} is called without arguments")


def _check_tuple(text: str) -> None:
    import ast

    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise UsageError(
            f"--args {text!r} is not a Python literal; write a tuple such as \"('u1', 2)\" or \"('u1',)\""
        ) from None
    if not isinstance(value, tuple):
        raise UsageError(f'--args {text!r} is a {type(value).__name__}, not a tuple; write "({text},)"')


def command_line(options: Options, replay: str | None = None) -> tuple[str, ...]:
    """The command that repeats this investigation: what differs from the defaults, output options left out.

    replay: token to add (default: the one in `options`).
    """
    parts = ["chaossloth"]
    if options.target is not None:
        parts.append(options.target)
    defaults = {f.name: f.default for f in fields(Options)}
    for flag, name in _FLAGS.items():
        value = getattr(options, name)
        if value == defaults[name]:
            continue
        if value is True:
            parts.append(flag)
            continue
        for item in value if isinstance(value, tuple) else (value,):
            parts += [flag, f"{item:g}" if isinstance(item, float) else str(item)]
    if not options.repair and options.replay is None:  # a replay repairs nothing anyhow
        parts.append("--no-repair")
    token = replay if replay is not None else options.replay
    if token is not None:
        parts += ["--replay", token]
    return tuple(parts)


_FLAGS = {
    "--cls": "cls",
    "--method": "methods",
    "--calls": "calls",
    "--args": "args",
    "--setup": "setup",
    "--runs": "runs",
    "--budget": "budget_s",
    "--executions": "executions",
    "--all": "all_failures",
    "--seed": "seed",
    "--include": "include",
    "--needs": "needs",
    "--cancel": "cancel",
    "--victims": "victims",
    "--double-cancel": "double_cancel",
    "--memory": "memory_mb",
    "--step-limit": "step_limit_s",
}


def shell_line(parts: tuple[str, ...]) -> str:
    """`parts` as one line that a POSIX shell reads back as the same words."""
    return " ".join(map(_quoted, parts))


def _quoted(word: str) -> str:
    """Double quotes where single ones would have to be left and taken up again, and nothing inside means anything.

    `!` is no matter of POSIX, but interactive shells expand it between double quotes.
    """
    if "'" in word and not any(char in word for char in '"$`\\!'):
        return f'"{word}"'
    return shlex.quote(word)
