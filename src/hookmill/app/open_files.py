"""The limit of open files, and the number of connections that it allows."""

import resource
from contextlib import suppress
from typing import Final

from hookmill.domain.errors import Conflict

FILES_MIN: Final = 256
FILES_RESERVED: Final = 128
"""The number of open files that connections can't use. Without a free descriptor for accept(), the HTTP server
busy-loops and serves no client."""
CONNECTIONS_MAX: Final = 16_384
"""The maximum number of connections of one process. Further clients wait until a connection closes.

A connection takes 3 KiB of memory before its first byte, 17 KiB with part of a request, and 42 KiB if the header lines
have the largest size. A delivery's body is extra."""


_original_limit: int | None = None


def raise_open_files_limit() -> None:
    """Raise the limit of open files as far as the system allows, for this process and those that it starts.

    Raises `Conflict`, which the command line prints, if the limit is too low to serve.
    """
    global _original_limit
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    _original_limit = soft
    if soft != resource.RLIM_INFINITY:
        # Not every system accepts an unlimited soft limit.
        raised = hard if hard != resource.RLIM_INFINITY else max(soft, CONNECTIONS_MAX + FILES_RESERVED)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < FILES_MIN:
        raise Conflict(
            f"The service may open only {soft} files and needs {FILES_MIN}, because each connection is a file. Raise "
            "the limit with `ulimit -n 4096` in the shell that starts it, or LimitNOFILE=4096 in its systemd unit."
        )


def original_open_files_limit() -> int | None:
    """The soft limit before `raise_open_files_limit`, or None if it was not called.

    Runs' commands get this limit: a program that calls select() fails with descriptors above 1,023.
    """
    return _original_limit


def allowed_connections() -> int:
    """The number of connections that one process accepts."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return min(CONNECTIONS_MAX, soft - FILES_RESERVED)
