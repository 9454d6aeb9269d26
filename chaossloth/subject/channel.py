"""The worker's side of the private channel to the command, and the watchdog over the subject's steps.

The hard part is that the process also runs code nobody trusts. Therefore:

* The channel is two pipes of its own, not inheritable, whose identity (device, inode) is checked before each write: a
  subject that closes every descriptor, or opens a file that lands on the same number, cannot be answered into.
* A forked copy of the worker loses the channel at once, so that only one process ever answers.
* A step that never ends is found by a thread that looks at the step's start time and can name the line
  (`sys._current_frames`). When the step also keeps the interpreter lock (a long C call), that thread starves; then
  the C thread of `faulthandler.dump_traceback_later`, re-armed by the watchdog, writes the stack and ends the process.
* `faulthandler` writes into the channel, not to stderr: what is not JSON there is the trace of a crash, and nothing
  that the subject prints can be taken for one.
* `RLIMIT_AS` makes endless allocation a `MemoryError`; a reserve is given back before that is reported.

Messages are JSON objects, one a line: request ``{"id", "op", "args"}``; answer ``{"id", "ok"}`` or ``{"id", "error"}``;
``{"id", "progress"}`` in between; ``{"fatal", ...}`` as the last words of the process.
Source: Python documentation of faulthandler, os.register_at_fork, resource.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from time import monotonic, sleep
from types import FrameType, TracebackType
from typing import Any, NoReturn, Protocol

from chaossloth.errors import ReplayDiverged, SubjectUnusable, ToolError, UsageError
from chaossloth.evidence import as_json

__all__ = [
    "BY_COUNT",
    "EXIT_CHANNEL_LOST",
    "EXIT_FATAL",
    "EXIT_FORKED",
    "FDS_VARIABLE",
    "Channel",
    "Counting",
    "StepGuard",
    "die_of_memory",
    "guard",
    "limit_resources",
    "open_channel",
    "progress",
    "serve",
]

FDS_VARIABLE = "CHAOSSLOTH_CHANNEL"
"""Environment variable "read fd,write fd,memory bytes,step limit in seconds"; removed as soon as it was read."""

EXIT_FATAL = 70
EXIT_FORKED = 75
EXIT_CHANNEL_LOST = 76

_POLL_S = 0.1
_C_CALL_GRACE_S = 2.0
_MAX_STACK = 60
_TOOL_DIRECTORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

Handler = Callable[..., Any]


BY_COUNT = -1.0


class Counting(Protocol):
    """count: steps begun."""

    count: int


class StepGuard:
    """Where the loops say that a step of the subject runs, and since when.

    Loops write `step_started = monotonic()` before a step and `None` after it (or call `begin` and `end`). A loop that
    counts its steps tells by `steps_of` who counts, and writes BY_COUNT: while that count stands still, one step runs.
    This spares it a look at the clock per step; the watchdog notices a step up to one poll later.
    limit_s:    longest step in seconds; None: no limit (a debugger).
    extra_s:    added to the limit of the present step (imports take longer than steps).
    is_subject: which file names belong to the subject; the first such frame names the line.
    """

    def __init__(self) -> None:
        self.step_started: float | None = None
        self.limit_s: float | None = 10.0
        self.extra_s = 0.0
        self.what = "a step"
        self.is_subject: Callable[[str], bool] | None = None
        self.thread = threading.main_thread().ident
        self.serving = False  # a request is being worked on
        self._counter: Counting | None = None
        self._looked: tuple[Counting | None, int] = (None, 0)
        self._standing_since = 0.0

    def steps_of(self, counter: Counting | None) -> None:
        """From now on `counter` counts the steps; None: no step runs any more."""
        self._counter = counter
        self.step_started = None

    def running_since(self) -> float | None:
        """Monotonic seconds since which the present step runs, as far as is known; None when none does."""
        started, counter = self.step_started, self._counter
        if started is not BY_COUNT or counter is None:
            return started if started is not BY_COUNT else None
        looked = (counter, counter.count)
        if self._looked[0] is not counter or self._looked[1] != looked[1]:
            self._looked, self._standing_since = looked, monotonic()
        return self._standing_since

    def begin(self, extra_s: float = 0.0, what: str = "a step") -> None:
        """A step starts in this thread."""
        self.extra_s = extra_s
        self.what = what
        self.step_started = monotonic()

    def end(self) -> None:
        """No step runs any more."""
        self.step_started = None
        self.extra_s = 0.0
        self.what = "a step"


guard = StepGuard()


class Channel:
    """The two pipe ends. `send` may be called from any thread; `receive` from the serving one."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        # High numbers survive a subject that closes 0..255, and leave the low ones as a plain script has them.
        self._read_fd = _move_high(read_fd)
        self._write_fd = _move_high(write_fd)
        self._identity = _identity(self._write_fd)
        self._pid = os.getpid()
        self._buffer = b""
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._forget_after_fork)

    @property
    def write_fd(self) -> int:
        return self._write_fd

    def _forget_after_fork(self) -> None:
        for fd in (self._read_fd, self._write_fd):
            with contextlib.suppress(OSError):  # already closed by the subject
                os.close(fd)
        self._lock = threading.Lock()

    def send(self, message: Mapping[str, Any]) -> None:
        """Write one message. Ends the process when the channel is gone or this is a forked copy.

        Raises TypeError or ValueError when the message is no JSON.
        """
        line = json.dumps(as_json(message), allow_nan=False).encode("ascii") + b"\n"
        self.send_bytes(line)

    def send_bytes(self, line: bytes) -> None:
        if os.getpid() != self._pid:
            os._exit(EXIT_FORKED)
        with self._lock:
            view = memoryview(line)
            try:
                if _identity(self._write_fd) != self._identity:
                    os._exit(EXIT_CHANNEL_LOST)
                while view:
                    view = view[os.write(self._write_fd, view) :]
            except OSError:
                os._exit(EXIT_CHANNEL_LOST)

    def receive(self) -> dict[str, Any] | None:
        """The next request; None when the command closed its end."""
        if os.getpid() != self._pid:
            os._exit(EXIT_FORKED)
        while b"\n" not in self._buffer:
            try:
                chunk = os.read(self._read_fd, 1 << 16)
            except OSError:
                os._exit(EXIT_CHANNEL_LOST)
            if not chunk:
                return None
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        message = json.loads(line)
        if not isinstance(message, dict):
            raise ToolError(f"a request that is no object: {line[:80]!r}")
        return message


