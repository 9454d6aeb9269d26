"""The command's side: one worker process that runs the subject, and what its end means.

The subject may print, fork, hang, crash, or close what it can reach, so the command trusts only three things: the
private pipes (see `channel`), the exit status, and its own clock. The worker leads a session of its own: Ctrl-C in
the terminal reaches the command alone, and one signal to the process group ends the worker with everything it
forked. Its stdout and stderr are pipes that a thread drains, so that a subject which prints without end neither
blocks nor fills memory: the last 64 kB and a byte count are kept.
Before a worker that overran its time is killed it gets SIGABRT: faulthandler then writes the stack into the channel.
Source: Python documentation of subprocess (start_new_session, pass_fds) and faulthandler; prior art: Chromium's and
pytest-xdist's supervised workers.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, NoReturn, Self

from chaossloth.errors import ReplayDiverged, SubjectUnusable, ToolError, UsageError
from chaossloth.subject.channel import EXIT_CHANNEL_LOST, FDS_VARIABLE

__all__ = ["Limits", "Output", "Worker"]

Progress = Callable[[dict[str, Any]], None]

_TAIL_BYTES = 1 << 16
_EXIT_GRACE_S = 2.0
_LAST_WORDS_S = 0.7
_MAX_MESSAGE = 1 << 28


@dataclass(frozen=True, slots=True)
class Limits:
    """step_s: longest single step; memory_bytes: address space (0: none); wall_s: longest single call."""

    step_s: float = 10.0
    memory_bytes: int = 2 << 30
    wall_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Output:
    """What the subject printed: byte counts, and the last 64 kB of each stream as text."""

    stdout_bytes: int
    stderr_bytes: int
    stdout_tail: str
    stderr_tail: str


class _Drain:
    """Reads the subject's stdout and stderr in a thread until both end or `stop` is called."""

    def __init__(self, fds: tuple[int, int]) -> None:
        self._fds = fds
        self._tails = {fd: bytearray() for fd in fds}
        self._counts = dict.fromkeys(fds, 0)
        self._wake_read, self._wake_write = os.pipe()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="chaossloth-drain", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for fd in (*self._fds, self._wake_read):
                selector.register(fd, selectors.EVENT_READ)
            open_fds = set(self._fds)
            while open_fds:
                for key, _ in selector.select():
                    if key.fd == self._wake_read:
                        return
                    chunk = os.read(key.fd, 1 << 16)
                    if not chunk:
                        selector.unregister(key.fd)
                        open_fds.discard(key.fd)
                    with self._lock:
                        self._counts[key.fd] += len(chunk)
                        tail = self._tails[key.fd]
                        tail += chunk
                        del tail[:-_TAIL_BYTES]

    def output(self) -> Output:
        with self._lock:
            out, err = self._fds
            texts = [bytes(self._tails[fd]).decode("utf-8", "replace") for fd in (out, err)]
            return Output(self._counts[out], self._counts[err], *texts)

    def finish(self, wait_s: float) -> None:
        """After the worker's end: read what is left, but wait for no escaped grandchild that holds the pipes open."""
        self._thread.join(wait_s)
        os.write(self._wake_write, b"x")
        self._thread.join()
        for fd in (*self._fds, self._wake_read, self._wake_write):
            os.close(fd)


