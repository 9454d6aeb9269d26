"""Child processes under control: asyncio's own subprocess transports, with an end that the schedule delivers.

The end of a child is a descriptor that becomes ready (`pidfd_open`, Linux), else a thread that waits for it; asyncio's
own watchers belong to the policy and to its loops. A child runs in real time. Its pipes and its end are far descriptors
(`io`): they are noticed when the loop is idle, and together, once no child runs any more (`waiting`), so that the end
of two short children is one set of options and not a race of processes. Children that are left at the end of an
execution are killed and waited for.
"""

from __future__ import annotations

import os
import subprocess
import threading
from asyncio import unix_events
from contextlib import suppress
from typing import Any

from chaossloth.loop import real_io
from chaossloth.loop.io import IoLoop

__all__ = ["ProcessLoop"]

_RUNNING = (b"R", b"D")


class ProcessLoop(IoLoop):
    """Adds child processes."""

    _children: dict[int, Any] = {}

    async def _make_subprocess_transport(
        self,
        protocol: Any,
        args: Any,
        shell: bool,
        stdin: Any,
        stdout: Any,
        stderr: Any,
        bufsize: int,
        extra: Any = None,
        **kwargs: Any,
    ) -> Any:
        self.run.real_io.add("subprocesses")
        self._real = True
        waiter = self.create_future()
        transport = unix_events._UnixSubprocessTransport(  # type: ignore[attr-defined]
            self, protocol, args, shell, stdin, stdout, stderr, bufsize, waiter=waiter, extra=extra, **kwargs
        )
        self._watch_child(transport)
        try:
            await waiter
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException:
            transport.close()
            await transport._wait()
            raise
        return transport

    def _watch_child(self, transport: Any) -> None:
        pid = transport.get_pid()
        self._children = {**self._children, pid: transport}
        try:
            descriptor = os.pidfd_open(pid)
        except (AttributeError, OSError):  # no Linux, or an old one
            threading.Thread(target=self._wait_for_child, args=(pid, transport), daemon=True).start()
        else:
            self._pidfds.add(descriptor)
            self._add_reader(descriptor, self._child_ended, pid, descriptor, transport)

    def _child_ended(self, pid: int, descriptor: int, transport: Any) -> None:
        self._remove_reader(descriptor)
        self._pidfds.discard(descriptor)
        os.close(descriptor)
        self._tell_end(transport, _returncode(pid, transport))

    def _wait_for_child(self, pid: int, transport: Any) -> None:
        returncode = _returncode(pid, transport)
        self.call_soon_threadsafe(self._tell_end, transport, returncode)

    def _tell_end(self, transport: Any, returncode: int) -> None:
        self._children.pop(transport.get_pid(), None)
        transport._process_exited(returncode)

    @property
    def _pidfds(self) -> set[int]:
        made: set[int] = self.__dict__.setdefault("_pidfds_made", set())
        return made

    def _children_run(self) -> bool:
        """Whether a child, or a child of one, computes at this moment. False where the system does not say."""
        with real_io.pause():
            return any(_runs(pid) for pid in self._children)

    def _release(self) -> None:
        for transport in self._children.values():
            _end(transport)
        self._children = {}
        for descriptor in self.__dict__.pop("_pidfds_made", ()):
            os.close(descriptor)
        super()._release()


def _returncode(pid: int, transport: Any) -> int:
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:  # `Popen.poll` was faster
        known = transport._proc.returncode if transport._proc is not None else None
        return 255 if known is None else int(known)
    return os.waitstatus_to_exitcode(status)


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state = file.read().rpartition(b")")[2].split()[0]
        if state in _RUNNING:
            return True
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return any(_runs(int(child)) for child in file.read().split())
    except OSError:  # it has ended, or there is no such file on this system
        return False


def _end(transport: Any) -> None:
    """Kill a child that the execution has left behind, and close its pipes."""
    process: subprocess.Popen[bytes] | None = transport._proc
    if process is not None:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
    transport._closed = True
