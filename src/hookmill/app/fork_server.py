"""Starts processes of the service by forking one that has loaded what they need and has no threads.

A new interpreter would load the same modules again and keep them in memory twice. Linux would also let other processes
of the same account open its memory until it protects itself; a forked process is protected from its first instruction.
"""

import gc
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from hookmill.app import log
from hookmill.app.prctl import set_process_name

Job = Callable[[socket.socket], None]
"""What a process does from its start to its end, with one end of a channel to the process that ordered it. It returns
when the other end is closed."""

RESTART_SECONDS: Final = 0.5


class ForkServer:
    """Starts processes that do one of the `jobs`. Create it before this process has threads or an open database:
    SQLite's locks don't survive a fork. Processes that are forked from this one later can use it too."""

    def __init__(self, jobs: Mapping[str, Job]) -> None:
        self._jobs = tuple(jobs.items())
        self._numbers = {name: bytes([number]) for number, name in enumerate(jobs)}
        _open_missing_standard_streams()
        # An order is one byte, so orders of several processes don't mix. This process keeps both ends open: what is
        # ordered while the fork server is being replaced waits for the next one.
        self._orders, self._received = socket.socketpair()
        self._orders.setblocking(False)
        self._closing = threading.Event()
        self._pid: int | None = self._fork()
        self._keeper = threading.Thread(target=self._keep_alive, daemon=True)
        self._keeper.start()

    def start(self, job: str, channel: socket.socket) -> None:
        """Start a process that does the job. It gets a copy of `channel`; the caller closes its own.

        Raises `OSError` if there is no room for the order. If the process can't be forked, its channel is closed.
        """
        socket.send_fds(self._orders, [self._numbers[job]], [channel.fileno()])

    def close(self) -> None:
        """End the fork server. Processes that it started end with their channels."""
        self._closing.set()
        while self._keeper.is_alive():
            if (pid := self._pid) is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._keeper.join(RESTART_SECONDS)
        self._orders.close()
        self._received.close()

    def _keep_alive(self) -> None:
        while True:
            if self._pid is not None:
                with suppress(ChildProcessError):
                    os.waitpid(self._pid, 0)
                self._pid = None
            if self._closing.wait(RESTART_SECONDS):
                return
            log.trouble("fork server", "the process that starts others ended; starting another")
            try:
                self._pid = self._fork()
            except OSError as error:
                log.trouble("fork server", f"it can't be started: {error.strerror}")

    def _fork(self) -> int:
        pid = os.fork()
        if pid == 0:
            _run_and_exit("fork server", self._serve)
        return pid

    def _serve(self) -> None:
        set_process_name("hookmill:forks")
        # Ctrl-C at the terminal, or a service manager's stop, signals every process of the service. These end when the
        # process that they work for does.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        # Nobody waits for the started processes, so the system reaps them.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        _close_files_except(self._received.fileno())
        # A garbage collection would write to memory that all processes share, and so copy it.
        gc.freeze()
        while True:
            order, channels, _, _ = socket.recv_fds(self._received, 1, 1)
            if not order:
                return
            with socket.socket(fileno=channels[0]) as channel:
                self._start(*self._jobs[order[0]], channel)

    def _start(self, name: str, job: Job, channel: socket.socket) -> None:
        def run() -> None:
            set_process_name(f"hookmill:{name}")
            self._received.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            with channel:
                job(channel)

        try:
            pid = os.fork()
        except OSError as error:
            # The process that ordered it sees the closed channel, and orders again.
            log.trouble(name, f"the process can't be started: {error.strerror}")
            return
        if pid == 0:
            _run_and_exit(name, run)


def _run_and_exit(name: str, run: Callable[[], None]) -> NoReturn:
    """Never return to the code of the process that this one was forked from."""
    code = 1
    try:
        run()
        code = 0
    except BaseException as error:
        log.failure(name, error)
    finally:
        os._exit(code)


def _open_missing_standard_streams() -> None:
    """A command may be started without standard streams. The next files that it opens would get their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _close_files_except(kept: int) -> None:
    """Close other processes' channels and the service's port, which would otherwise stay open. Standard input and
    output belong to the command alone."""
    for number in [int(each.name) for each in Path("/dev/fd").iterdir()]:
        if number > 2 and number != kept:
            # The directory itself was one of them.
            with suppress(OSError):
                os.close(number)
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
