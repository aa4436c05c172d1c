"""Ports for what tests start. The system gives none of these to a connection, as it does with those from 32,768: what
was killed finds its own free."""

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
    """Whether nobody listens there."""
    with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
        return True
    return False


def free_port() -> int:
    """One for a service, at which nobody listens."""
    return next(port for port in _ports if is_free(port))


def _in_turn() -> Iterator[int]:
    """This process's own ports. One comes again only after all others: nobody takes it while a service starts, or until
    the next one is started there."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    own = OF_SERVICES[number % PROCESSES_MAX :: PROCESSES_MAX]
    # Chance that no test has seeded, for tests of another clone at the same time.
    first = secrets.randbelow(len(own))
    return itertools.cycle([*own[first:], *own[:first]])


_ports = _in_turn()
