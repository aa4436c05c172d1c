"""How many files the service may have open, and how many connections that leaves room for."""

import resource
from contextlib import suppress
from typing import Final

from hookmill.domain.errors import Conflict

FILES_MIN: Final = 256
FILES_KEPT_BACK: Final = 128
"""Open files that connections leave to the store. A server that has none left to accept with spins, and serves
nobody."""
CONNECTIONS_MAX: Final = 16_384
"""How many connections one process holds; an idle one costs it 3 KB. Whoever comes then waits until another ends."""


_found: int | None = None


def raise_limit() -> None:
    """Let this process and those it starts open as many files as the system allows. Raises `Conflict` when that is too
    few to serve with."""
    global _found
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    _found = soft
    if soft != resource.RLIM_INFINITY:
        # Not every system accepts an unlimited soft limit.
        most = hard if hard != resource.RLIM_INFINITY else max(soft, CONNECTIONS_MAX + FILES_KEPT_BACK)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < FILES_MIN:
        raise Conflict(
            f"The service may have {soft} files open at most, and needs {FILES_MIN}: each connection is one. Raise the "
            "limit with `ulimit -n 4096` in the shell that starts it, or LimitNOFILE=4096 in its systemd unit."
        )


def limit_before() -> int | None:
    """The soft limit that `raise_limit` found, for what is no part of the service: a program that calls select() must
    not get descriptors above 1,023. None if it was not raised."""
    return _found


def connections_max() -> int:
    """Of one process, under the limit that `raise_limit` left."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return min(CONNECTIONS_MAX, soft - FILES_KEPT_BACK)
