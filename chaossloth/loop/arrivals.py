"""What comes from outside of the loop, as pending completions of the schedule.

A descriptor that is ready, a callback that a thread hands in, a signal: each becomes an `Arrival` among the loop's free
completions, where the schedule delivers it now or later, like the end of a thread's body. It is named after who asked
for it (`identity.arrival`), so that its name does not depend on when it came. What one thread hands in stays in order
(`Lane`): only the first that was not delivered is on offer.

An arrival's creator is the step that asked for it, not the step (of another task, thread or process) that caused it:
that one is unknown. Happens-before therefore has fewer edges than the execution had; a race that is only ordered
through a socket is reported as a candidate, and refuted when its reversal is forced.
"""

from __future__ import annotations

import contextvars
from asyncio import events
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from chaossloth.loop.run import Handle, Proc, Run

if TYPE_CHECKING:
    from chaossloth.loop.scheduling import SchedulingLoop

__all__ = ["Arrival", "Lane", "Readiness", "Source"]


class Source:
    """Where arrivals come from: its name as a process of the run, which step asked for it, its place among all."""

    __slots__ = ("count", "creator", "rank", "proc")

    def __init__(self, proc: Proc, run: Run) -> None:
        self.proc = proc
        self.creator = run.index
        self.rank = len(run.procs)
        self.count = 0


class Arrival(Handle):
    """A completion that comes from outside."""

    __slots__ = ("lane", "rank")

    def __init__(
        self,
        loop: SchedulingLoop,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> None:
        super().__init__(loop, callback, args, context)
        self.cause = "external"
        self.lane: Lane | None = None
        self.rank = 0

    def come_from(self, source: Source) -> None:
        """Give it its name."""
        source.count += 1
        self.proc, self.creator = source.proc, source.creator
        self.owner, self.ordinal = source.proc.key, source.count
        self.rank = source.rank
        self.clock = (0, self.loop.run.now)

    def delivered(self) -> None:
        """It joins the ready queue: what stands behind it comes on offer."""
        if self.lane is not None:
            self.lane.leave(self)

    def cancel(self) -> None:
        if not hasattr(self, "proc"):  # it was not noticed yet
            self._cancelled = True
            return
        super().cancel()
        self.delivered()


class Lane:
    """Arrivals that keep their order."""

    __slots__ = ("source", "waiting")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.waiting: deque[Arrival] = deque()

    def join(self, arrival: Arrival) -> None:
        """Put it behind the others; it is on offer at once when there are none."""
        arrival.come_from(self.source)
        arrival.lane = self
        self.waiting.append(arrival)
        if len(self.waiting) == 1:
            arrival.loop._free.append(arrival)

    def leave(self, arrival: Arrival) -> None:
        """It is delivered or was cancelled."""
        arrival.lane = None
        if arrival not in self.waiting:
            return
        first = self.waiting[0] is arrival
        self.waiting.remove(arrival)
        if first and self.waiting:
            self.waiting[0].loop._free.append(self.waiting[0])


class Readiness(Arrival):
    """A descriptor is ready. Runs the callback that is registered for it, unless that is taken back before."""

    __slots__ = ("_registered", "fired")

    def __init__(self, loop: SchedulingLoop, registered: events.Handle) -> None:
        known: Any = registered  # for its private names
        self._registered = known
        super().__init__(loop, known._callback, known._args, known._context)
        self.fired = False
        self.callback = self._fire

    @property
    def _cancelled(self) -> bool:
        return bool(self._registered.cancelled())

    @_cancelled.setter
    def _cancelled(self, value: bool) -> None:
        if value:
            self._registered.cancel()

    @property
    def over(self) -> bool:
        """Delivered and run, or taken back: the descriptor may be noticed again."""
        return self.fired or bool(self._registered.cancelled())

    def _fire(self, *args: Any) -> None:
        self.fired = True
        self._registered._callback(*args)
