"""State outside the program's objects: files, the environment, databases, variables of contexts.

A file is one location by its real path, and a directory's entries are another; both are written by whatever may
change them. What is reached by a descriptor number only is named as unobservable. All SQLite databases are one
location: which of them a connection has attached is not asked (it would mean to execute SQL).
"""

from __future__ import annotations

import builtins
import contextvars
import io
import os
import pathlib
import weakref
from collections.abc import Callable
from typing import Any

from chaossloth.subject.recorder import READ, UPDATE, WRITE, recorder

__all__ = ["contexts_shared", "is_file", "outside_function", "outside_method", "use_file"]

R = recorder
N = recorder.names
IDS = recorder.names.ids

Arguments = tuple[Any, ...]
contexts_shared: set[str] = set()  # modules that make contexts which several tasks may run in


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# -- paths


def _path_number(path: Any) -> int | None:
    """The identity of the file at `path`, an argument of a file operation; None where that names no file."""
    if isinstance(path, pathlib.PurePath):
        path = path.__fspath__()
    if type(path) is bytes:
        path = os.fsdecode(path)
    return N.number(("file", os.path.realpath(path))) if type(path) is str else None


def _access_path(path: Any, mode: int, s: int) -> None:
    number = _path_number(path)
    if number is None:
        R.not_seen("a file known by its descriptor only", s)
        return
    R.put((number, "#", mode, s))


def _change_entry(path: Any, s: int) -> None:
    """`path` may come into being or go: the directory's entries change."""
    _access_path(path, WRITE, s)
    if _path_number(path) is not None:
        parent = N.number(("file", os.path.dirname(os.path.realpath(os.fspath(path))) or os.sep))
        R.put((parent, "entries", WRITE, s))


def _list_entries(path: Any, s: int) -> None:
    number = _path_number("." if path is None else path)
    if number is None:
        R.not_seen("a file known by its descriptor only", s)
        return
    R.put((number, "entries", READ, s))


# -- file objects


def is_file(o: Any) -> bool:
    return isinstance(o, io.IOBase) and not isinstance(o, (io.StringIO, io.BytesIO))


_LOOKING = _words(
    "read readline readlines readinto readinto1 read1 readall peek tell seek seekable readable writable fileno isatty"
    " getvalue __iter__ __next__ __enter__ detach"
)


def use_file(o: Any, mode: int, s: int) -> None:
    """File object `o` is used: its position, and its file. What it buffers is written when it is closed."""
    R.put((IDS.get(id(o)) or N.seen(o), "#", UPDATE, s))
    name = getattr(o, "name", None)
    writable = _is_writable(o)
    if isinstance(name, int) and name in (0, 1, 2):
        return
    _access_path(name, mode if writable else READ, s)
    if writable and id(o) in IDS and IDS[id(o)] not in N.watched:
        N.watched.add(IDS[id(o)])
        _written_at_close(o, name, s)


def _is_writable(o: Any) -> bool:
    try:
        return bool(o.writable())
    except ValueError:  # closed
        return False


def _written_at_close(o: Any, name: Any, s: int) -> None:
    held = weakref.ref(o)

    def check() -> bool:
        there = held()
        if there is not None and not there.closed:
            return True
        _access_path(name, WRITE, s)
        return False

    R.at_each_step(check)


def _file_method(o: Any, name: str, s: int) -> None:
    use_file(o, READ if name in _LOOKING else WRITE, s)


_PATH_READS = _words(
    "read_text read_bytes exists is_file is_dir is_symlink is_mount is_fifo is_socket is_block_device is_char_device"
    " stat lstat owner group readlink samefile resolve"
)
_PATH_CHANGES = _words(
    "write_text write_bytes unlink rename replace touch mkdir rmdir symlink_to hardlink_to chmod lchmod copy move"
    " copy_into move_into"
)
_PATH_LISTS = _words("iterdir glob rglob walk")


def _path_method(o: Any, name: str, a: Arguments, kw: dict[str, Any], s: int) -> None:
    if name == "open":
        _open((o, *a), kw, s)
    elif name in _PATH_READS:
        _access_path(o, READ, s)
    elif name in _PATH_LISTS:
        _list_entries(o, s)
    elif name in _PATH_CHANGES:
        for path in (o, *(x for x in (*a, *kw.values()) if isinstance(x, (str, pathlib.PurePath)))):
            if path is o or not name.startswith("write_"):
                _change_entry(path, s)


# -- functions


def _open(a: Arguments, kw: dict[str, Any], s: int) -> None:
    path = a[0] if a else kw.get("file")
    mode = a[1] if len(a) > 1 else kw.get("mode", "r")
    if type(mode) is str and not set(mode) & set("wxa+"):
        _access_path(path, READ, s)
    else:
        _change_entry(path, s)


