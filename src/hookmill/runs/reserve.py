"""Ends the run that uses the most of this host when the host's reserve is touched."""

import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from hookmill.domain.errors import HookmillError, ReportFailure
from hookmill.sandbox.cgroup import memory_usage
from hookmill.sandbox.disk import deleted_bytes, disk_use
from hookmill.sandbox.memory import memory_bytes
from hookmill.sandbox.reserve import SIZE_MIN, HostReserve, Resource, Shortage, amount_text

WATCH_SECONDS: Final = 0.025
"""The time between two checks while commands run. A command can write a gigabyte in a second."""
IDLE_SECONDS: Final = 1.0
"""The same while none runs."""
PAUSE_SECONDS: Final = 5.0
"""The time until commands are measured again if none of them was the reason for a shortage."""
GROWTH_SHARE: Final = 8
"""If so large a part of the reserve is used after a measurement, the next one does not wait."""


@dataclass(eq=False, slots=True, kw_only=True)
class WatchedCommand:
    """A command that runs on this host, with everything that it uses."""

    directories: Sequence[str] = ()
    """The directories that it alone changes."""
    shared_directories: Sequence[str] = ()
    """Directories that other commands change, too."""
    cgroup: str | None = None
    """The directory of the cgroup that counts its memory; None: its processes are measured."""
    processes: Callable[[], Collection[int]] = tuple
    """The processes of the command. All of them are killed if it is ended."""
    started_at_ns: int = field(default_factory=time.time_ns)
    reason_of_end: str | None = None
    """Why it was ended, for people; None: it was not."""

    def use_of(self, resource: Resource) -> int:
        if resource is Resource.MEMORY:
            used = memory_usage(self.cgroup) if self.cgroup is not None else None
            return memory_bytes(self.processes(), 0) if used is None else used
        own = disk_use(self.directories, repairs=True)
        shared = disk_use(self.shared_directories, changed_since_ns=self.started_at_ns)
        if resource is Resource.INODES:
            return own.files + shared.files
        deleted = sum(deleted_bytes(self.processes(), directory) for directory in self.directories[:1])
        return own.bytes + shared.bytes + deleted

    def send(self, number: signal.Signals) -> None:
        for process in self.processes():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, number)


class ReserveTouched(HookmillError):
    """The host has less disk space, inodes or memory than its reserve."""


class ReserveWatch:
    """A thread that checks the reserve, and ends commands. Commands are only registered until `start`."""

    def __init__(
        self,
        reserve: HostReserve,
        *,
        report_failure: ReportFailure = lambda _component, _error: None,
        report_recovery: Callable[[str, str], None] = lambda _component, _what: None,
    ) -> None:
        self._reserve = reserve
        self._report_failure = report_failure
        self._report_recovery = report_recovery
        self._commands: set[WatchedCommand] = set()
        self._lock = threading.Lock()
        self._wakeup = threading.Event()
        self._stop = False
        self._thread = threading.Thread(target=self._run, name="reserve", daemon=True)
        self._measure_at = 0.0
        self._measured_free = 0
        """What was free when commands were measured."""
        self.shortage: Shortage | None = None
        """The latest finding."""

    def start(self) -> None:
        self.check()
        self._thread.start()

    def close(self) -> None:
        self._stop = True
        self._wakeup.set()
        self._thread.join(5.0)

    @contextmanager
    def watching(self, command: WatchedCommand) -> Iterator[WatchedCommand]:
        """Watch the command until the end of the context. It must then have no processes, and few files."""
        with self._lock:
            self._commands.add(command)
        self._wakeup.set()
        try:
            yield command
        finally:
            with self._lock:
                self._commands.discard(command)

    def check_at_end(self, command: WatchedCommand) -> None:
        """Give a command whose processes have ended a reason if the host lacks its reserve because of what it leaves.

        It may have ended because the disk was full, before the thread noticed.
        """
        if command.reason_of_end is None and (shortage := self._reserve.shortage()) is not None:
            with self._lock:
                running = [other for other in self._commands if other.reason_of_end is None]
            self._choose(shortage, running, only=command)

    def check(self) -> None:
        """Check the reserve, and end a command if it is touched. The thread calls this."""
        had_shortage, self.shortage = self.shortage is not None, self._reserve.shortage()
        for command in tuple(self._commands):
            if command.reason_of_end is not None:
                # It may have started a process while it was stopped.
                command.send(signal.SIGKILL)
        if self.shortage is not None:
            self._end_largest(self.shortage)
            if not had_shortage:
                self._report_failure(
                    "runs", ReserveTouched(f"{self._text_of(self.shortage)} Until it has, no run starts.")
                )
        elif had_shortage:
            self._report_recovery("runs", "This host has its reserve of disk space and memory again: runs start.")

    def _run(self) -> None:
        while not self._stop:
            try:
                self.check()
            except Exception as error:
                self._report_failure("runs", error)
            self._wakeup.wait(WATCH_SECONDS if self._commands else IDLE_SECONDS)
            self._wakeup.clear()

    def _end_largest(self, shortage: Shortage) -> None:
        with self._lock:
            commands = list(self._commands)
        running = [command for command in commands if command.reason_of_end is None]
        if not running:
            return
        # The files of a command that was ended are being removed, or nothing was large enough.
        is_waiting = len(running) < len(commands) or time.monotonic() < self._measure_at
        if is_waiting and self._measured_free - shortage.free < shortage.reserve // GROWTH_SHARE:
            return
        self._measured_free = shortage.free
        # They must not go on while they are measured.
        for command in running:
            command.send(signal.SIGSTOP)
        try:
            if (largest := self._choose(shortage, running)) is not None:
                largest.send(signal.SIGKILL)
            else:
                self._measure_at = time.monotonic() + PAUSE_SECONDS
        finally:
            for command in running:
                command.send(signal.SIGCONT)

    def _choose(
        self, shortage: Shortage, commands: Collection[WatchedCommand], *, only: WatchedCommand | None = None
    ) -> WatchedCommand | None:
        """The command that uses the most, with its reason of end. None if it uses little, or is not `only`."""
        resource = shortage.resource
        use, largest = max(((command.use_of(resource), command) for command in commands), key=lambda pair: pair[0])
        if use < SIZE_MIN[resource] or (only is not None and largest is not only):
            return None
        largest.reason_of_end = (
            f"The run was ended because it used the most {resource} of this host ({amount_text(resource, use)}). "
            f"{self._text_of(shortage)}"
        )
        return largest

    def _text_of(self, shortage: Shortage) -> str:
        place = "This host" if shortage.resource is Resource.MEMORY else f"The disk of {self._reserve.directory}"
        return f"{place} had {shortage}."
