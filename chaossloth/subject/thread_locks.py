"""Watch on the locks of threads: who holds them, and the wait on one that stops the whole event loop.

A coroutine that waits for a `threading.Lock`, in `queue.Queue.get()` or in `concurrent.futures.Future.result()` holds
the loop's thread while it waits. If what it waits for can only come from that thread, nothing runs ever again; if
nobody looked, only a time limit would end it, and that proves nothing.

All of these waits come down to one blocking `acquire` of the C type `_thread.lock` (or `RLock`), so that is the one
place to look at. The methods are exchanged in the type's own dictionary, as `loop.virtual` does with `datetime.now`:
a substitute class would break `isinstance(x, type(threading.Lock()))`, and instances carry no attributes. The wrapper
tries without blocking first; only an acquisition that would block is looked at. On the loop's thread:

    others   another thread lives that could release it: wait, and look again every few milliseconds.
    nobody   every other thread is idle, or blocked itself: the wait can never end. It is handed to `watch.on_block`,
             which raises. Which operation it is tells the stack: the outermost frame of the modules that wait.

In other threads a blocked acquisition is noted, so that the loop neither waits for such a thread nor counts on it.
Waits with a timeout end by themselves: under virtual time they last as long as asked, at no cost. Holders and the order
of locks are kept for locks that the subject's own lines take (through `with cond:` too), not for those of libraries.
Not seen: `queue.SimpleQueue` and anything else that blocks in C without a lock object (sockets, processes, files).
"""

from __future__ import annotations

import concurrent.futures._base
import concurrent.futures.thread
import ctypes
import functools
import gc
import queue
import sys
import threading
import time
from asyncio import events
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from chaossloth.errors import ToolError
from chaossloth.subject.holdings import KINDS

if TYPE_CHECKING:
    from chaossloth.subject.primitives import PrimitiveWatch

__all__ = ["ThreadLocks"]

Original = Callable[..., Any]

_LOOK_AGAIN_S = 0.005
_IDLE_LOOKS = 3  # a pool's worker that has just been handed something still looks idle
_NOT_ITS = ("chaossloth-watchdog", "chaossloth-executor-wait", "chaossloth-drain", "pydevd")
_OWN = __file__
_THREADING = threading.__file__
_WAITING = (_THREADING, queue.__file__, concurrent.futures._base.__file__)
_WORKER = concurrent.futures.thread._worker.__code__
_CLOCKS = ((threading, "_time"), (queue, "time"))  # bound at import: they would not see virtual time pass
_real_monotonic: Callable[[], float] = threading._time  # type: ignore[attr-defined]
_LOCK = type(threading.Lock())
_LOOP_BOUNDARY = events.Handle._run.__code__