class Worker:
    """One worker process: `start`, then `call` operations, then `close`. Also a context manager.

    Calls come from one thread. After `SubjectUnusable` the process is gone; `restart` makes a new one.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        python: str = sys.executable,
        module: str = "chaossloth.worker",
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self._python, self._module, self._cwd = python, module, cwd
        self._env = dict(os.environ if env is None else env)
        self._process: subprocess.Popen[bytes] | None = None
        self._drain: _Drain | None = None
        self._output = Output(0, 0, "", "")
        self._next_id = 0
        self._buffer = bytearray()
        self._fault = ""
        self._last_word: dict[str, Any] | None = None

    @property
    def alive(self) -> bool:
        """True while the process exists and was not closed."""
        return self._process is not None and self._process.poll() is None

    @property
    def output(self) -> Output:
        """What the subject printed so far (kept after the worker's end)."""
        return self._drain.output() if self._drain is not None else self._output

    def start(self) -> Self:
        """Start the process. Raises UsageError when the interpreter cannot be run."""
        self.close()
        _open_standard_descriptors()
        request_read, request_write = os.pipe()
        answer_read, answer_write = os.pipe()
        limits = f"{request_read},{answer_write},{self.limits.memory_bytes},{self.limits.step_s}"
        env = self._env | {FDS_VARIABLE: limits, "PYTHONHASHSEED": "0"}
        try:
            self._process = self._popen(env, (request_read, answer_write))
        except OSError as error:
            for fd in (request_read, request_write, answer_read, answer_write):
                os.close(fd)
            raise UsageError(f"cannot run the interpreter {self._python!r}: {error.strerror or error}") from None
        os.close(request_read)
        os.close(answer_write)
        self._request_fd, self._answer_fd = request_write, answer_read
        for fd in (request_write, answer_read):
            os.set_blocking(fd, False)
        self._buffer.clear()
        self._fault, self._last_word = "", None
        return self

    def _popen(self, env: dict[str, str], fds: tuple[int, int]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            # -P: no file beside the subject may stand in for a module of the library or of the tool.
            [self._python, "-P", "-c", _bootstrap(), self._module],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=fds,
            start_new_session=True,
            cwd=self._cwd,
            env=env,
        )
        assert process.stdout is not None and process.stderr is not None
        pipes = (os.dup(process.stdout.fileno()), os.dup(process.stderr.fileno()))
        process.stdout.close()
        process.stderr.close()
        self._drain = _Drain(pipes)
        return process

    def restart(self) -> Self:
        """Kill the process, if there is one, and start anew with the same settings."""
        return self.start()

    def close(self) -> None:
        """Kill the worker with all it forked, and free every descriptor. Does nothing the second time."""
        process = self._process
        if process is None:
            return
        self._kill_group()
        process.wait()
        for fd in (self._request_fd, self._answer_fd):
            os.close(fd)
        if self._drain is not None:
            self._drain.finish(wait_s=0.5)
            self._output = self._drain.output()
        self._process = self._drain = None

    def __enter__(self) -> Self:
        return self.start() if self._process is None else self

    def __exit__(self, cls: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def call(
        self,
        op: str,
        args: Mapping[str, Any] | None = None,
        on_progress: Progress | None = None,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        """Run one operation in the worker and return its answer.

        Raises what the handler raised where it is one of ours (UsageError, ReplayDiverged, SubjectUnusable), ToolError
        for anything else (with the worker's traceback as a note), SubjectUnusable when the process is gone or ran
        longer than `timeout_s` (default: limits.wall_s). KeyboardInterrupt passes through; an answer that arrives
        later is then dropped.
        """
        if self._process is None:
            raise ToolError("the worker was not started")
        self._next_id += 1
        limit_s = self.limits.wall_s if timeout_s is None else timeout_s
        deadline = monotonic() + limit_s
        request = {"id": self._next_id, "op": op, "args": dict(args or {})}
        try:
            self._send(json.dumps(request).encode("ascii") + b"\n", deadline)
            while True:
                message = self._receive(deadline)
                if message is None:
                    self._raise_for_end()
                if message.get("id") != self._next_id:
                    continue  # belongs to a call that was interrupted
                if "progress" in message:
                    if on_progress is not None:
                        on_progress(message["progress"])
                elif "error" in message:
                    _raise_error(message["error"])
                else:
                    answer = message["ok"]
                    return answer if isinstance(answer, dict) else {"value": answer}
        except _OutOfTime:
            self._raise_for_timeout(limit_s)

    def _send(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        with selectors.DefaultSelector() as selector:
            selector.register(self._request_fd, selectors.EVENT_WRITE)
            while view:
                if not selector.select(max(0.0, deadline - monotonic())) and monotonic() >= deadline:
                    raise _OutOfTime
                try:
                    view = view[os.write(self._request_fd, view) :]
                except BlockingIOError:
                    continue
                except BrokenPipeError:
                    return  # the reason is in the answer pipe or in the exit status

    def _receive(self, deadline: float) -> dict[str, Any] | None:
        """The next message; None when the worker closed the channel (by ending, usually)."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._answer_fd, selectors.EVENT_READ)
            while True:
                while (end := self._buffer.find(b"\n")) >= 0:
                    line = bytes(self._buffer[:end])
                    del self._buffer[: end + 1]
                    if (message := self._parse(line)) is not None:
                        return message
                if len(self._buffer) > _MAX_MESSAGE:
                    self._buffer.clear()
                    raise ToolError("the worker sent a message of more than 256 MB")
                if not selector.select(max(0.0, deadline - monotonic())) and monotonic() >= deadline:
                    raise _OutOfTime
                try:
                    chunk = os.read(self._answer_fd, 1 << 16)
                except BlockingIOError:
                    continue
                if not chunk:
                    return None
                self._buffer += chunk

    def _parse(self, line: bytes) -> dict[str, Any] | None:
        """A message, or None for text of faulthandler and for last words, both kept."""
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            self._fault = (self._fault + line.decode("utf-8", "replace") + "\n")[-_TAIL_BYTES:]
            return None
        if "fatal" in message:
            self._last_word = message
            return None
        return message

    def _raise_for_end(self) -> NoReturn:
        """The channel ended: find out why, clean up, say it."""
        process = self._process
        assert process is not None
        try:
            status: int | None = process.wait(_EXIT_GRACE_S)
        except subprocess.TimeoutExpired:
            status = None
        self.close()
        raise _explain_end(status, self._last_word, self._fault, self.output, self.limits)

    def _raise_for_timeout(self, limit_s: float) -> NoReturn:
        process = self._process
        assert process is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGABRT)
        until = monotonic() + _LAST_WORDS_S
        with contextlib.suppress(_OutOfTime):
            while self._receive(until) is not None:
                continue
        self.close()
        stack = _fault_stack(self._fault)
        place = f"; it was at {stack[0]}" if stack else ""
        raise SubjectUnusable("wall-time", f"the subject was stopped after {limit_s:g} s{place}", stack)

    def _kill_group(self) -> None:
        process = self._process
        assert process is not None
        # Until it is waited for, the leader's id is taken even if it is a zombie: no other group can have this number.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def _open_standard_descriptors() -> None:
    """A command started with stdin, stdout or stderr closed must not have its pipes land on these numbers."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one


class _OutOfTime(Exception):
    """The deadline of a call has passed."""


def _bootstrap() -> str:
    """Program text that runs the worker module; the package's own parent comes last on the path, and only if needed."""
    root = str(Path(__file__).resolve().parents[2])
    return (
        "import importlib.util as u, runpy, sys\n"
        f"u.find_spec('chaossloth') or sys.path.append({root!r})\n"
        "name = sys.argv.pop(1)\n"
        "runpy.run_module(name, run_name='__main__', alter_sys=True)\n"
    )


def _raise_error(error: Mapping[str, Any]) -> NoReturn:
    kind, message = error.get("kind"), str(error.get("message", ""))
    if kind == "usage":
        raise UsageError(message)
    if kind == "diverged":
        raise ReplayDiverged(message)
    if kind == "unusable":
        raise SubjectUnusable(str(error.get("reason")), message, tuple(error.get("stack", ())))
    place = f" at {error['file']}:{error['line']}" if error.get("file") else ""
    if kind == "exit":
        text = f"the subject ended itself with SystemExit({message}){place}; remove the call of sys.exit or exit()"
        raise SubjectUnusable("exited", text, tuple(error.get("stack", ())))
    fault = ToolError(message if kind == "tool" else f"{error.get('type')}: {message}{place}")
    fault.add_note("in the worker:\n" + str(error.get("traceback", "")))
    raise fault


def _explain_end(
    status: int | None, last_word: Mapping[str, Any] | None, fault: str, output: Output, limits: Limits
) -> SubjectUnusable:
    if last_word is not None:
        return _explain_last_word(last_word, limits)
    stack = _fault_stack(fault)
    place = f" at {stack[0]}" if stack else ""
    if "Timeout (" in fault:
        text = (
            f"a step of the subject did not end within {limits.step_s:g} s{place} (a call that cannot be interrupted)"
        )
        return SubjectUnusable("step-never-ended", text, stack)
    tail = _last_line(output.stderr_tail)
    said = f"; last line on stderr: {tail}" if tail else ""
    if status is None or status == EXIT_CHANNEL_LOST:
        text = f"the subject closed the descriptors of its worker process (os.closerange or os.close){said}"
        return SubjectUnusable("closed-channel", text, stack)
    if status < 0:
        name = _signal_name(-status)
        hint = ", probably by the system because memory ran out" if -status == signal.SIGKILL else ""
        return SubjectUnusable("crashed", f"the subject's process was ended by signal {name}{hint}{place}{said}", stack)
    text = f"the subject ended its own process with exit code {status} (os._exit){said}"
    return SubjectUnusable("exited", text, stack)


def _explain_last_word(word: Mapping[str, Any], limits: Limits) -> SubjectUnusable:
    stack = tuple(str(entry) for entry in word.get("stack", ()))
    place = f" at {word['file']}:{word['line']}" if word.get("file") else ""
    if word["fatal"] == "memory":
        megabytes = limits.memory_bytes / (1 << 20)
        return SubjectUnusable("memory", f"the subject needed more than {megabytes:.0f} MB of memory{place}", stack)
    what, limit = word.get("what", "a step"), word.get("limit_s", limits.step_s)
    text = f"{what} of the subject did not end within {limit:g} s{place}"
    return SubjectUnusable("step-never-ended", text, stack)


_FAULT_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$')


def _fault_stack(fault: str) -> tuple[str, ...]:
    """Frames that faulthandler wrote of the thread that counts, innermost first, without the tool's own."""
    threads: list[list[str]] = [[]]
    for text in fault.splitlines():
        if text.startswith(("Thread ", "Current thread ")):
            threads.append([])
        elif match := _FAULT_FRAME.match(text):
            threads[-1].append(f"{match['file']}:{match['line']} {match['function']}")
    own = str(Path(__file__).parent)
    # The watchdog's thread holds tool frames only; the main thread is the one that also has others.
    for frames in threads:
        if any("in <module>" in f or f.endswith(" <module>") for f in frames):
            return tuple(f for f in frames if not f.startswith(own))
    return tuple(f for f in max(threads, key=len) if not f.startswith(own))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:200] if lines else ""
