"""When the garbage collector comes by: never, or before every step.

asyncio holds its tasks by weak reference. A pending task is kept by what will wake it: a timer, the owner of the future
it awaits, a queue it waits at. One that only its own cycle holds (`create_task(worker())` whose awaited future nobody
else has) can be collected at any moment: its coroutine is closed where it stands, what it was to do never happens, and
the interpreter says "Task was destroyed but it is pending!" (the documentation of `asyncio.create_task` asks to keep a
reference).

Nothing that is reachable can wake such a task, so once it is collectable it stays so and is still pending when the main
task ends. Therefore only executions that leave a task pending have a second outcome, and of all moments of collection
the earliest covers the rest: whatever is collectable in an order is collected before the next step. What is cut by it
is the moment at which the closing of the coroutine (its `finally` blocks) takes effect; that is said in
`docs/semantics.md`.

`gc.freeze` puts what existed before the execution out of the collector's sight, so that a collection costs what the
execution itself made, not what the process holds.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from chaossloth.loop.run import Run

__all__ = ["collect_before_step", "collecting", "was_destroyed"]


@contextmanager
def collecting() -> Iterator[None]:
    """Around executions that collect; the collector itself stays as it is."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def collect_before_step(run: Run) -> None:
    """Collect unless the main task has ended: with its frame go references that it did hold as long as it ran."""
    main = next((proc for proc in run.procs if proc.outermost), None)
    task = main.ref() if main is not None and main.ref is not None else None
    if run.judging and task is not None and not task.done():
        gc.collect()


def was_destroyed(context: Mapping[str, Any]) -> bool:
    """Whether what an exception handler was told is that the collector took a pending task."""
    return "destroyed but it is pending" in str(context.get("message"))
