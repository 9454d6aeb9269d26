"""Whether the other threads of the process have come to rest, so that what they hand in is complete.

A thread that works for the loop (`aiosqlite`, a pool's worker, the subject's own) ends its work at a moment that the
schedule does not choose. The loop therefore looks at its threads at each round boundary and goes on when none of them
*runs* any more: then what has been handed in depends on the program and not on the machine, and only its delivery is a
choice. Four states, by what the kernel says of the thread (Linux, `syscall`, `schedstat` and `stat` in
`/proc/self/task/<tid>`, see proc(5)):

  PARKED    in `futex` without a timeout: a lock, an empty queue. Only another thread can end that.
  SLEEPING  in `nanosleep`: it goes on by itself.
  BLOCKED   in another system call (a pipe, a socket, a wait with a timeout) and has used no processor time since the
            last look. CPython takes the interpreter lock with a timed futex, so the first look at one tells nothing.
  RUNNING   anything else.

Two looks that mislead. A thread that was woken, but whose processor has not taken note of it yet (TASK_WAKING: a
millisecond or more on a virtual machine), is shown in the system call that it is about to leave; `stat` shows it as
runnable. And of several threads, one that was seen at rest may have been woken since, by one that was seen after it:
they are at rest when a second look at all of them finds no processor time used since the first.

Where the kernel does not say (other systems), a thread is BLOCKED when its Python frame has not moved between looks.
While the watch on locks is installed, a wait without a limit is a timed one to the kernel (`subject.thread_locks`):
that it is PARKED is known from there.
Limits: a thread that is woken by another process, or by a timeout, hands in when it does; that is real time.
"""

from __future__ import annotations

import os
import platform
import sys
import threading
from collections.abc import Iterable
from enum import IntEnum
from typing import Any

from chaossloth.loop import real_io
from chaossloth.subject.primitives import watch

__all__ = ["Looks", "State", "alive", "follow_threads", "started"]

_FUTEX, _SLEEPS = {
    "x86_64": (202, frozenset({35, 230})),
    "aarch64": (98, frozenset({101, 115})),
}.get(platform.machine() if sys.platform == "linux" else "", (-1, frozenset()))
_READABLE = _FUTEX >= 0 and all(os.access(f"/proc/self/{name}", os.R_OK) for name in ("syscall", "schedstat", "stat"))
_STILL_LOOKS = 3  # of a frame that does not move, where the kernel does not say more

started: list[threading.Thread] = []
"""Threads that the present run has started; some of them may have ended."""


class State(IntEnum):
    """In the order of how much is to be waited for."""

    PARKED = 0
    BLOCKED = 1
    SLEEPING = 2
    RUNNING = 3


def follow_threads() -> None:
    """Note each thread that is started from now on, and tell the loop that runs in the starting thread.

    Once per process; later calls do nothing. A loop is told through its method `thread_started(thread)`, if it has one.
    """
    original = threading.Thread.start
    if getattr(original, "follows_threads", False):
        return

    def start(self: threading.Thread) -> None:
        original(self)
        started.append(self)
        loop: Any = _running_loop()
        if hasattr(loop, "thread_started"):
            loop.thread_started(self)

    start.follows_threads = True  # type: ignore[attr-defined]
    start.__doc__ = original.__doc__
    threading.Thread.start = start  # type: ignore[method-assign]


def _running_loop() -> Any:
    from asyncio import events

    return events._get_running_loop()


def alive() -> list[threading.Thread]:
    """Those of `started` that have not ended; the others are forgotten."""
    for thread in tuple(started):
        if not thread.is_alive():
            started.remove(thread)
    return list(started)


class _Watched:
    """One thread: its open files in /proc, and what the last look showed."""

    __slots__ = ("files", "last", "still", "used")

    def __init__(self, thread: threading.Thread) -> None:
        self.files = _open(thread.native_id) if _READABLE and thread.native_id is not None else ()
        self.last: Any = None
        self.used: Any = None  # processor time, in the kernel's words
        self.still = 0

    def close(self) -> None:
        for file in self.files:
            os.close(file)
        self.files = ()


def _open(native_id: int) -> tuple[int, ...]:
    with real_io.pause():
        opened: list[int] = []
        try:
            for name in ("syscall", "schedstat", "stat"):
                opened.append(os.open(f"/proc/self/task/{native_id}/{name}", os.O_RDONLY | os.O_CLOEXEC))
        except OSError:  # it has ended already
            for file in opened:
                os.close(file)
            return ()
        return tuple(opened)


class Looks:
    """Repeated looks at threads. `close` gives the files back. precise: the kernel says what a thread does."""

    precise = _READABLE

    def __init__(self) -> None:
        self._watched: dict[threading.Thread, _Watched] = {}  # not by identifier: those are used again

    def close(self) -> None:
        for watched in self._watched.values():
            watched.close()
        self._watched.clear()

    def busiest(self, threads: Iterable[threading.Thread]) -> State:
        """The state of the one that is farthest from rest; PARKED when there is none."""
        threads = tuple(threads)
        found = max(map(self.state, threads), default=State.PARKED)
        if found is not State.RUNNING and len(threads) > 1:
            before = self._used(threads)
            found = max(map(self.state, threads))
            if before != self._used(threads):
                return State.RUNNING
        return found

    def _used(self, threads: Iterable[threading.Thread]) -> list[Any]:
        return [watched.used for thread in threads if (watched := self._watched.get(thread)) is not None]

    def state(self, thread: threading.Thread) -> State:
        """What one thread does now; PARKED when it has ended."""
        if not thread.is_alive() or watch.threads.is_blocked(thread.ident):
            return State.PARKED
        watched = self._watched.get(thread)
        if watched is None:
            self._forget_ended()
            watched = self._watched[thread] = _Watched(thread)
        if watched.files:
            return _kernel_says(watched)
        return _frame_says(watched, thread.ident)

    def _forget_ended(self) -> None:
        for thread in [thread for thread in self._watched if not thread.is_alive()]:
            self._watched.pop(thread).close()


def _kernel_says(watched: _Watched) -> State:
    try:
        call = os.pread(watched.files[0], 200, 0).split()
        used = watched.used = os.pread(watched.files[1], 200, 0).split()[:1]
        asleep = len(call) >= 6 and _letter(os.pread(watched.files[2], 200, 0)) in b"SD"
    except OSError:  # ended in between
        return State.RUNNING
    if not asleep:
        watched.last = None
        return State.RUNNING
    number = int(call[0])
    if number == _FUTEX and int(call[4], 16) == 0:
        return State.PARKED
    if number in _SLEEPS:
        return State.SLEEPING
    last, watched.last = watched.last, (call, used)
    return State.BLOCKED if last == watched.last else State.RUNNING


def _letter(stat: bytes) -> bytes:
    """The state in a line of `stat`: it follows the name of the program, which is in parentheses and may hold any."""
    return stat[stat.rfind(b")") + 2 :][:1]


def _frame_says(watched: _Watched, identity: int | None) -> State:
    frame = sys._current_frames().get(identity or -1)
    now = None if frame is None else (id(frame), frame.f_lasti)
    if now != watched.last:
        watched.last, watched.still = now, 0
        return State.RUNNING
    watched.still += 1
    return State.BLOCKED if watched.still >= _STILL_LOOKS else State.RUNNING
