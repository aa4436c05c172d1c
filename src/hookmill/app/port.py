"""A lock on the address that the service listens on."""

import errno
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from hookmill.domain.errors import Conflict

PORT_SECONDS: Final = 1.0
"""The time that a start waits for a port that another process uses."""


@contextmanager
def hold_port(host: str, port: int) -> Iterator[None]:
    """Lock the address before the server listens on it. Raises `Conflict` if another process uses it.

    The server's processes share the port with SO_REUSEPORT, so without the lock, two services could share it too.
    """
    with socket.socket(socket.AF_UNIX) as lock:
        deadline = time.monotonic() + PORT_SECONDS
        while (error := _try_to_bind(lock, host, port)) is not None:
            # If a service was just killed, the system may not have released the port yet.
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise Conflict(
                    f"The service can't listen on {host} port {port}: {error.strerror}. "
                    "Choose another address with --host and --port, or stop the program that uses this one."
                )
            time.sleep(0.02)
        # The server's processes inherit the lock, so it is held until the last of them ends.
        yield


def _try_to_bind(lock: socket.socket, host: str, port: int) -> OSError | None:
    """Bind the lock if the address is free; otherwise return the error."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            if sys.platform == "linux":
                # An abstract socket name leaves no file, and is released when its last descriptor is closed.
                lock.bind(f"\0hookmill {host} {port}")
        except OSError as error:
            return error
    return None
