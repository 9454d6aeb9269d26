"""When a run with real I/O waits in real time, and for how long.

Time is virtual and stays so: real time passes only where something real may still come, and never moves the virtual
clock. At each round boundary of such a run:

  busy   (a handle is ready) Threads that run are waited for until they rest (`quiescence`); near descriptors are
         polled. Far ones are not: when they become ready is a matter of the machine.
  idle   (nothing is ready or pending) Before virtual time goes on to the next timer, at `horizon` seconds, or a
         deadlock is told, the loop waits for real:
           - a child, a far descriptor, a thread that runs or sleeps, an alarm: `REAL_WAIT_S`, at most `horizon`: a
             timeout of 5 s on a child is 5 s. What then comes is collected until all is quiet, so that it is one set of
             options.
           - a thread that is blocked elsewhere (a pipe, a wait with a timeout): 1 s before a deadlock, 20 ms before a
             timer. One that waits for a lock brings nothing.
           - near connections: their data is there at once, and to be looked for at all only because the kernel may
             put it off on a loaded machine: 2 % of `horizon`, 1 to 20 ms; 0.1 s before a deadlock.
           - only listening sockets: 1 ms.

So `sleep(3600)` next to a server costs 20 ms, and a request whose answer is on its way is never overtaken by a timeout.
That holds for choices too (`delivery`): while a completion is pending, no timer is offered that is due later than the
longest stall (`Model.stall_s`); otherwise every search would "find" that a server may take longer than the client's
timeout. Timeouts of real I/O are explored below that bound only.

Limits. An execution in which nothing but a child or peer is left that needs more than `REAL_WAIT_S` for an answer is
given up, and says nothing; next to a timer, the timer then fires. Virtual time
does not move while a child runs, so a timer in parallel to it may come later, by the real clock, than it would. What a
far descriptor brings in several pieces (a child that prints, works, prints) depends on real time; the marks on the run
(`Run.real_io`) say so, and a replay that takes another path is refused.
"""

from __future__ import annotations

import math
import threading

from chaossloth.loop.arrivals import Arrival
from chaossloth.loop.bodies import REAL_WAIT_S
from chaossloth.loop.quiescence import State, alive, started
from chaossloth.loop.run import LoopStopped
from chaossloth.loop.signals import SignalLoop
from chaossloth.loop.virtual import real_monotonic, real_sleep
from chaossloth.subject.channel import guard

__all__ = ["WaitingLoop"]

_SLICE_S = 0.001
_REST_S = 0.25  # at a busy boundary; a thread that computes longer is not waited for again until it has rested
_LOOK_S = 0.0001
_QUIET_S = 0.002
_COLLECT_S = 0.25
_BLOCKED_DEADLOCK_S = 1.0
_BLOCKED_TIMER_S = 0.02
_NEAR_DEADLOCK_S = 0.1
_NEAR_SHARE, _NEAR_LEAST_S, _NEAR_MOST_S = 0.02, 0.001, 0.02


class WaitingLoop(SignalLoop):
    """Adds `_arrivals`, which the round boundary of a run with real I/O asks."""

    _restless = False

    def _arrivals(self) -> None:
        """What has come in becomes pending; an idle loop waits for what may still come. See the module docstring."""
        if started:
            self._rest()
        self._take_threadsafe()
        if "_selector" in self.__dict__:
            self._poll(0.0, far=False)
        if not self._has_work():
            self._idle()

    def _has_work(self) -> bool:
        return bool(self._ready) or any(not handle._cancelled for handle in self._free)

    # ------------------------------------------------------------------ busy

    def _rest(self) -> None:
        """Until no thread runs."""
        end = real_monotonic() + _REST_S
        while self._looks.busiest(alive()) is State.RUNNING:
            if self._restless or real_monotonic() > end:
                self._restless = True
                return
            real_sleep(_LOOK_S)
        self._restless = False

    # ------------------------------------------------------------------ idle

    def _idle(self) -> None:
        guard.step_started = None  # what waits here is not a step of the subject
        horizon = self._horizon()
        begun = real_monotonic()
        external = self._worth(horizon)[0]
        self._wait(0.0)
        while not self._has_work():
            external, limit = self._worth(horizon)
            left = limit - (real_monotonic() - begun)
            self._wait(min(max(left, 0.0), _SLICE_S))  # after the look: a thread at rest has handed in all it had
            if left <= 0:
                break
        if external and self._has_work():
            self._collect()

    def _horizon(self) -> float:
        """Virtual seconds until the next timer; infinity when there is none."""
        deadlines = [timer.deadline for timer in self._timers if not timer._cancelled]
        return max(0.0, min(deadlines) - self.run.now) if deadlines else math.inf

    def _worth(self, horizon: float) -> tuple[bool, float]:
        """(something outside of this program may still come, how many real seconds that is worth)."""
        far, data, listening = self._registered_kinds()
        threads = self._threads_state()
        alarm = self._alarm_s()
        if far or self._children or threads >= State.SLEEPING or alarm:
            return True, min(max(REAL_WAIT_S, alarm + _SLICE_S), horizon)
        deadlock = horizon == math.inf
        limit = 0.0
        if threads is State.BLOCKED:
            limit = _BLOCKED_DEADLOCK_S if deadlock else _BLOCKED_TIMER_S
        if data:
            near = min(max(horizon * _NEAR_SHARE, _NEAR_LEAST_S), _NEAR_MOST_S)
            limit = max(limit, _NEAR_DEADLOCK_S if deadlock else near)
        elif listening:
            limit = max(limit, _NEAR_LEAST_S)
        return False, limit

    def _threads_state(self) -> State:
        asleep = any(body.asleep for body in self._bodies)
        return max(State.SLEEPING if asleep else State.PARKED, self._looks.busiest(alive()))

    def _wait(self, seconds: float) -> None:
        """Take in what comes within so many real seconds, at most."""
        selector = self.__dict__.get("_selector")
        if selector is not None and selector.get_map():
            self._poll(seconds, far=True)
        elif seconds > 0:
            with self._condition:
                if not self._threadsafe:
                    self._condition.wait(seconds)
        self._take_threadsafe()

    def _collect(self) -> None:
        """Something came from outside: what belongs to it comes too, until all is quiet."""
        end = real_monotonic() + _COLLECT_S
        while real_monotonic() < end:
            before = len(self._free)
            real_sleep(_QUIET_S)
            running = self._children_run() or self._looks.busiest(alive()) is State.RUNNING
            self._wait(0.0)  # after the look: what has ended by then is noticed
            if not running and len(self._free) == before:
                break
        self._free.sort(key=lambda handle: handle.rank if isinstance(handle, Arrival) else 0)  # not as they came

    def _something_may_come(self) -> bool:
        """Nothing is left to run: whether something real has come after all. Else it is a deadlock.

        Raises LoopStopped("waited") when something outside is alive and silent: that says nothing about the program.
        """
        if self._older_threads():
            self._real = True
            self._arrivals()
        if self._has_work():
            return True
        if self._real and self._worth(math.inf)[0]:
            raise LoopStopped(
                "waited", f"what is outside (a child, a peer, a thread) did not answer in {REAL_WAIT_S:g} s"
            )
        return False

    @staticmethod
    def _older_threads() -> bool:
        """Follow the threads that were there before the execution too: they may know this loop."""
        known = (threading.main_thread(), threading.current_thread(), *started)
        older = [t for t in threading.enumerate() if t not in known and not t.name.startswith("chaossloth")]
        started.extend(older)
        return bool(older)

    def _release(self) -> None:
        self._restless = False
        super()._release()
