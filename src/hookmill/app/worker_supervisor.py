"""Starts, restarts and stops the worker process of `serve`."""

import os
import signal
import socket
import threading
from contextlib import suppress
from typing import Final

from hookmill.app import log
from hookmill.app.at_fork import no_fork
from hookmill.app.fork_server import ForkServer

WORKER: Final = "worker"
DRAIN_SECONDS: Final = 10
"""How long runs in progress may take to end when the service stops."""
INTERRUPT_SECONDS: Final = 20
"""How long the worker may then take to interrupt the other runs, which the next start resumes."""
READY: Final = b"ready\n"
"""The worker's second message; its first is its process ID."""
LEAVE: Final = b"leave"
"""Sent to the worker: stop within `DRAIN_SECONDS`."""


class WorkerSupervisor:
    """Keeps a worker process alive until `close`.

    The worker is not part of the ingress process, where a run would hold the GIL that every request needs.
    """

    def __init__(self, forks: ForkServer) -> None:
        self._forks = forks
        self._leaving = threading.Event()
        self._ready = threading.Event()
        self._pid: int | None = None
        self._channel = self._start()
        self._watch = threading.Thread(target=self._keep_alive, daemon=True)
        self._watch.start()

    def close(self) -> None:
        self._leaving.set()
        with suppress(OSError):
            self._channel.sendall(LEAVE)
        self._watch.join(DRAIN_SECONDS + INTERRUPT_SECONDS)
        if self._watch.is_alive() and (pid := self._pid) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def wait_until_ready(self) -> None:
        self._ready.wait()

    def _start(self) -> socket.socket:
        # An ingress process that is forked now would inherit the worker's end, and its closing would go unnoticed.
        with no_fork:
            ours, theirs = socket.socketpair()
            with theirs:
                self._forks.start(WORKER, theirs)
        return ours

    def _keep_alive(self) -> None:
        while True:
            self._listen()
            if self._leaving.wait(1.0):
                return
            log.error("worker", "the worker process ended; starting another")
            with suppress(OSError):
                self._channel = self._start()

    def _listen(self) -> None:
        """Read the worker's messages until it ends."""
        with suppress(OSError), self._channel.makefile("rb") as messages:
            for message in messages:
                if message == READY:
                    self._ready.set()
                else:
                    self._pid = int(message)
        self._pid = None
