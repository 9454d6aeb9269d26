"""Notices what a controlled execution does outside the interpreter, through audit events (PEP 578).

Such things are not rolled back between executions and not ordered by the schedule, so that no search over a program
that does them is exhaustive. Nothing is prevented.
"""

from __future__ import annotations

from typing import Any

__all__ = ["audit", "seen", "start", "stop"]

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


def audit(event: str, arguments: tuple[Any, ...]) -> None:
    """The hook (`sys.addaudithook`): called for every event of the process, so it does next to nothing."""
    if _active and event in _EVENTS:
        importing = event == "open" and str(arguments[0]).endswith((".py", ".pyc", ".so"))
        if not importing:
            seen.add(_EVENTS[event])