_channel: Channel | None = None
_current_id: Any = None
_reserve: bytearray | None = None


def open_channel() -> Channel:
    """The channel whose descriptors the command passed in the environment; limits and watchdog are set up too.

    Raises ToolError when the process was not started by `isolate.Worker`.
    """
    global _channel, _reserve
    if _channel is not None:
        return _channel
    text = os.environ.pop(FDS_VARIABLE, None)
    if text is None:
        raise ToolError("the worker module is started by the chaossloth command, not by hand")
    read_fd, write_fd, memory, step_s = text.split(",")
    _channel = Channel(int(read_fd), int(write_fd))
    faulthandler.enable(file=_channel.write_fd, all_threads=True)
    limit_resources(int(memory))
    _reserve = bytearray(1 << 21)
    guard.limit_s = float(step_s) if float(step_s) > 0 else None
    guard.thread = threading.get_ident()
    threading.Thread(target=_watch, args=(_channel,), name="chaossloth-watchdog", daemon=True).start()
    return _channel


def limit_resources(memory_bytes: int) -> None:
    """Address space limit (0: none) and no core files. Lowers soft limits only to what the hard limits allow."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if memory_bytes > 0:
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        soft = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def progress(message: Mapping[str, Any]) -> None:
    """Tell the command how far the running operation is. Nothing happens when no channel is open (tests, notebooks)."""
    if _channel is not None:
        _channel.send({"id": _current_id, "progress": message})


def serve(handlers: Mapping[str, Handler]) -> None:
    """Answer requests until the command closes the channel. A handler gets the request's args as keywords."""
    global _current_id
    channel = open_channel()
    while (request := channel.receive()) is not None:
        _current_id = request.get("id")
        guard.serving = True
        _arm(channel)
        answer = _answer(handlers, request)
        guard.serving = False
        faulthandler.cancel_dump_traceback_later()
        try:
            channel.send(answer)
        except (TypeError, ValueError) as error:
            text = f"operation {request.get('op')!r} gave a value that is no JSON: {error}"
            channel.send({"id": _current_id, "error": _describe(ToolError(text))})


