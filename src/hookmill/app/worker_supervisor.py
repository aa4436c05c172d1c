"""The worker process as `serve` sees it. It loads the engine in its own process, and `serve` starts without."""

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
"""How long runs under way may take to end when the service is told to stop."""
STOPPING_SECONDS: Final = 20
"""How long, after that, the process may take to end what is not over, and to leave it for the next start."""
READY: Final = b"ready\n"
"""The worker's second line; its first is its number."""
LEAVE: Final = b"leave"


class WorkerSupervisor:
    """The worker process beside the ingress: kept alive while the service is, and let go with it.

    It is not part of the ingress process, whose interpreter every request needs: a run's work must not be felt there.
    """

    def __init__(self, forks: ForkServer) -> None:
        self._forks = forks
        self._leaving = threading.Event()
        self._ready = threading.Event()
        self._pid: int | None = None
        self._line = self._start()
        self._watch = threading.Thread(target=self._keep_alive, daemon=True)
        self._watch.start()

    def close(self) -> None:
        self._leaving.set()
        with suppress(OSError):
            self._line.sendall(LEAVE)
        self._watch.join(DRAIN_SECONDS + STOPPING_SECONDS)
        if self._watch.is_alive() and (pid := self._pid) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def wait_until_ready(self) -> None:
        self._ready.wait()

    def _start(self) -> socket.socket:
        # An ingress process that is forked now would keep the worker's end, and hide from this one that it closed.
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
            log.trouble("worker", "the worker process ended; starting another")
            with suppress(OSError):
                self._line = self._start()

    def _listen(self) -> None:
        """Until the process has ended."""
        with suppress(OSError), self._line.makefile("rb") as told:
            for line in told:
                if line == READY:
                    self._ready.set()
                else:
                    self._pid = int(line)
        self._pid = None
