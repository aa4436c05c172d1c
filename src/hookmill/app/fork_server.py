"""Starts processes of the service by forking a process that has loaded their modules and has no threads.

A new interpreter would load the modules again, and the memory would contain them twice. Other processes of the same
account could also read its memory until it protects itself. A forked process inherits the protection.
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
from hookmill.app.stop_signals import STOP_SIGNALS
from hookmill.prctl import set_process_name

Job = Callable[[socket.socket], None]
"""The main function of a started process. Its argument is one end of a channel to the process that ordered the start.
It returns when the other end is closed."""

RESTART_SECONDS: Final = 0.5
"""The pause before a fork server that ended is replaced, and between signals to end it."""


class ForkServer:
    """Starts processes that perform one of the `jobs`.

    Processes that are forked from this one later can also order starts. Create it before this process has threads,
    whose locks would be copied, or an open database, because a fork does not inherit SQLite's locks. A restart forks
    later, while there are threads: `at_fork` makes it safe.
    """

    def __init__(self, jobs: Mapping[str, Job]) -> None:
        self._jobs = tuple(jobs.items())
        self._order_byte_of_job = {name: bytes([number]) for number, name in enumerate(jobs)}
        # An order is one byte, so orders of several processes can't interleave. This process keeps both ends open, so
        # that orders wait while the fork server is restarted.
        self._order_sender, self._order_receiver = socket.socketpair()
        self._order_sender.setblocking(False)
        self._closing = threading.Event()
        self._pid: int | None = self._start_fork_server()
        self._restart_thread = threading.Thread(target=self._keep_alive, daemon=True)
        self._restart_thread.start()

    def start(self, job_name: str, channel: socket.socket) -> None:
        """Order the start of a process that performs the job.

        The process gets a copy of `channel`; the caller closes its own. Returns before the process has started. If the
        process can't be forked, its copy of the channel is closed. Raises `OSError` if there is no room for the order;
        then no process starts.
        """
        socket.send_fds(self._order_sender, [self._order_byte_of_job[job_name]], [channel.fileno()])

    def close(self) -> None:
        """End the fork server. Processes that it started end with their channels."""
        self._closing.set()
        # The thread may start another fork server after the first signal. So the signal is repeated until the thread
        # ends.
        while self._restart_thread.is_alive():
            if (pid := self._pid) is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._restart_thread.join(RESTART_SECONDS)
        self._order_sender.close()
        self._order_receiver.close()

    def _keep_alive(self) -> None:
        while True:
            if self._pid is not None:
                with suppress(ChildProcessError):
                    os.waitpid(self._pid, 0)
                self._pid = None
            if self._closing.wait(RESTART_SECONDS):
                return
            log.error("fork server", "the fork server ended; starting another")
            try:
                self._pid = self._start_fork_server()
            except OSError as error:
                log.error("fork server", f"the fork server can't be started: {error.strerror}")

    def _start_fork_server(self) -> int:
        pid = os.fork()
        if pid == 0:
            _run_and_exit("fork server", self._serve_orders)
        return pid

    def _serve_orders(self) -> None:
        set_process_name("hookmill:forks")
        # Ctrl-C, or a service manager's stop, sends a signal to every process of the service. The fork server and the
        # processes that it starts ignore it. A started process ends when the other end of its channel is closed. The
        # fork server ends when no process can send it orders any more.
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        # The supervisor blocks these signals. They are unblocked here, so that commands of runs don't inherit the
        # block.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        # No code waits for the started processes, so the kernel reaps them.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        _close_files_except(self._order_receiver.fileno())
        # A garbage collection would write to pages that the processes share, and so copy them.
        gc.freeze()
        while True:
            order, descriptors, _, _ = socket.recv_fds(self._order_receiver, 1, 1)
            if not order:
                return
            with socket.socket(fileno=descriptors[0]) as channel:
                self._start_process(*self._jobs[order[0]], channel)

    def _start_process(self, name: str, job: Job, channel: socket.socket) -> None:
        def run() -> None:
            set_process_name(f"hookmill:{name}")
            self._order_receiver.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            with channel:
                job(channel)

        try:
            pid = os.fork()
        except OSError as error:
            # The channel is closed now. The process that sent the order detects this, and sends the order again.
            log.error(name, f"the process can't be started: {error.strerror}")
            return
        if pid == 0:
            _run_and_exit(name, run)


def _run_and_exit(name: str, run: Callable[[], None]) -> NoReturn:
    """Call `run`, then exit. The forked process must never return to the code of its parent."""
    code = 1
    try:
        run()
        code = 0
    except BaseException as error:
        log.failure(name, error)
    finally:
        os._exit(code)


def _close_files_except(kept_descriptor: int) -> None:
    """Close inherited files, such as other processes' channels and the service's port.

    Standard input becomes /dev/null, and standard output becomes standard error: only `hookmill serve` itself uses
    them.
    """
    for number in [int(path.name) for path in Path("/dev/fd").iterdir()]:
        if number > 2 and number != kept_descriptor:
            # The list includes the descriptor of the directory, which is already closed.
            with suppress(OSError):
                os.close(number)
    with Path(os.devnull).open() as null_device:
        os.dup2(null_device.fileno(), 0)
    os.dup2(2, 1)
