"""Natural failure rates of the sandbox programs on a plain stock loop, without any part of ChaosSloth.

    python tests/sandbox/natural.py session_store 300

runs `scenario` 300 times, each on a fresh module and a fresh loop, and prints the rate. A deadlock is told from a long
wait by the selector: a loop that asks it to wait without a deadline has no ready handle and no timer, and these
programs do no I/O, so nothing can ever run again.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

SANDBOX = Path(__file__).resolve().parents[2] / "sandbox"


class Deadlock(Exception):
    """No ready handle, no timer: nothing can ever run again."""


class DeadlockSelector(selectors.DefaultSelector):
    """The default selector, except that it refuses to wait without a deadline."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
        if timeout is None:
            raise Deadlock
        return super().select(timeout)


def source(program: str) -> str:
    """The text of sandbox/<program>.py."""
    return (SANDBOX / f"{program}.py").read_text(encoding="utf-8")


def load(program: str, text: str | None = None) -> ModuleType:
    """A fresh module of sandbox/<program>.py, or of `text` in its place."""
    module = ModuleType(f"sandbox_{program}")
    module.__file__ = str(SANDBOX / f"{program}.py")
    exec(compile(source(program) if text is None else text, module.__file__, "exec"), module.__dict__)
    return module


def run_once(program: str, text: str | None = None) -> str | None:
    """One run of `scenario`: None when it passed, else the failure's kind (an exception's name, "Deadlock")."""
    module = load(program, text)
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(DeadlockSelector())) as runner:
        try:
            runner.run(module.scenario())
        except Exception as failure:
            return type(failure).__name__
    return None


def failures(program: str, runs: int, text: str | None = None) -> Counter[str]:
    """How often each kind of failure appeared in that many runs."""
    return Counter(kind for kind in (run_once(program, text) for _ in range(runs)) if kind is not None)


def main(program: str, runs: str = "300") -> None:
    seen = failures(program, int(runs))
    kinds = ", ".join(f"{kind} {count}" for kind, count in seen.items()) or "none"
    total = seen.total()
    print(f"{program}: {total} of {runs} runs fail ({100 * total / int(runs):.0f} %): {kinds}")


if __name__ == "__main__":
    main(*sys.argv[1:])