def _answer(handlers: Mapping[str, Handler], request: Mapping[str, Any]) -> dict[str, Any]:
    try:
        handler = handlers.get(str(request.get("op")))
        if handler is None:
            raise ToolError(f"the worker knows no operation {request.get('op')!r}")
        return {"id": request.get("id"), "ok": handler(**request.get("args", {}))}
    except MemoryError as error:
        die_of_memory(error)
    except BaseException as error:  # whatever the subject raises must become an answer
        return {"id": request.get("id"), "error": _describe(error)}
    finally:
        guard.end()


def die_of_memory(error: MemoryError) -> NoReturn:
    """End the process because the subject outgrew it. For loops that meet a MemoryError as the result of a task."""
    global _reserve
    _reserve = None
    where = _place(error.__traceback__)
    if _channel is not None:
        _channel.send({"fatal": "memory", **where})
    os._exit(EXIT_FATAL)


_KINDS: tuple[tuple[type[BaseException], str], ...] = (
    (UsageError, "usage"),
    (SubjectUnusable, "unusable"),
    (ReplayDiverged, "diverged"),
    (ToolError, "tool"),
    (SystemExit, "exit"),
)


def _describe(error: BaseException) -> dict[str, Any]:
    kind = next((name for cls, name in _KINDS if isinstance(error, cls)), "exception")
    text: dict[str, Any] = {"kind": kind, "type": type(error).__qualname__, "message": _safe_str(error)}
    text["traceback"] = "".join(traceback.format_exception(error))[-20_000:]
    text.update(_place(error.__traceback__))
    if isinstance(error, SubjectUnusable):
        text |= {"reason": error.reason, "stack": list(error.stack)}
    return text


def _safe_str(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as inner:  # a subject's own __str__ may be broken
        return f"<{type(error).__qualname__} whose text raises {type(inner).__qualname__}>"


def _is_subject(filename: str) -> bool:
    if guard.is_subject is not None:
        return guard.is_subject(filename)
    return not filename.startswith(_TOOL_DIRECTORY) and not filename.startswith("<")


def _place(trace: TracebackType | None) -> dict[str, Any]:
    """Innermost-first stack of an exception, and the innermost line that is the subject's. Reads no source file."""
    frames = [(f.f_code.co_filename, line or 0, f.f_code.co_qualname) for f, line in traceback.walk_tb(trace)]
    return _place_of(frames[::-1])


def _place_of(inner_first: list[tuple[str, int, str]]) -> dict[str, Any]:
    file, line, _ = next((f for f in inner_first if _is_subject(f[0])), (None, None, None))
    stack = [f"{name}:{number} {function}" for name, number, function in inner_first[:_MAX_STACK]]
    return {"file": file, "line": line, "stack": stack}


def _frames(frame: FrameType | None) -> list[tuple[str, int, str]]:
    found: list[tuple[str, int, str]] = []
    while frame is not None and len(found) < 500:
        found.append((frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_qualname))
        frame = frame.f_back
    return found


def _watch(channel: Channel) -> None:
    """Thread: end the process when one step takes longer than the limit, and say where it was."""
    command = os.getppid()
    while True:
        sleep(_POLL_S)
        if os.getppid() != command:
            os._exit(EXIT_CHANNEL_LOST)  # the command is gone: nobody will ever stop a subject that spins
        if not guard.serving:
            # Again and again: this thread may have armed it just after the serving thread cancelled it.
            faulthandler.cancel_dump_traceback_later()
            continue
        _arm(channel)
        started, limit = guard.running_since(), guard.limit_s
        if started is None or limit is None or monotonic() - started < limit + guard.extra_s:
            continue
        place = _place_of(_frames(sys._current_frames().get(guard.thread or 0)))
        if guard.running_since() == started:
            channel.send({"fatal": "step-never-ended", "limit_s": limit + guard.extra_s, "what": guard.what, **place})
            os._exit(EXIT_FATAL)


def _arm(channel: Channel) -> None:
    """Let the C thread end the process unless this is called again in time, which needs the interpreter lock.

    Not only while a step runs: a step may take the lock before the watchdog looks for the first time.
    """
    if guard.limit_s is not None:
        limit = guard.limit_s + guard.extra_s + _C_CALL_GRACE_S
        faulthandler.dump_traceback_later(limit, exit=True, file=channel.write_fd)


def _move_high(fd: int) -> int:
    import fcntl

    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 200)
    os.close(fd)
    return high


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return (status.st_dev, status.st_ino)
