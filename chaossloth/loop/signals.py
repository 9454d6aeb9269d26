"""Signals under control: the handler of `loop.add_signal_handler` is a pending completion once the signal has come.

The system's handler runs in the main thread between two bytecodes, so `os.kill(os.getpid(), ...)` in a step is noticed
in that step, and when it is handled is the schedule's choice. Signals of one number keep their order. A signal from
outside (a child, a timer of the system) comes in real time. What was installed before the execution is put back after.
"""

from __future__ import annotations

import asyncio
import signal
from asyncio import events
from collections.abc import Callable
from typing import Any

from chaossloth.loop.arrivals import Arrival, Lane, Source
from chaossloth.loop.processes import ProcessLoop

__all__ = ["SignalLoop"]


class _Registered:
    """A handler of the loop, and what the system had before."""

    __slots__ = ("before", "handle", "lane")

    def __init__(self, handle: events.Handle, lane: Lane, before: Any) -> None:
        self.handle = handle
        self.lane = lane
        self.before = before


class SignalLoop(ProcessLoop):
    """Adds signals."""

    _handled: dict[int, _Registered] = {}

    def add_signal_handler(  # type: ignore[override]  # generic over the callback's arguments
        self, sig: int, callback: Callable[..., Any], *args: Any
    ) -> None:
        """Raises as the stock loop does: ValueError for an invalid signal, RuntimeError where none can be set."""
        if asyncio.iscoroutine(callback) or asyncio.iscoroutinefunction(callback):
            raise TypeError("coroutines cannot be used with add_signal_handler()")
        self._check_signal(sig)
        if self._closed:
            raise RuntimeError("Event loop is closed")
        try:
            before = signal.signal(sig, self._signalled)
            signal.siginterrupt(sig, False)
        except ValueError as error:  # not the main thread
            raise RuntimeError(str(error)) from None
        except OSError as error:
            raise RuntimeError(f"sig {sig} cannot be caught") from error
        self.run.real_io.add("signals")
        self._real = True
        known = self._handled.get(sig)
        lane = Lane(Source(self._outside_proc("s", "signal"), self.run))
        handle = events.Handle(callback, args, self, None)
        self._handled = {**self._handled, sig: _Registered(handle, lane, known.before if known else before)}

    def _signalled(self, number: int, frame: Any) -> None:
        """The system's handler."""
        registered = self._handled.get(number)
        if registered is None:
            return
        handle: Any = registered.handle
        registered.lane.join(Arrival(self, handle._callback, handle._args, handle._context))

    def remove_signal_handler(self, sig: int) -> bool:
        """True when there was one; the system's default is put in its place."""
        self._check_signal(sig)
        registered = self._handled.pop(sig, None)
        if registered is None:
            return False
        signal.signal(sig, signal.default_int_handler if sig == signal.SIGINT else signal.SIG_DFL)
        self._put_back = {**self._put_back, sig: registered.before}
        return True

    _put_back: dict[int, Any] = {}

    def _alarm_s(self) -> float:
        """Seconds until a timer of the system sends a signal that is handled here; 0.0 when there is none."""
        return signal.getitimer(signal.ITIMER_REAL)[0] if signal.SIGALRM in self._handled else 0.0

    def _release(self) -> None:
        for number, before in {**self._put_back, **{n: each.before for n, each in self._handled.items()}}.items():
            signal.signal(number, before if before is not None else signal.SIG_DFL)
        self._handled, self._put_back = {}, {}
        super()._release()
