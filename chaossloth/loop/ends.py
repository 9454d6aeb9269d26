"""The end of an execution: what the main task left behind, and what becomes of it.

`asyncio.run` cancels the tasks that are left and waits for them. So does `ControlledLoop.drain`, in three parts, none
of which is judged as the run was (nothing there is a choice of the schedule):

    run on    what was left goes on for a while in stock order, recorded, so that an access that came too late is seen
              and can be reversed; capped by steps. A cap that was hit is said: the search is no longer complete
              (`Run.capped`).
    cancel    every task is cancelled, asynchronous generators are closed.
    close     a task that did not end is closed by force.

What of this is a failure? A background task that still runs when the scenario ends, and ends when it is cancelled, is
common and legitimate (a heartbeat, a server): it is reported, not failed. So is an asynchronous generator that was left
unfinished (`break` in an `async for`): its clean-up runs when it is collected, or here. A task that waits for ever
after it was cancelled, or a coroutine that refuses to be closed, hangs `asyncio.run` itself: that is a failure (leak).
`asyncio.run` cancels at once, so whether a task refuses is asked in an execution that does not run on.
A task that was collected while it was pending, and a coroutine that was never awaited, are judged by the executor.
"""

from __future__ import annotations

from asyncio import events
from dataclasses import dataclass, field
from typing import Any

from chaossloth.evidence import Frame
from chaossloth.loop.defaults import literal_defaults
from chaossloth.subject.channel import guard

__all__ = ["CLEAN_UP_STEPS", "RUN_ON_STEPS", "RUN_ON_WORDS", "Ends", "close"]

RUN_ON_STEPS = 64
CLEAN_UP_STEPS = 2_000
RUN_ON_WORDS = f"tasks left at the end followed for {RUN_ON_STEPS} steps"


@literal_defaults
@dataclass(slots=True)
class Ends:
    """Each entry has a place of the subject, None where it stands in no line of it.

    pending: tasks that were cancelled at the end: (name, where its function is defined).
    generators: asynchronous generators that were left unfinished: (function, where it is defined).
    stubborn's places are those of the lines at which they wait.
    stubborn: sentences about what refused to end.
    """

    pending: list[tuple[str, Frame | None]] = field(default_factory=list)
    generators: list[tuple[str, Frame | None]] = field(default_factory=list)
    stubborn: list[tuple[str, Frame | None]] = field(default_factory=list)


def close(coroutine: Any, loop: Any) -> BaseException | None:
    """Close a coroutine; what it raised where it refused (RuntimeError when it ignored GeneratorExit), else None.

    loop: is the running one meanwhile. Without any, a `while True` around `await sleep()` and `except BaseException`
    would never come to its next await. One that refused is kept: its deallocation would try the same once more.
    """
    events._set_running_loop(loop)
    guard.begin(what="closing a coroutine")
    try:
        coroutine.close()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the subject's; handed back to be reported
        _refused.append(coroutine)
        return error
    finally:
        guard.end()
        events._set_running_loop(None)
    return None


_refused: list[Any] = []
