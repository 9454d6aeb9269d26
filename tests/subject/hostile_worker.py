"""A worker for the tests of isolation: one handler for each way in which a subject can misbehave."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

from chaossloth.errors import ReplayDiverged, ToolError, UsageError
from chaossloth.subject import channel


def echo(value: Any = None) -> dict[str, Any]:
    return {"value": value, "stdin": sys.stdin.read(), "hashseed": os.environ.get("PYTHONHASHSEED")}


def count(n: int) -> dict[str, Any]:
    for i in range(n):
        channel.progress({"i": i})
    return {"n": n}


def spin() -> None:
    channel.guard.begin()
    while True:
        pass


def spin_in_import() -> None:
    channel.guard.begin(extra_s=0.5, what="the import")
    while True:
        pass


def spin_in_c() -> None:
    channel.guard.begin()
    # One call into C that keeps the interpreter lock for longer than any test waits.
    sum(iter(int, 1))


def hang_outside_a_step() -> None:
    threading.Event().wait()


def exit_process(code: int) -> None:
    print("going away", file=sys.stderr, flush=True)
    os._exit(code)


def system_exit() -> None:
    sys.exit(4)


def allocate() -> None:
    hoard = []
    while True:
        hoard.append(bytearray(1 << 20))


def print_much(megabytes: int) -> dict[str, Any]:
    line = b"x" * ((1 << 20) - 1) + b"\n"
    for _ in range(megabytes):
        os.write(1, line)
    sys.stdout.write("y" * (megabytes << 20) + "the end")
    sys.stdout.flush()
    print('{"id": 1, "ok": "forged"}')
    return {"printed": True}


def close_descriptors() -> dict[str, Any]:
    os.closerange(0, 4096)
    return {}


def take_over_descriptors(path: str) -> dict[str, Any]:
    os.closerange(0, 4096)
    for _ in range(300):
        os.open(path, os.O_RDWR)
    return {}


def segfault() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)
    threading.Event().wait()


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fork() -> dict[str, Any]:
    pid = os.fork()
    return {"forked": pid}


def fork_and_stay() -> dict[str, Any]:
    pid = os.fork()
    if pid == 0:
        signal.pause()
    return {"forked": pid}


def not_json() -> dict[str, Any]:
    return {"value": object()}


def fail(kind: str) -> None:
    class BrokenText(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    raise {
        "usage": UsageError("no class 'Walet'"),
        "tool": ToolError("broken"),
        "diverged": ReplayDiverged("step 3"),
        "value": ValueError("bad"),
        "broken": BrokenText(),
        "interrupt": KeyboardInterrupt(),
    }[kind]


if __name__ == "__main__":
    names = [name for name, thing in list(globals().items()) if callable(thing) and name.islower()]
    channel.serve({name: globals()[name] for name in names})
