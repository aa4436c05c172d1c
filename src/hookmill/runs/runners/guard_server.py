"""Starts guards by forking a prepared process: a new interpreter for each run would take longer than most commands.

The process loads the guard's modules once, and has no threads, open files or secrets. Its memory is protected, and so
is that of each guard from the start. It is started with the first command, and ends when this process ends.
"""

import atexit
import contextlib
import errno
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hookmill.runs.runners.guard import (
    CHUNK_BYTES,
    END_MARK,
    KILL_SECONDS,
    NOT_FORKED,
    ORDER_LENGTH_BYTES,
    UNUSED_ARGUMENT,
)

GUARD: Final = Path(__file__).with_name("guard.py")
START_SECONDS: Final = 30.0
"""The time until a guard must have started."""


class Guard:
    """A guard that runs. It ends its command when this process has called `end_input`, or has ended."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._received = b""

    def start(self, order: bytes) -> None:
        """Send the order, and wait until the guard has started. Raises `OSError`."""
        self._channel.settimeout(START_SECONDS)
        self._channel.sendall(len(order).to_bytes(ORDER_LENGTH_BYTES, "big") + order)
        while not self._lines:
            if self._end is None and self.receive():
                continue
            if self._end is not None and self._end[0] == NOT_FORKED:
                raise OSError(self._end[1], os.strerror(self._end[1]))
            raise ConnectionResetError(errno.ECONNRESET, "its guard ended")

    def fileno(self) -> int:
        return self._channel.fileno()

    def receive(self) -> bool:
        """Read what the guard and its starter have sent. Returns False when the guard has ended."""
        chunk = b""
        # If the guard was killed, the kernel may report a reset.
        with contextlib.suppress(ConnectionResetError):
            chunk = self._channel.recv(CHUNK_BYTES)
        self._received += chunk
        return bool(chunk)

    @property
    def _lines(self) -> list[bytes]:
        """The complete lines of the guard: its process id and the report."""
        return self._received.partition(END_MARK)[0].split(b"\n")[:-1]

    @property
    def _end(self) -> tuple[bytes, int] | None:
        """What the starter has sent last: `EXITED` with the exit status, or `NOT_FORKED` with the error's number."""
        kind, _, number = self._received.partition(END_MARK)[2].partition(b" ")
        return (kind, int(number)) if number.endswith(b"\n") else None

    @property
    def pid(self) -> int:
        return int(self._lines[0])

    @property
    def report(self) -> bytes | None:
        """The report, as JSON; None until the guard has sent it."""
        return next(iter(self._lines[1:2]), None)

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal; None until the guard has ended, or if nobody knows."""
        return self._end[1] if self._end is not None else None

    def end_input(self) -> None:
        """Let the guard end the command."""
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_WR)

    def wait(self, seconds: float) -> None:
        """Wait until the guard has ended. Raises `TimeoutError`."""
        deadline = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self, select.POLLIN)
        while self.returncode is None:
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise TimeoutError
            if not self.receive():
                return

    def kill(self) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        self._channel.close()


class GuardServer:
    """The process that forks guards. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._orders: socket.socket | None = None
        self._owner = 0
        """The process that started it. A process that was forked from that one starts its own."""

    def start_guard(
        self, run: str, attempt: int, spec: Mapping[str, Any], *, directory: Path, environment: Mapping[str, str]
    ) -> Guard:
        """Start a guard in the directory. Raises `OSError` if it can't be started."""
        order = json.dumps([run, attempt, spec, str(directory), dict(environment)]).encode()
        try:
            # A command can kill the process that forks guards, if it runs as the same account.
            with contextlib.suppress(ConnectionError):
                return self._start_guard(order)
            return self._start_guard(order)
        except TimeoutError:
            # It can also stop it. The next guard needs another one.
            self.kill()
            raise TimeoutError(errno.ETIMEDOUT, "its guard did not start in time") from None

    def _start_guard(self, order: bytes) -> Guard:
        channel, guards_end = socket.socketpair()
        guard = Guard(channel)
        try:
            with guards_end:
                self._send(guards_end)
            guard.start(order)
        except BaseException:
            guard.close()
            raise
        return guard

    def _send(self, guards_end: socket.socket) -> None:
        with self._lock:
            if self._owner != os.getpid() or self._process is None or self._process.poll() is not None:
                self._start()
            assert self._orders is not None
            socket.send_fds(self._orders, [b"g"], [guards_end.fileno()])

    def _start(self) -> None:
        orders, servers_end = socket.socketpair()
        # Orders are small, so one that has to wait means that the process hangs.
        orders.settimeout(START_SECONDS)
        try:
            with servers_end:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(GUARD), UNUSED_ARGUMENT],
                    cwd="/",
                    env={},
                    stdin=servers_end.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    # An interrupt from the keyboard must reach only the service, which then stops its commands.
                    start_new_session=True,
                )
        except BaseException:
            orders.close()
            raise
        if self._orders is not None:
            self._orders.close()
        self._orders, self._owner = orders, os.getpid()

    def kill(self) -> None:
        """End the process. Guards that run continue without it."""
        with self._lock:
            if self._process is not None and self._orders is not None and self._owner == os.getpid():
                self._orders.close()
                self._process.kill()
                # A process that waits for a broken disk doesn't end.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(KILL_SECONDS)
                self._process = None


guards: Final = GuardServer()
atexit.register(guards.kill)
