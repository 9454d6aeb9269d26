"""Notices what a controlled execution does outside the interpreter, through audit events (PEP 578).

Such things are not rolled back between executions and not ordered by the schedule, so that no search over a program
that does them is exhaustive. Nothing is prevented.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["audit", "pause", "seen", "start", "stop"]

_EVENTS = {
    "open": "files",
    "os.remove": "files",
    "os.rename": "files",
    "os.mkdir": "files",
    "sqlite3.connect": "sqlite3",
    "socket.connect": "sockets",
    "socket.bind": "sockets",
    "subprocess.Popen": "subprocesses",
    "os.posix_spawn": "subprocesses",
    "os.system": "subprocesses",
    "os.fork": "subprocesses",
}
_active = False
seen: set[str] = set()
_NOTHING: frozenset[str] = frozenset()


def start() -> None:
    """From here on events are the execution's."""
    global _active
    seen.clear()
    _active = True


def stop() -> frozenset[str]:
    """End of the execution; what was seen."""
    global _active
    _active = False
    return frozenset(seen) if seen else _NOTHING


@contextmanager
def pause() -> Iterator[None]:
    """What is done in the block is the tool's own."""
    global _active
    before, _active = _active, False
    try:
        yield
    finally:
        _active = before


def audit(event: str, arguments: tuple[Any, ...]) -> None:
    """The hook (`sys.addaudithook`): called for every event of the process, so it does next to nothing."""
    if _active and event in _EVENTS:
        path = arguments[0] if event == "open" else ""
        if not (isinstance(path, int) or str(path).endswith((".py", ".pyc", ".so"))):  # a descriptor; an import
            seen.add(_EVENTS[event])
