"""Ends connections that only hold a place. The HTTP server has deadlines for what it reads, and none for writes.

A client that asks and never reads the answer would hold one of the server's connections for as long as it likes. The
kernel knows how many bytes of answers wait for a client, and how many it has taken.
"""

import fcntl
import os
import socket
import struct
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

WRITE_SECONDS: Final = 30.0
"""How long a client may take for what waits for it, or for the next `PROGRESS_BYTES` of it."""
PROGRESS_BYTES: Final = 65_536
CROWDED_SECONDS: Final = 2.0
"""The same while most of the places are taken. So long may a new connection stay silent, too."""
REQUEST_BYTES_MIN: Final = 32
"""No request is shorter."""
CROWDED_SHARE: Final = 0.75
LOOK_SECONDS: Final = 0.5
LOOK_AT_ALL_SECONDS: Final = 5.0
"""Between two looks while there are places enough."""

_DESCRIPTORS: Final = Path("/proc/self/fd")
# From linux/tcp.h: the state; how many bytes were acknowledged, and how many received.
_TCP_INFO: Final = struct.Struct("=B119xQQ")
_INT: Final = struct.Struct("=i")
_RESET: Final = struct.pack("=ii", 1, 0)
_OPEN_STATES: Final = {1, 8}
"""TCP_ESTABLISHED and TCP_CLOSE_WAIT."""


@dataclass(slots=True)
class _Connection:
    inode: int
    """It tells a socket from the next one under the same descriptor."""
    is_clients: bool
    seen_at: float
    since: float
    """When its client last took what was waiting for it."""
    taken: int = 0
    """How many bytes it had taken then, of all that it was sent."""
    waiting: int = 0
    """How many were waiting then."""


class Connections:
    """Watches the connections of this process to one port, in a thread, until it is closed. It needs Linux, and does
    nothing elsewhere."""

    def __init__(self, port: int, connections_max: int, failed: Callable[[str, BaseException], None]) -> None:
        self._port = port
        self._crowded_at = int(connections_max * CROWDED_SHARE)
        self._failed = failed
        self._known: dict[int, _Connection] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="connections", daemon=True)
        if _DESCRIPTORS.is_dir() and hasattr(socket, "TCP_INFO"):
            self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(LOOK_SECONDS * 2)

    def _watch(self) -> None:
        looked_at = 0.0
        while not self._closing.wait(LOOK_SECONDS):
            try:
                descriptors = [int(each.name) for each in _DESCRIPTORS.iterdir()]
                is_crowded = len(descriptors) > self._crowded_at
                now = time.monotonic()
                if is_crowded or now - looked_at >= LOOK_AT_ALL_SECONDS:
                    looked_at = now
                    self._look(descriptors, now, is_crowded)
            except OSError:
                # No file can be opened, not even to look at those that are.
                continue
            except Exception as error:
                self._failed("connections", error)
                self._closing.wait(LOOK_AT_ALL_SECONDS)

    def _look(self, descriptors: list[int], now: float, is_crowded: bool) -> None:
        for closed in self._known.keys() - set(descriptors):
            del self._known[closed]
        for descriptor in descriptors:
            # The server may close it at any moment, and open another under its number.
            with suppress(OSError):
                known = self._known_as(descriptor, now)
                if known.is_clients and _only_holds_a_place(known, descriptor, now, is_crowded):
                    _end(descriptor, known.inode)

    def _known_as(self, descriptor: int, now: float) -> _Connection:
        inode = os.fstat(descriptor).st_ino
        known = self._known.get(descriptor)
        if known is None or known.inode != inode:
            is_clients = _is_connection_to(self._port, descriptor)
            known = self._known[descriptor] = _Connection(inode, is_clients, seen_at=now, since=now)
        return known


def _only_holds_a_place(known: _Connection, descriptor: int, now: float, is_crowded: bool) -> bool:
    with _socket(descriptor) as connection:
        state, taken, received = _TCP_INFO.unpack(
            connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
        )
    if taken >= known.taken + min(known.waiting, PROGRESS_BYTES):
        known.since, known.taken, known.waiting = now, taken, _bytes_waiting(descriptor)
    seconds = CROWDED_SECONDS if is_crowded else WRITE_SECONDS
    is_silent = is_crowded and received < REQUEST_BYTES_MIN and now - known.seen_at >= seconds
    return state in _OPEN_STATES and (is_silent or now - known.since >= seconds)


def _is_connection_to(port: int, descriptor: int) -> bool:
    try:
        with _socket(descriptor) as found:
            is_tcp = found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM
            is_listening = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            return is_tcp and not is_listening and found.getsockname()[1] == port
    except OSError:
        return False


def _bytes_waiting(descriptor: int) -> int:
    """What was sent and is not acknowledged, or could not be sent yet."""
    (waiting,) = _INT.unpack(fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(_INT.size)))
    return int(waiting)


def _end(descriptor: int, inode: int) -> None:
    with _socket(descriptor) as connection:
        if os.fstat(descriptor).st_ino == inode:
            # Reset as it is closed: the kernel would else keep what was not taken for minutes.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def _socket(descriptor: int) -> Iterator[socket.socket]:
    """The server's own socket, which stays the server's."""
    found = socket.socket(fileno=descriptor)
    try:
        yield found
    finally:
        found.detach()