class ThreadLocks:
    """The part of the watch that sees `threading`. loop_thread: whose blocking waits are judged."""

    def __init__(self, watch: PrimitiveWatch) -> None:
        self._watch = watch
        self._blocked: dict[int, Any] = {}  # thread identifier -> the lock for which it waits without a limit
        self._originals: list[tuple[type, str, Any]] = []
        self._clocks: list[tuple[Any, str, Any]] = []
        self.loop_thread = threading.get_ident()

    def install(self) -> None:
        for cls in KINDS:
            members = _members(cls)
            for name, wrap in (("acquire", _acquire), ("__enter__", _acquire), ("release", _release)):
                self._exchange(cls, members, name, wrap)
            self._exchange(cls, members, "__exit__", _exit)
            for name, wrap in (("_release_save", _release_save), ("_acquire_restore", _acquire_restore)):
                if name in members:  # RLock only: what a condition calls around its wait
                    self._exchange(cls, members, name, wrap)
            _modified(cls)
        for module, name in _CLOCKS:
            self._clocks.append((module, name, getattr(module, name)))
            setattr(module, name, self._monotonic)

    def _exchange(self, cls: type, members: dict[str, Any], name: str, wrap: Any) -> None:
        original = members[name]
        self._originals.append((cls, name, original))
        members[name] = functools.wraps(original)(wrap(self, original))

    def _monotonic(self) -> float:
        """Virtual in a run's steps; real in other threads, whose waits with a limit are real."""
        return time.monotonic() if threading.get_ident() == self.loop_thread else _real_monotonic()

    def uninstall(self) -> None:
        while self._originals:
            cls, name, original = self._originals.pop()
            _members(cls)[name] = original
            _modified(cls)
        while self._clocks:
            module, name, clock = self._clocks.pop()
            setattr(module, name, clock)
        self._blocked.clear()

    def start_run(self) -> None:
        self.loop_thread = threading.get_ident()

    def is_blocked(self, thread: int | None) -> bool:
        """Whether that thread waits, without a limit, for a lock that it has not been given."""
        lock = self._blocked.get(thread or -1)
        return lock is not None and (type(lock) is not _LOCK or lock.locked())

    # -- what the wrappers ask ----------------------------------------------------------------------------------------

    def contended(self, lock: Any, original: Original) -> bool:
        """The acquisition would block: True once it is made. Raises what `watch.on_block` raises."""
        if threading.get_ident() != self.loop_thread:
            return self._in_another_thread(lock, original)
        watch = self._watch
        found = self._operation(lock)
        if found is None or watch.on_block is None or events._get_running_loop() is None:
            return bool(original(lock))
        obj, operation = found
        wait = watch.begin_blocking(obj, operation)
        try:
            quiet = 0
            while True:
                could_act, idle_pools = self._others()
                quiet = 0 if could_act else quiet + 1
                given_up = quiet > (_IDLE_LOOKS if idle_pools else 0)
                # Also then once more: a thread may have released it and ended since the last time.
                if original(lock, False) if given_up else original(lock, True, _LOOK_AGAIN_S):
                    return True
                if given_up:
                    watch.on_block(wait)
        finally:
            watch.end(wait, ())

    def limited(self, lock: Any, original: Original, blocking: Any, timeout: Any) -> bool:
        """An acquisition with a timeout, or one that shall not block."""
        on_loop = threading.get_ident() == self.loop_thread and events._get_running_loop() is not None
        if not blocking or not on_loop or not timeout > 0 or self._watch.virtual_sleep is None:
            return bool(original(lock, blocking, timeout))
        if original(lock, False):
            return True
        if self._operation(lock) is None or self._others()[0]:
            return bool(original(lock, blocking, timeout))
        self._watch.virtual_sleep(timeout)
        return bool(original(lock, False))

    def acquired(self, lock: Any) -> None:
        """Keep the holder, where the subject's own line took the lock."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename == _THREADING:
            frame = frame.f_back
        if frame is not None and self._watch.classify(frame.f_code.co_filename) == "subject":
            self._watch.acquired_in_thread(lock, (frame.f_code, frame.f_lineno))

    def released(self, lock: Any) -> None:
        """Before the release takes effect: whoever waits for the lock may go on."""
        if self._blocked:
            for thread in [thread for thread, wanted in list(self._blocked.items()) if wanted is lock]:
                self._blocked.pop(thread, None)
        self._watch.released_in_thread(lock)

    # -- who else is there --------------------------------------------------------------------------------------------

    def _in_another_thread(self, lock: Any, original: Original) -> bool:
        thread = threading.get_ident()
        found = None if threading.current_thread().name in _NOT_ITS else self._operation(lock)
        if found is None:
            return bool(original(lock))
        wait = self._watch.begin_blocking(*found)
        try:
            while True:
                self._blocked[thread] = lock
                if original(lock, True, 0.05):
                    return True
        finally:
            self._blocked.pop(thread, None)
            self._watch.end(wait, ())

    def _others(self) -> tuple[bool, bool]:
        """(another thread could still act, there are idle workers of pools)."""
        pools = False
        frames = sys._current_frames()
        for thread in threading.enumerate():
            if thread.ident == self.loop_thread or thread.name in _NOT_ITS or thread.name.startswith("pydevd"):
                continue
            if thread is threading.main_thread() or thread.ident in self._blocked:
                continue
            frame = frames.get(thread.ident or -1)
            if frame is None or frame.f_code is not _WORKER:
                return True, pools
            pools = True
        return False, pools

    def _operation(self, lock: Any) -> tuple[Any, str] | None:
        """What blocks here, as (object, operation): `Queue.get`, `Future.result`, `Event.wait`, else the lock itself.

        None where it is nobody's business: on the loop's thread no line of the subject is above; in another one it is a
        library's own lock.
        """
        obj, operation = lock, f"{KINDS[type(lock)]}.acquire"
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename == _OWN:
            frame = frame.f_back
        while frame is not None and frame.f_code.co_filename in _WAITING and frame.f_code.co_qualname != "Thread.run":
            if frame.f_code.co_qualname != "Condition.__enter__":
                owner = frame.f_locals.get("self")
                obj = owner if type(owner).__weakrefoffset__ else lock
                module = str(frame.f_globals.get("__name__", "")).replace("._base", "")
                operation = f"{module}.{frame.f_code.co_qualname}"
            frame = frame.f_back
        while frame is not None and (code := frame.f_code) is not _LOOP_BOUNDARY:
            kind = self._watch.classify(code.co_filename)
            if kind == "subject":
                return obj, operation
            if kind == "loop":  # a wait of ours: a body of thread work that sleeps, the loop that looks at one
                return None
            frame = frame.f_back
        elsewhere = threading.get_ident() != self.loop_thread
        return (obj, operation) if elsewhere and not operation.endswith("Lock.acquire") else None


# -- the wrappers ------------------------------------------------------------------------------------------------------


def _acquire(threads: ThreadLocks, original: Original) -> Original:
    def acquire(self: Any, blocking: Any = True, timeout: Any = -1) -> bool:
        if blocking is True and timeout == -1:
            got = original(self, False) or threads.contended(self, original)
        else:
            got = threads.limited(self, original, blocking, timeout)
        if got:
            threads.acquired(self)
        return bool(got)

    return acquire


def _release(threads: ThreadLocks, original: Original) -> Original:
    def release(self: Any) -> None:
        threads.released(self)
        original(self)

    return release


def _exit(threads: ThreadLocks, original: Original) -> Original:
    def __exit__(self: Any, *exception: Any) -> Any:
        threads.released(self)
        return original(self, *exception)

    return __exit__


def _release_save(threads: ThreadLocks, original: Original) -> Original:
    def release_save(self: Any) -> Any:
        threads.released(self)
        return original(self)

    return release_save


def _acquire_restore(threads: ThreadLocks, original: Original) -> Original:
    def acquire_restore(self: Any, state: Any) -> None:
        original(self, state)
        threads.acquired(self)

    return acquire_restore


def _members(cls: type) -> dict[str, Any]:
    """The dictionary of a C type, which only the garbage collector hands out."""
    members = gc.get_referents(cls.__dict__)[0]
    if not isinstance(members, dict):
        raise ToolError(f"this interpreter hides the dictionary of {cls.__qualname__}: its waits cannot be watched")
    return members


def _modified(cls: type) -> None:
    """Drop the interpreter's cached lookups."""
    modified = ctypes.pythonapi.PyType_Modified
    modified.argtypes = [ctypes.py_object]
    modified.restype = None
    modified(cls)
