"""Real descriptors under control: asyncio's own transports over the controlled loop's queues.

Everything of `asyncio.SelectorEventLoop` that moves bytes is inherited (connections, servers, `sock_*`, pipes, TLS,
`sendfile`); what schedules is overridden by the classes before it in the method resolution order, and its constructor
is not called: selector and tables are made when they are first used, so that a program without I/O pays nothing. There
is no self-pipe; whoever waits for real looks again every millisecond or so.

Readiness is polled at round boundaries, as the stock loop does, and becomes an `Arrival`. What near descriptors
(`nearness`) show does not depend on the machine, so they are polled at every boundary; far ones, a child's pipes among
them, are noticed when the loop is idle only, see `waiting`.

Between executions everything is closed: a transport is marked as closed and its socket closed, without calling the
subject's protocol again, as when `asyncio.run` has ended. Sockets that the subject made itself are its own.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
import weakref
from asyncio import base_subprocess
from functools import cached_property
from typing import Any

from chaossloth.loop.arrivals import Readiness, Source
from chaossloth.loop.identity import arrival as arrival_identity
from chaossloth.loop.nearness import Nearness, Place
from chaossloth.loop.run import Run
from chaossloth.loop.scheduling import callback_name, is_internal
from chaossloth.loop.threads import ThreadingLoop

__all__ = ["IoLoop"]

_Stock: Any = asyncio.SelectorEventLoop
_BITS = (selectors.EVENT_READ, selectors.EVENT_WRITE)


class _Origin(Source):
    """A registration."""

    __slots__ = ("place",)
    place: Place


class IoLoop(ThreadingLoop, _Stock):  # type: ignore[misc]  # the stock class as Any: its private methods are overridden
    """Adds descriptors."""

    _debug = False
    slow_callback_duration = 0.1
    _internal_fds = 0
    _executor_shutdown_called = False
    _asyncgens_shutdown_called = False
    _current_handle = None

    def __del__(self) -> None:
        """Nothing: the base class warns about loops that were not closed; this one belongs to the tool."""

    # ------------------------------------------------------------------ made when needed

    @cached_property
    def _selector(self) -> selectors.BaseSelector:
        self._real = True
        return selectors.DefaultSelector()

    @cached_property
    def _transports(self) -> weakref.WeakValueDictionary[int, Any]:
        return weakref.WeakValueDictionary()

    @cached_property
    def _pipes(self) -> weakref.WeakSet[Any]:
        return weakref.WeakSet()

    @cached_property
    def _unix_server_sockets(self) -> dict[Any, Any]:
        return {}

    @cached_property
    def _origins(self) -> dict[tuple[int, int], _Origin]:
        return {}

    @cached_property
    def _noticed(self) -> dict[tuple[int, int], Readiness]:
        return {}

    @cached_property
    def _listening(self) -> weakref.WeakSet[socket.socket]:
        return weakref.WeakSet()

    @cached_property
    def _nearness(self) -> Nearness:
        return Nearness()

    def begin(self, run: Run) -> None:
        self.close_io()
        super().begin(run)

    # ------------------------------------------------------------------ registration

    def _add_reader(self, fd: Any, callback: Any, *args: Any) -> Any:
        handle = super()._add_reader(fd, callback, *args)
        self._registered(fd, selectors.EVENT_READ, "r", callback)
        return handle

    def _add_writer(self, fd: Any, callback: Any, *args: Any) -> Any:
        handle = super()._add_writer(fd, callback, *args)
        self._registered(fd, selectors.EVENT_WRITE, "w", callback)
        return handle

    def _remove_reader(self, fd: Any) -> Any:
        return "_selector" in self.__dict__ and super()._remove_reader(fd)

    def _remove_writer(self, fd: Any) -> Any:
        return "_selector" in self.__dict__ and super()._remove_writer(fd)

    def _registered(self, fd: Any, bit: int, kind: str, callback: Any) -> None:
        number = self._selector.get_key(fd).fd
        proc = self._outside_proc(kind, callback_name(callback))
        origin = self._origins[number, bit] = _Origin(proc, self.run)
        place = origin.place = self._nearness.place(number)
        self.run.real_io.add(place.kind)
        if isinstance(_protocol(callback), base_subprocess.WriteSubprocessPipeProto):  # the reading one is a subclass
            origin.place = Place("pipes", False)

    def _outside_proc(self, kind: str, name: str) -> Any:
        """A new source of arrivals of whoever runs now."""
        current = self.run.current
        assert current is not None
        made = self._sources_made
        count = made[current.key, kind] = made.get((current.key, kind), 0) + 1
        return self._proc(arrival_identity(current.key, kind, count), name, False)

    def _make_read_pipe_transport(self, *args: Any, **kwargs: Any) -> Any:
        transport = super()._make_read_pipe_transport(*args, **kwargs)
        self._pipes.add(transport)
        return transport

    def _make_write_pipe_transport(self, *args: Any, **kwargs: Any) -> Any:
        transport = super()._make_write_pipe_transport(*args, **kwargs)
        self._pipes.add(transport)
        return transport

    def _start_serving(self, protocol_factory: Any, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        self._listening.add(sock)
        super()._start_serving(protocol_factory, sock, *args, **kwargs)

    # ------------------------------------------------------------------ readiness

    def _poll(self, timeout: float, far: bool) -> None:
        """What is ready becomes pending completions, in the order of registration. far: far descriptors too."""
        found = []
        for key, mask in self._selector.select(timeout):
            for bit, registered in zip(_BITS, key.data, strict=True):
                if mask & bit and registered is not None and (far or self._is_near(key.fd, bit)):
                    place = (key.fd, bit)
                    before = self._noticed.get(place)
                    if (before is None or before.over) and not _is_answered(registered):
                        arrival = self._noticed[place] = Readiness(self, registered)
                        arrival.come_from(self._origins[place])
                        found.append(arrival)
        found.sort(key=lambda arrival: arrival.rank)
        self._free.extend(found)

    def _is_near(self, fd: int, bit: int) -> bool:
        origin = self._origins[fd, bit]
        if origin.place.near is None:
            origin.place = self._nearness.place(fd)
        return bool(origin.place.near)

    def _registered_kinds(self) -> tuple[bool, bool, bool]:
        """(there are far descriptors, near ones that carry data, near ones that only listen)."""
        far = data = listening = False
        selector = self.__dict__.get("_selector")
        for key in list(selector.get_map().values()) if selector is not None else ():
            for bit in _BITS:
                if key.events & bit:
                    near = self._is_near(key.fd, bit)
                    listens = self._origins[key.fd, bit].place.listening
                    far |= not near
                    data |= near and not listens
                    listening |= near and listens
        return far, data, listening

    # ------------------------------------------------------------------ the end of an execution

    def _release(self) -> None:
        """Give back whatever the execution has opened through this loop."""
        super()._release()
        made = self.__dict__
        for transport in list(made.get("_transports", {}).values()):
            transport._closing = True  # what still refers to it may close it: the descriptor's number is another's then
            transport._conn_lost += 1
            if transport._sock is not None:
                transport._sock.close()
        for transport in list(made.get("_pipes", ())):
            transport._closing = True
            if transport._pipe is not None:
                transport._pipe.close()
        for sock in list(made.get("_listening", ())):
            sock.close()
        selector = made.get("_selector")
        if selector is not None:
            selector.close()
        for name in _MADE:
            made.pop(name, None)


_MADE = tuple(name for name, value in vars(IoLoop).items() if isinstance(value, cached_property))


def _is_answered(registered: Any) -> bool:
    """Of `sock_*`: its future is done already, and the callback that takes the registration back is on its way."""
    args = registered._args
    future = args[0] if args and is_internal(registered._callback) else None
    return isinstance(future, asyncio.Future) and future.done()


def _protocol(callback: Any) -> Any:
    """Of the transport whose method is registered; None for anything else."""
    return getattr(getattr(callback, "__self__", None), "_protocol", None)
