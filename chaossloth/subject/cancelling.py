"""What a cancellation touches, recorded before it happens.

`task.cancel()` reaches through what the task waits for: another task, the children of a `gather`, a plain future.
Each task on that way has a location "cancel", which every step of that task accesses too (`explore.happens_before`):
whether a task is cancelled before or after its step is an order that counts. A cancelled wait (`asyncio.wait`,
`shield`) competes with the callbacks that would end it: those write to the task's "waiter" location (`loop.joins`),
and so does this.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

__all__ = ["note_cancel"]


class _Recorder(Protocol):
    def add_sync(self, obj: Any, key: Any, mode: str) -> None: ...
    def add_waiter(self, task: Any) -> None: ...


def note_cancel(recorder: _Recorder, future: Any) -> None:
    """`future.cancel()` is about to be called."""
    pending, seen = [future], set()
    while pending:
        each = pending.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        if each.done():  # too late; it would not have been before the step that ended it
            recorder.add_sync(each, "cancel" if isinstance(each, asyncio.Task) else "done", "read")
        elif isinstance(each, asyncio.Task):
            recorder.add_sync(each, "cancel", "write")
            recorder.add_waiter(each)
            pending.append(getattr(each, "_fut_waiter", None))
        elif not (children := getattr(each, "_children", ())):
            recorder.add_sync(each, "done", "write")
        else:
            pending.extend(children)
