"""A reservation of the address that the service listens on."""

import errno
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from hookmill.domain.errors import Conflict

PORT_MAX: Final = 65_535
PORT_SECONDS: Final = 1.0
"""The time that a start waits for a port that another process uses."""


@contextmanager
def hold_port(host: str, port: int) -> Iterator[None]:
    """Reserve the address before the server listens on it. Raises `Conflict` if another process uses it.

    The server's processes share the port with SO_REUSEPORT. Without the reservation, two services could share it, too,
    even with different hosts, such as 127.0.0.1 and 0.0.0.0.
    """
    deadline = time.monotonic() + PORT_SECONDS
    reservation = None
    while reservation is None:
        try:
            reservation = _reserve(host, port)
        except OSError as error:
            # If a service was just killed, the system may not have released the port yet.
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise _refusal(host, port, error) from None
            time.sleep(0.02)
    # The ingress processes inherit the reservation, so it lasts until the last of them ends. The fork server closes its
    # copy.
    with reservation:
        yield


def _reserve(host: str, port: int) -> socket.socket:
    """A socket that is bound to the address, and never receives a connection. Raises `OSError`.

    Other sockets can bind to the address only if they set SO_REUSEPORT and belong to the same user, as those of the
    server do. Another reservation fails.
    """
    reservation = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        # Connections of an earlier service may still be closing. They are no reason to refuse.
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reservation.bind((host, port))
        if sys.platform == "linux":
            # Two processes that start at the same time can both bind. Linux lets only one of them listen.
            reservation.listen()
        # While this socket listens, no other reservation can succeed. SO_REUSEADDR is removed before listening ends, so
        # that none can succeed afterwards either.
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        if sys.platform == "linux":
            # The socket no longer listens, and stays bound.
            reservation.shutdown(socket.SHUT_RDWR)
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError:
        reservation.close()
        raise
    return reservation


def _refusal(host: str, port: int, error: OSError) -> Conflict:
    if error.errno == errno.EADDRINUSE:
        other = port + 1 if port < PORT_MAX else port - 1
        return Conflict(
            f"The service can't listen on {host}: port {port} is in use by another process. Stop that process, or "
            f"choose another port: set HOOKMILL_PORT={other}, or start with --port {other}."
        )
    return Conflict(
        f"The service can't listen on {host} port {port}: {error.strerror}. Choose another address: set HOOKMILL_HOST "
        "and HOOKMILL_PORT, or start with --host and --port."
    )
