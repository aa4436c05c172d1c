"""Writes lines to standard error, and drops those that its reader has no room for.

A reader may be stuck: a container engine whose log driver waits for its server, a terminal after Ctrl-S, a stopped
`tee`. A process that waited for it would answer no delivery until somebody restarts it.
"""

import io
import os
import select
from typing import Final, TextIO

WAIT_MILLISECONDS: Final = 100
"""How long a line waits for room. The event loop waits, too."""


class LineWriter:
    """A logger for structlog. Each method writes one line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._descriptor: int | None = None
        # A stream in memory has no descriptor.
        try:
            self._descriptor = stream.fileno()
        except io.UnsupportedOperation:
            return
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLOUT)

    def write(self, line: str) -> None:
        """Write a line. Raises `OSError`, such as for a full disk."""
        if self._descriptor is None:
            self._stream.write(f"{line}\n")
            return
        rest = f"{line}\n".encode("utf-8", "backslashreplace")
        # If a pipe is ready, it has room for this many bytes. Writing a line and its end with one call keeps lines of
        # processes that share a pipe apart.
        while rest and self._poll.poll(WAIT_MILLISECONDS):
            written = os.write(self._descriptor, rest[: select.PIPE_BUF])
            rest = rest[written:]

    msg = debug = info = warning = error = write
