"""The choice points: which completions are delivered at a round boundary, and, in `reorder`, which handle runs next.

Causal time. A step's clock is when it would run if nothing ever waited for the loop: the latest of its creator's and
its task's previous step's, plus the duration of the timer where it is one. It depends on what caused what, not on the
order of execution, so that equivalent interleavings agree on it. A schedule is legal when every step runs at most
`stall_s` (plus the time for which steps themselves held the loop) after its clock:

    a timer is enabled when no pending step or timer has a clock more than that before its own.

(There are times T with clock <= T <= clock + stall_s that rise along the execution if and only if no step runs after
one whose clock is later by more than stall_s.) Work in threads lasts as long as it sleeps; what comes from outside has
the latest causal time of any step before it was noticed, since its cause is not known. So a completion that is there
holds back the timers that are due later than that, and no timeout overtakes an answer. Two timers are never exchanged
where the first was created earlier in every schedule and lasts no longer than the second.

What clocks show to the subject is the latest causal time of any step so far.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from chaossloth.loop.arrivals import Arrival
from chaossloth.loop.run import CANCELLED, Boundary, Handle, LoopStopped, PlannedTimer
from chaossloth.loop.waiting import WaitingLoop

__all__ = ["DeliveringLoop"]

_ROUNDING_S = 1e-9


def _planned(timers: Iterable[Handle]) -> tuple[PlannedTimer, ...]:
    return tuple(PlannedTimer(timer.creator, timer.lasts) for timer in timers)


class DeliveringLoop(WaitingLoop):
    """Adds the schedule's choices."""

    def _deliver(self) -> None:
        """The round boundary: which completions join the ready queue now is the schedule's choice."""
        run = self.run
        ready = self._ready
        group: list[tuple[str, int]] = []
        busy, count, delivered = bool(ready), run.count, list[Handle]()
        while True:
            self._forget_cancelled()
            if not self._timers and not self._free:
                break
            if not run.judging:
                first = self._timers[0] if self._timers else None
                if ready and (first is None or first.deadline > run.now):
                    break
                self._arrive(self._free[0] if self._free else first, group)  # type: ignore[arg-type]
                continue
            options = self._at_boundary(group)
            choice = options[run.decide(options) if len(options) > 1 else 0]
            if choice is None:
                break
            self._arrive(choice, group)
            if choice.cause == "timer":
                delivered.append(choice)
        if group:
            run.groups.append(group)
        if run.detail and run.judging:
            run.boundaries.append(Boundary(count, busy, _planned(delivered), _planned(self._timers)))
        if not ready:
            self._nothing_ready()

    def _at_boundary(self, group: list[tuple[str, int]]) -> list[Handle | None]:
        """What can be delivered now, stock order's choice first; None: nothing (more)."""
        timers = self._enabled_timers()
        options: list[Handle | None] = []
        if self._ready or group:
            options.append(None)
        if timers and timers[0].deadline <= self.run.now:
            return [timers[0], *options, *timers[1:], *self._free]
        if options:
            return [*options, *timers, *self._free]
        return [*self._free, *timers]

    def _enabled_timers(self) -> list[Handle]:
        """Timers that may fire now, by deadline; see the module docstring."""
        timers = self._timers
        if not timers or (len(timers) == 1 and not self._ready and not self._free):
            return list(timers)
        floor: dict[int, float] = {}
        for waiting in (self._ready, self._free, timers):
            for handle in waiting:
                anchor, seconds = handle.clock
                if not handle._cancelled and seconds < floor.get(anchor, seconds + 1.0):
                    floor[anchor] = seconds
        late = self.run.model.stall_s + self.run.blocked + _ROUNDING_S
        enabled = [
            handle
            for handle in timers
            if handle.clock[1] <= floor[handle.clock[0]] + late
            and all(other.arrived or other._cancelled for other in handle.before)
        ]
        enabled.sort(key=lambda handle: (handle.deadline, handle.seq))
        return enabled

    def _forget_cancelled(self) -> None:
        timers = self._timers
        while timers and timers[0]._cancelled:
            heapq.heappop(timers)
        if any(handle._cancelled for handle in timers):
            timers[:] = [handle for handle in timers if not handle._cancelled]
            heapq.heapify(timers)
        if self._free and any(handle._cancelled for handle in self._free):
            self._free = [handle for handle in self._free if not handle._cancelled]

    def _arrive(self, handle: Handle, group: list[tuple[str, int]]) -> None:
        """Deliver one completion. Where that happens while the loop is busy, the step before it took that long."""
        run = self.run
        handle.arrived = True
        wait = 0.0
        stalls = bool(self._ready) and not group
        if handle.cause == "timer":
            if handle is self._timers[0]:
                heapq.heappop(self._timers)
            else:
                self._timers.remove(handle)
                heapq.heapify(self._timers)
            group.append((handle.owner, handle.ordinal))
            wait = max(0.0, handle.deadline - run.now)
            if handle.clock[1] > run.now:
                run.now = handle.clock[1]
            run.lateness += wait if self._ready else 0.0
        else:
            self._free.remove(handle)
            if isinstance(handle, Arrival):
                handle.delivered()
            if handle.cause == "yield":
                handle.cause = "late yield"
                group.append((handle.proc.key, -handle.proc.yields))
            else:
                group.append((handle.owner, handle.ordinal))
        if stalls and run.current is not None:
            run.stalls.append((run.current.key, run.current.steps, wait))
        self._ready.append(handle)

    def _nothing_ready(self) -> None:
        """No handle, no timer: something real may still come; else this is a deadlock."""
        if self._something_may_come():
            return
        raise LoopStopped("deadlock", "nothing can ever run again: no ready handle, no timer")

    def _pick(self) -> Handle:
        """`reorder`: any ready handle, or a completion that arrives now. Option 0 has waited longest."""
        run = self.run
        ready = self._ready
        options: list[Handle | None] = [
            h for h in ready if not h._cancelled and (h.after is None or h.after.ran >= 0 or h.after._cancelled)
        ]
        if run.judging and (self._timers or self._free):
            self._forget_cancelled()
            timers = self._enabled_timers()
            options += [*timers, *self._free] if options else [*self._free, *timers]
        if not options:
            ready.clear()  # cancelled ones
            return CANCELLED
        taken = run.decide(options) if len(options) > 1 and run.judging else 0
        chosen = options[taken]
        assert chosen is not None
        if chosen.cause == "timer" or (self._free and chosen in self._free):
            group: list[tuple[str, int]] = []
            self._arrive(chosen, group)
            run.groups.append(group)
            ready.pop()
            for handle in ready:
                handle.passed += 1
        else:
            for handle in ready:
                if handle is chosen:
                    break
                handle.passed += 1
            ready.remove(chosen)
        if ready:
            run.bypass = max(run.bypass, ready[0].passed)  # the oldest was passed over most
        if self._on_futures and chosen.args and self._on_futures.get(id(chosen.args[0])) is chosen:
            del self._on_futures[id(chosen.args[0])]
        return chosen
