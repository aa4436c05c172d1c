"""Starts, restarts and stops the worker process of `serve`."""

import mmap
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
"""How long runs in progress may continue when the service stops."""
ABANDON_SECONDS: Final = 20
"""The time that the worker has after `DRAIN_SECONDS` to abandon the attempts of the remaining runs. Then it is killed.
Then each of these runs gets another attempt, from the beginning, as after the death of a worker."""
READY: Final = b"ready\n"
"""The worker's second message. The first one is its process ID."""
STOP: Final = b"stop"
"""The supervisor's message to the worker: let runs in progress end within `DRAIN_SECONDS`, then stop."""


RESTART_SECONDS: Final = 1.0
"""The pause before a worker that ended is replaced. It doubles while workers can't start."""
RESTART_SECONDS_MAX: Final = 30.0


class WorkerStatus:
    """Whether the worker starts. The ingress processes, which are forked later, share this memory."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 2)

    @property
    def has_been_ready(self) -> bool:
        return self._memory[0] == 1

    @property
    def can_start(self) -> bool:
        """False if the last worker ended before it was ready, until another one is ready."""
        return self._memory[1] == 0

    def set_ready(self) -> None:
        self._memory[0], self._memory[1] = 1, 0

    def set_failed(self) -> None:
        self._memory[1] = 1


class WorkerSupervisor:
    """Keeps a worker process alive until `close`.

    The worker is not part of the ingress process, where a run would hold the GIL that every request needs.
    """

    def __init__(self, fork_server: ForkServer, status: WorkerStatus) -> None:
        self._fork_server = fork_server
        self._status = status
        self._closing = threading.Event()
        self._ready = threading.Event()
        self._pid: int | None = None
        self._channel = self._start()
        self._watch_thread = threading.Thread(target=self._keep_alive, daemon=True)
        self._watch_thread.start()

    def close(self) -> None:
        self._closing.set()
        with suppress(OSError):
            self._channel.sendall(STOP)
        self._watch_thread.join(DRAIN_SECONDS + ABANDON_SECONDS)
        if self._watch_thread.is_alive() and (pid := self._pid) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def wait_until_ready(self) -> None:
        self._ready.wait()

    def _start(self) -> socket.socket:
        # `no_fork`: an ingress process that is forked now would inherit the worker's end of the channel. The channel
        # would then stay open when the worker ends, and this process would not notice that the worker ended.
        with no_fork:
            own_end, worker_end = socket.socketpair()
            with worker_end:
                self._fork_server.start(WORKER, worker_end)
        return own_end

    def _keep_alive(self) -> None:
        pause_seconds = RESTART_SECONDS
        while True:
            was_ready = self._listen()
            if was_ready:
                pause_seconds = RESTART_SECONDS
                reason = "the worker process ended; starting another"
            else:
                self._status.set_failed()
                reason = "the worker can't start, so runs wait; an earlier line has the cause; trying again"
            if self._closing.wait(pause_seconds):
                return
            log.error("worker", reason)
            if not was_ready:
                pause_seconds = min(2 * pause_seconds, RESTART_SECONDS_MAX)
            with suppress(OSError):
                self._channel = self._start()

    def _listen(self) -> bool:
        """Read the worker's messages until it ends. Returns whether it was ready before."""
        is_ready = False
        with suppress(OSError), self._channel.makefile("rb") as messages:
            for message in messages:
                if message == READY:
                    is_ready = True
                    self._status.set_ready()
                    self._ready.set()
                else:
                    self._pid = int(message)
        self._pid = None
        return is_ready
