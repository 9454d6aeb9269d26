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
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from chaossloth.loop.run import Run

__all__ = ["collect_before", "collect_while", "collecting"]


@contextmanager
def collecting() -> Iterator[None]:
    """Around executions in which `collect_before` or `collect_while` is called; the collector stays as it is."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def collect_before(run: Run) -> None:
    """The next step comes: collect, if the run is still judged."""
    if run.judging:
        collect_while(run.main)


def collect_while(main: weakref.ref[Any] | None) -> None:
    """Collect unless the main task has ended: with its frame go references that it did hold as long as it ran.

    main: of its task.
    """
    task = main() if main is not None else None
    if task is not None and not task.done():
        gc.collect()
