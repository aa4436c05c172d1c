"""Processes of the service, forked from one that has loaded what they need and has no threads.

A new interpreter would take a second of processor time to load the same again, and hold it in memory a second time.
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
"""What a process does from its start to its end, with one end of a line to whoever asked for it. It ends when the other
end is closed."""

AGAIN_SECONDS: Final = 0.5


class ForkServer:
    """Starts processes that do one of the `jobs`. To be made while this process has neither threads nor a database
    open: SQLite's locks don't survive being forked. Any process that is forked from this one later may ask it too."""

    def __init__(self, jobs: Mapping[str, Job]) -> None:
        self._jobs = list(jobs.items())
        self._numbers = {name: bytes([number]) for number, name in enumerate(jobs)}
        _open_what_is_closed()
        # An order is one byte, so those of several processes don't mix. Both ends stay open here: what is ordered while
        # a fork server is missing waits for the next one.
        self._orders, self._taken = socket.socketpair()
        self._orders.setblocking(False)
        self._closing = threading.Event()
        self._pid: int | None = self._fork()
        self._keeper = threading.Thread(target=self._keep_alive, daemon=True)
        self._keeper.start()

    def start(self, job: str, line: socket.socket) -> None:
        """Start a process that does the job. `line` is its own; the caller closes what is left of it here.

        Raises `OSError` where it can't be ordered. A process that can't be forked closes its line.
        """
        socket.send_fds(self._orders, [self._numbers[job]], [line.fileno()])

    def close(self) -> None:
        """End the fork server. Processes that it started end with their lines."""
        self._closing.set()
        while self._keeper.is_alive():
            if (pid := self._pid) is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._keeper.join(AGAIN_SECONDS)
        self._orders.close()
        self._taken.close()

    def _keep_alive(self) -> None:
        while True:
            if self._pid is not None:
                with suppress(ChildProcessError):
                    os.waitpid(self._pid, 0)
                self._pid = None
            if self._closing.wait(AGAIN_SECONDS):
                return
            log.trouble("fork server", "the process that starts others ended; starting another")
            try:
                self._pid = self._fork()
            except OSError as error:
                log.trouble("fork server", f"it can't be started: {error.strerror}")

    def _fork(self) -> int:
        pid = os.fork()
        if pid == 0:
            _do_and_leave("fork server", self._serve)
        return pid

    def _serve(self) -> None:
        set_process_name("hookmill:forks")
        # A Ctrl-C at the terminal, or a stop of everything at once, reaches each process of the service. These end
        # when the process that they work for does.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        # Nobody waits for what ends, so it leaves no zombie.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        _let_go_of_files(self._taken.fileno())
        # What is loaded is never garbage: looking for it would copy what all of them share.
        gc.freeze()
        while True:
            order, lines, _, _ = socket.recv_fds(self._taken, 1, 1)
            if not order:
                return
            with socket.socket(fileno=lines[0]) as line:
                self._begin(*self._jobs[order[0]], line)

    def _begin(self, name: str, job: Job, line: socket.socket) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            # Whoever asked sees the closed line, and asks again.
            log.trouble(name, f"the process can't be started: {error.strerror}")
            return
        if pid == 0:
            _do_and_leave(name, lambda: self._be(name, job, line))

    def _be(self, name: str, job: Job, line: socket.socket) -> None:
        set_process_name(f"hookmill:{name}")
        self._taken.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with line:
            job(line)


def _do_and_leave(name: str, do: Callable[[], None]) -> NoReturn:
    """Do it, and end this process: nothing of the one that it was forked from must go on in it."""
    code = 1
    try:
        do()
        code = 0
    except BaseException as error:
        log.failure(name, error)
    finally:
        os._exit(code)


def _open_what_is_closed() -> None:
    """A command may be started without standard streams; what is opened next would take their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _let_go_of_files(but: int) -> None:
    """Standard input and output belong to the command alone. Whatever else is open would be kept from closing: the
    lines of others, and the service's port."""
    for number in [int(each.name) for each in Path("/dev/fd").iterdir()]:
        if number > 2 and number != but:
            # The directory itself was one of them.
            with suppress(OSError):
                os.close(number)
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