def _reading(a: Arguments, kw: dict[str, Any], s: int) -> None:
    for path in (*a, *kw.values()):
        if isinstance(path, (str, bytes, pathlib.PurePath, int)) and not isinstance(path, bool):
            _access_path(path, READ, s)


def _changing(a: Arguments, kw: dict[str, Any], s: int) -> None:
    for path in (*a, *kw.values()):
        if isinstance(path, (str, bytes, pathlib.PurePath)):
            _change_entry(path, s)


def _listing(a: Arguments, kw: dict[str, Any], s: int) -> None:
    _list_entries(a[0] if a else kw.get("path"), s)


def _searching(a: Arguments, kw: dict[str, Any], s: int) -> None:
    R.not_seen("a search through directories", s)


def _by_descriptor(a: Arguments, kw: dict[str, Any], s: int) -> None:
    R.not_seen("a file known by its descriptor only", s)


def _environment(a: Arguments, kw: dict[str, Any], s: int) -> None:
    R.put((IDS.get(id(os.environ)) or N.seen(os.environ), "#", READ, s))


def _change_environment(a: Arguments, kw: dict[str, Any], s: int) -> None:
    R.put((IDS.get(id(os.environ)) or N.seen(os.environ), "#", WRITE, s))


def _change_directory(a: Arguments, kw: dict[str, Any], s: int) -> None:
    R.not_seen("the working directory of the process", s)


Operation = Callable[[Arguments, dict[str, Any], int], None]


def _named(home: Any, names: str, operation: Operation) -> dict[Any, Operation]:
    return {getattr(home, name): operation for name in names.split() if hasattr(home, name)}


_OPERATIONS: dict[Any, Operation] = {
    builtins.open: _open,
    io.open_code: _reading,
    **_named(os, "stat lstat access readlink statvfs getxattr listxattr", _reading),
    **_named(os.path, "exists lexists isfile isdir islink ismount getsize getmtime getatime getctime", _reading),
    **_named(os.path, "samefile", _reading),
    **_named(
        os,
        "remove unlink rmdir mkdir makedirs removedirs rename renames replace link symlink truncate chmod chown utime"
        " mkfifo setxattr removexattr",
        _changing,
    ),
    **_named(os, "listdir scandir", _listing),
    **_named(os, "walk fwalk", _searching),
    **_named(
        os,
        "open read write pread pwrite readv writev preadv pwritev lseek ftruncate fdopen sendfile copy_file_range"
        " splice fsync fdatasync dup dup2 pipe",
        _by_descriptor,
    ),
    **_named(os, "getenv", _environment),
    **_named(os, "putenv unsetenv", _change_environment),
    **_named(os.path, "expandvars expanduser", _environment),
    **_named(os, "chdir fchdir", _change_directory),
}
_BY_NAME: dict[str, Operation] = {
    **dict.fromkeys(
        ("copy", "copy2", "copyfile", "copymode", "copystat", "copytree", "move", "rmtree", "make_archive"), _changing
    )
}


def outside_function(f: Any, a: Arguments, kw: dict[str, Any], s: int) -> bool:
    """Record a call of function `f` if it works on files or the environment; whether it does."""
    try:
        operation = _OPERATIONS.get(f)
    except TypeError:  # unhashable
        return False
    if operation is None:
        module = getattr(f, "__module__", None)
        if module == "shutil":
            operation = _BY_NAME.get(getattr(f, "__name__", ""))
        elif module == "glob":
            operation = _searching
    if operation is None:
        return False
    operation(a, kw, s)
    return True


def outside_method(o: Any, name: str, a: Arguments, kw: dict[str, Any], s: int) -> bool:
    """Record a call of method `name` of `o` if `o` stands for something outside; whether it does."""
    if is_file(o):
        _file_method(o, name, s)
    elif isinstance(o, pathlib.Path):
        _path_method(o, name, a, kw, s)
    elif isinstance(o, contextvars.ContextVar):
        _context_variable(o, name, s)
    elif type(o).__module__ == "sqlite3":
        R.put((N.module("sqlite3"), "databases", UPDATE, s))
        return False
    else:
        return False
    return True


# -- context variables


def _context_variable(o: Any, name: str, s: int) -> None:
    """Each task has its own values of context variables, unless tasks are started in one context."""
    if contexts_shared:
        R.put((IDS.get(id(o)) or N.seen(o), "#", READ if name == "get" else UPDATE, s))
        R.not_seen("variables of a context that several tasks may run in", s)
