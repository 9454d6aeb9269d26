"""The choice points: which completions are delivered at a round boundary, and, in `reorder`, which handle runs next."""

from __future__ import annotations

import asyncio
import heapq

from chaossloth.loop.arrivals import Arrival
from chaossloth.loop.run import CANCELLED, Handle, LoopStopped
from chaossloth.loop.scheduling import OfTransport
from chaossloth.loop.waiting import WaitingLoop

__all__ = ["DeliveringLoop"]


class DeliveringLoop(WaitingLoop):
    """Adds the schedule's choices."""

    def _deliver(self) -> None:
        """The round boundary: due completions join the ready queue; which others do is the schedule's choice."""
        run = self.run
        ready = self._ready
        group: list[tuple[str, int]] = []
        while True:
            timers = self._timers
            while timers and timers[0]._cancelled:
                heapq.heappop(timers)
            self._free = [h for h in self._free if not h._cancelled] if self._free else self._free
            free = self._free
            if not timers and not free:
                break
            first = timers[0] if timers else None
            if first is not None and first.deadline < run.now:
                self._arrive(first, group)
                continue
            idle = not ready
            due = first is not None and first.deadline <= run.now
            if not run.judging:
                if idle or due:
                    self._arrive(free[0] if free else first, group)  # type: ignore[arg-type]
                    continue
                break
            if self._reorder and not idle and not due:
                break  # `_pick` offers early completions before every step
            patient = idle and not (self._real and free)
            near = first is not None and (patient or first.deadline - run.now <= run.model.stall_s)
            options: list[Handle | None] = []
            if due:
                options = [first, None, *free] if not idle else [first, *free]
            elif idle:
                options = [*free, first] if near else list(free)
            else:
                options = [None, first, *free] if near else [None, *free]
            taken = run.decide(options) if len(options) > 1 else 0
            choice = options[taken]
            if choice is None:
                break
            self._arrive(choice, group)
        if group:
            run.groups.append(group)
        if not ready:
            self._nothing_ready()

    def _arrive(self, handle: Handle, group: list[tuple[str, int]]) -> None:
        """Deliver one completion. Where that happens while the loop is busy, the step before it took that long."""
        run = self.run
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
            run.now += wait
            run.lateness += wait if self._ready else 0.0
        else:
            self._free.remove(handle)
            if isinstance(handle, Arrival):
                handle.delivered()
            if handle.cause == "yield":
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
        """`reorder`: any ready handle, or a completion that arrives now."""
        run = self.run
        ready = self._ready
        while ready and ready[0]._cancelled:
            ready.popleft()
        if not ready:
            return CANCELLED
        bound = run.model.bypass_bound
        options: list[Handle | None] = []
        waiting: set[object] = set()
        for handle in ready:
            if handle._cancelled:
                continue
            if handle.passed >= bound:
                options = [handle]
                break
            behind = False
            args = handle.args
            if args and isinstance(args[0], asyncio.Future):
                behind = id(args[0]) in waiting
                waiting.add(id(args[0]))
            if type(handle) is OfTransport:
                behind |= OfTransport in waiting
                waiting.add(OfTransport)
            if behind:
                continue
            options.append(handle)
        if run.judging and not (len(options) == 1 and options[0] is not None and options[0].passed >= bound):
            first = self._timers[0] if self._timers else None
            if first is not None and not first._cancelled and first.deadline - run.now <= run.model.stall_s:
                options.append(first)
            options.extend(h for h in self._free if not h._cancelled)
        taken = run.decide(options) if len(options) > 1 and run.judging else 0
        chosen = options[taken]
        assert chosen is not None
        if chosen.cause == "timer" and chosen in self._timers or chosen in self._free:
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
            run.bypass = max(run.bypass, max(handle.passed for handle in ready))
        return chosen
