"""Ports for servers that tests start. All are below 32,768, because the system uses higher ones for outgoing
connections: a server that is killed can then start again at its port."""

import contextlib
import itertools
import os
import secrets
import socket
from collections.abc import Iterator
from typing import Final

OF_SERVICES: Final = range(15_000, 20_000)
OF_POSTGRES: Final = range(20_000, 32_000)
PROCESSES_MAX: Final = 8
"""How many processes of tests have ports of their own."""


def is_free(port: int) -> bool:
    """Whether no server of this machine listens at the port."""
    with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
        return True
    return False


def free_port() -> int:
    """A port for a service, at which no server listens."""
    return next(port for port in _ports if is_free(port))


def _own_ports() -> Iterator[int]:
    """This process's own ports, in turn. A port is repeated only after all others, so no other test takes it while a
    service starts, or is restarted."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    own = OF_SERVICES[number % PROCESSES_MAX :: PROCESSES_MAX]
    # Tests of another clone may run at the same time. `secrets` is random even if a test has seeded `random`.
    first = secrets.randbelow(len(own))
    return itertools.cycle([*own[first:], *own[:first]])


_ports = _own_ports()
