"""The Unix socket in the data directory, through which the operator's commands on the host reach the running service.

The operator is who can open the socket (its mode is 0600), and has the master key and the URL of the database. So a
command of a run, which may have the service's account, but not the secrets in the service's environment, gains nothing.
A connection begins with a proof of these secrets, and the service's answer `+`. An HTTP request follows.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

SOCKET_NAME: Final = "api.sock"
ADDRESS_BYTES_MAX: Final = 100
"""Longer paths don't fit into the address of a socket on every system."""
ACCEPTED: Final = b"+"


def operator_proof(master_key: bytes, database_url: str | None) -> bytes:
    """The line with which a connection begins."""
    import hmac

    message = f"hookmill operator 1 {database_url or ''}".encode("utf-8", "surrogateescape")
    return hmac.digest(master_key, message, "sha256").hex().encode() + b"\n"


@contextmanager
def socket_address(path: Path) -> Iterator[str]:
    """An address for `bind` and `connect`, also for paths that are longer than an address can be (on Linux)."""
    if len(os.fsencode(path)) <= ADDRESS_BYTES_MAX:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def connect(path: Path, proof: bytes, seconds: float) -> socket.socket:
    """A connection to the service. Raises `OSError` if none listens, or if it does not accept the proof."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(seconds)
        with socket_address(path) as address:
            connection.connect(address)
        connection.sendall(proof)
        if connection.recv(1) != ACCEPTED:
            raise PermissionError("the service has other secrets")
    except BaseException:
        connection.close()
        raise
    return connection
