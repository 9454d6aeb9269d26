"""Whether what a descriptor waits for is done by this process, as far as the descriptors at hand tell.

*Near*: both ends of a connection, a listening socket, a pair, a pipe: nothing comes unless this program sends it, and
what was sent is there at once (the kernel hands loopback data over within the sender's system call). *Far*: the
network, another process on this machine, a child's end (a pidfd), a file or terminal. An internet connection is near
when the address of its peer is one of a socket that is known here; until then that is open.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from dataclasses import dataclass
from typing import Any

__all__ = ["Nearness", "Place"]

_LOOPBACK = ("127.", "::1", "::ffff:127.")


@dataclass(frozen=True, slots=True)
class Place:
    """kind: "sockets", "pipes" or "descriptors". near: None while it is open."""

    kind: str
    near: bool | None
    listening: bool = False


class Nearness:
    """Knows the local addresses of the sockets that it was asked about."""

    def __init__(self) -> None:
        self._addresses: set[Any] = set()

    def place(self, number: int) -> Place:
        """What the descriptor `number` is. Raises OSError when it is closed."""
        mode = os.fstat(number).st_mode
        if stat.S_ISFIFO(mode):
            return Place("pipes", True)
        if not stat.S_ISSOCK(mode):
            return Place("descriptors", False)
        sock = socket.socket(fileno=number)
        try:
            return self._socket(sock)
        finally:
            sock.detach()

    def _socket(self, sock: socket.socket) -> Place:
        self._addresses.add(_address(sock.getsockname()))
        if sock.type == socket.SOCK_STREAM and sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return Place("sockets", True, True)
        if sock.family == getattr(socket, "AF_UNIX", None):
            return Place("sockets", _made_here(sock))
        try:
            peer = sock.getpeername()
        except OSError:  # not connected yet, or a datagram socket that never is
            return Place("sockets", True if sock.type == socket.SOCK_DGRAM else None)
        if not str(peer[0]).startswith(_LOOPBACK):
            return Place("sockets", False)
        return Place("sockets", True if _address(peer) in self._addresses else None)


def _address(name: Any) -> Any:
    """Port of an internet address: the same for 0.0.0.0 and 127.0.0.1, which is what a server's own name may be."""
    return name[1] if isinstance(name, tuple) and len(name) > 1 else name


def _made_here(sock: socket.socket) -> bool:
    """Of a unix socket: this process made the other end. Where the system does not say: yes."""
    credentials = getattr(socket, "SO_PEERCRED", None)
    if credentials is None:
        return True
    pid = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, credentials, struct.calcsize("3i")))[0]
    return pid in (0, os.getpid())
