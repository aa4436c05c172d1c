"""The address that a service listens on: one service at a time has it."""

import errno
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from hookmill.domain.errors import Conflict

PORT_SECONDS: Final = 1.0
"""How long a start waits for its port."""


@contextmanager
def hold_port(host: str, port: int) -> Iterator[None]:
    """Keep other services off this address, before the server listens on it. Raises `Conflict` when it is taken.

    The server lets its processes share the port, so two services that start at the same moment would share it, too.
    """
    with socket.socket(socket.AF_UNIX) as lock:
        give_up = time.monotonic() + PORT_SECONDS
        while (trouble := _trouble_with(lock, host, port)) is not None:
            # A service that was killed this moment lets go of its port as it dies.
            if trouble.errno != errno.EADDRINUSE or time.monotonic() > give_up:
                raise Conflict(
                    f"The service can't listen on {host} port {port}: {trouble.strerror}. "
                    "Choose another with --host and --port, or stop what listens there."
                )
            time.sleep(0.02)
        # The server's processes inherit it, so it is held for as long as any of them lives.
        yield


def _trouble_with(lock: socket.socket, host: str, port: int) -> OSError | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind((host, port))
            if sys.platform == "linux":
                # An abstract name: it leaves no file, and is free again once nobody has it open.
                lock.bind(f"\0hookmill {host} {port}")
        except OSError as error:
            return error
    return None
