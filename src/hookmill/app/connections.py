"""Closes stalled connections, because the HTTP server has deadlines for reads, but none for writes.

Otherwise, a client that never reads its response would occupy a connection permanently. The kernel counts the bytes
that wait for a client and the bytes that the client has acknowledged.
"""

import fcntl
import os
import socket
import struct
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hookmill.domain.errors import ReportFailure

WRITE_SECONDS: Final = 30.0
"""The time in which a client must acknowledge all waiting bytes, or `PROGRESS_BYTES` of them if there are more."""
PROGRESS_BYTES: Final = 65_536
CROWDED_SECONDS: Final = 2.0
"""Replaces `WRITE_SECONDS` while the server is crowded. A new connection must then also send a request in this time."""
REQUEST_BYTES_MIN: Final = 32
"""The minimum size of a request."""
CROWDED_SHARE: Final = 0.75
"""The server is crowded if the process has more open files than this share of the maximum number of connections."""
CHECK_SECONDS: Final = 0.5
"""Interval between checks whether the server is crowded, and between checks of the connections while it is."""
CHECK_UNCROWDED_SECONDS: Final = 5.0
"""Interval between checks of the connections while the server is not crowded."""

_DESCRIPTORS: Final = Path("/proc/self/fd")
# From linux/tcp.h: the connection's state, the number of acknowledged bytes, and the number of received bytes.
_TCP_INFO: Final = struct.Struct("=B119xQQ")
_INT: Final = struct.Struct("=i")
_LINGER_ZERO: Final = struct.pack("=ii", 1, 0)
"""A value of SO_LINGER: the connection is reset when the socket is closed."""
_OPEN_STATES: Final = {1, 8}
"""TCP_ESTABLISHED and TCP_CLOSE_WAIT."""


@dataclass(slots=True)
class _Connection:
    inode: int
    """Distinguishes the socket from a later one with the same descriptor."""
    is_client_connection: bool
    """Whether it is a client's connection to the service's port."""
    first_checked_at: float
    progress_at: float
    """When the client last made progress."""
    acknowledged_bytes: int = 0
    """The bytes that the client had acknowledged at `progress_at`."""
    waiting_bytes: int = 0
    """The bytes that were waiting for the client at `progress_at`."""


class StalledConnectionCloser:
    """Closes stalled connections of this process to one port, in a thread, until `close`. It works on Linux only.

    `connections_max` is the number of connections that the server accepts. `report_failure` is called if a check fails.
    """

    def __init__(self, port: int, connections_max: int, report_failure: ReportFailure) -> None:
        self._port = port
        self._crowded_at = int(connections_max * CROWDED_SHARE)
        self._report_failure = report_failure
        self._connections: dict[int, _Connection] = {}
        """By descriptor."""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="connections", daemon=True)
        if _DESCRIPTORS.is_dir() and hasattr(socket, "TCP_INFO"):
            self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(CHECK_SECONDS * 2)

    def _watch(self) -> None:
        checked_at = 0.0
        while not self._closing.wait(CHECK_SECONDS):
            try:
                descriptors = [int(path.name) for path in _DESCRIPTORS.iterdir()]
                is_crowded = len(descriptors) > self._crowded_at
                now = time.monotonic()
                if is_crowded or now - checked_at >= CHECK_UNCROWDED_SECONDS:
                    checked_at = now
                    self._reset_stalled(descriptors, now, is_crowded)
            except OSError:
                # The process is out of descriptors, so the directory can't be opened.
                continue
            except Exception as error:
                self._report_failure("connections", error)
                self._closing.wait(CHECK_UNCROWDED_SECONDS)

    def _reset_stalled(self, descriptors: list[int], now: float, is_crowded: bool) -> None:
        for closed_descriptor in self._connections.keys() - set(descriptors):
            del self._connections[closed_descriptor]
        for descriptor in descriptors:
            # The server may close the descriptor at any moment, and reuse its number.
            with suppress(OSError):
                connection = self._connection_of(descriptor, now)
                if connection.is_client_connection and _is_stalled(connection, descriptor, now, is_crowded):
                    _reset(descriptor, connection.inode)

    def _connection_of(self, descriptor: int, now: float) -> _Connection:
        inode = os.fstat(descriptor).st_ino
        connection = self._connections.get(descriptor)
        if connection is None or connection.inode != inode:
            is_client_connection = _is_connection_to(self._port, descriptor)
            connection = _Connection(inode, is_client_connection, first_checked_at=now, progress_at=now)
            self._connections[descriptor] = connection
        return connection


def _is_stalled(connection: _Connection, descriptor: int, now: float, is_crowded: bool) -> bool:
    """Update the client's progress. Returns whether the connection is stalled."""
    with _borrowed_socket(descriptor) as server_socket:
        state, acknowledged_bytes, received_bytes = _TCP_INFO.unpack(
            server_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
        )
    if acknowledged_bytes >= connection.acknowledged_bytes + min(connection.waiting_bytes, PROGRESS_BYTES):
        connection.progress_at = now
        connection.acknowledged_bytes = acknowledged_bytes
        connection.waiting_bytes = _count_waiting_bytes(descriptor)
    seconds = CROWDED_SECONDS if is_crowded else WRITE_SECONDS
    is_silent = is_crowded and received_bytes < REQUEST_BYTES_MIN and now - connection.first_checked_at >= seconds
    return state in _OPEN_STATES and (is_silent or now - connection.progress_at >= seconds)


def _is_connection_to(port: int, descriptor: int) -> bool:
    try:
        with _borrowed_socket(descriptor) as candidate:
            is_tcp = candidate.family in (socket.AF_INET, socket.AF_INET6) and candidate.type == socket.SOCK_STREAM
            is_listening = candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            return is_tcp and not is_listening and candidate.getsockname()[1] == port
    except OSError:
        return False


def _count_waiting_bytes(descriptor: int) -> int:
    """The number of bytes in the socket's send queue: unsent, or sent and not acknowledged."""
    (waiting_bytes,) = _INT.unpack(fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(_INT.size)))
    return int(waiting_bytes)


def _reset(descriptor: int, inode: int) -> None:
    with _borrowed_socket(descriptor) as server_socket:
        if os.fstat(descriptor).st_ino == inode:
            # Without a reset, the kernel would keep the unacknowledged bytes for minutes.
            server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
            server_socket.shutdown(socket.SHUT_RDWR)


@contextmanager
def _borrowed_socket(descriptor: int) -> Iterator[socket.socket]:
    """The server's socket with this descriptor. It stays open, because the server owns it."""
    borrowed = socket.socket(fileno=descriptor)
    try:
        yield borrowed
    finally:
        borrowed.detach()
