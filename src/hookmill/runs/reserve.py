"""Ends the run that uses the most of this host when the host's reserve is touched."""

import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from hookmill.domain.errors import HookmillError, ReportFailure
from hookmill.runs.runner import HostFault
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
FREED_SECONDS: Final = 2.0
"""The time that the kernel gets to free what an ended command used, until the command is found not to be to blame."""
GROWTH_SHARE: Final = 8
"""If so large a part of the reserve above the floor is used after a measurement, the next one does not wait."""


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
    free_at_start: Mapping[Resource, int] = field(default_factory=dict)
    """What the host had free."""
    end: "EndOfCommand | None" = None
    """Why it was ended; None: it was not."""

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


@dataclass(frozen=True, slots=True)
class EndOfCommand:
    """What was known when a command was ended."""

    shortage: Shortage
    used: int
    """What the command used, as far as that can be measured."""
    unexplained: int
    """What the host has lost since the command began, and no command is known to use."""
    is_explained: bool
    """Whether that is little."""
    blame_min: int
    """What a command uses that is to blame, at least."""

    def is_to_blame(self, freed: int = 0) -> bool:
        """Whether the command used much. `freed`: what the host got back at the end of its processes."""
        is_explained = self.is_explained or 2 * freed >= self.unexplained
        return is_explained and self.used + freed >= self.blame_min


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
        command.free_at_start = self._reserve.free()
        with self._lock:
            self._commands.add(command)
        self._wakeup.set()
        try:
            yield command
        finally:
            with self._lock:
                self._commands.discard(command)

    def fault_of(self, command: WatchedCommand) -> str | HostFault | None:
        """Why a command whose processes have ended was ended, or has failed, because the host lacks its reserve.

        It may have failed because the disk was full, before the thread noticed. A `HostFault`: it was suspected, but is
        not to blame. None: it was not ended, and is not to blame.
        """
        if command.end is None and (shortage := self._reserve.shortage()) is not None:
            # The thread may end this command now, too.
            others = [other for other in self._running() if other is not command and other.end is None]
            ends = self._ends(shortage, [command, *others])
            if _largest(ends) is command and ends[command].is_to_blame():
                command.end = ends[command]
        if (end := command.end) is None:
            return None
        resource, text = end.shortage.resource, self._text_of(end.shortage)
        freed = 0
        # The kernel may free what was in use a moment after the end of the processes.
        deadline = time.monotonic() + FREED_SECONDS
        while not end.is_to_blame(freed):
            if time.monotonic() > deadline:
                return HostFault(
                    f"A run was ended because something that can't be measured uses the {resource} of this host. "
                    f"It was not this run, so it is repeated. {text}",
                    counts_as_attempt=True,
                )
            time.sleep(WATCH_SECONDS)
            freed = max(0, self._reserve.free().get(resource, 0) - end.shortage.free)
        used = amount_text(resource, end.used + freed)
        return f"The run was ended because it used the most {resource} of this host ({used}). {text}"

    def check(self) -> None:
        """Check the reserve, and end a command if it is touched. The thread calls this."""
        had_shortage, self.shortage = self.shortage is not None, self._reserve.shortage()
        for command in self._running():
            if command.end is not None:
                # It may have started a process while it was stopped.
                command.send(signal.SIGKILL)
        if self.shortage is not None:
            self._end_one(self.shortage)
            if not had_shortage:
                self._report_failure(
                    "runs", ReserveTouched(f"{self._text_of(self.shortage)} Until it has, no run starts.")
                )
        elif had_shortage:
            self._continue_commands()
            self._report_recovery("runs", "This host has its reserve of disk space and memory again: runs start.")

    def _run(self) -> None:
        while not self._stop:
            try:
                self.check()
            except Exception as error:
                self._continue_commands()
                self._report_failure("runs", error)
            self._wakeup.wait(WATCH_SECONDS if self._commands else IDLE_SECONDS)
            self._wakeup.clear()
        self._continue_commands()

    def _running(self) -> list[WatchedCommand]:
        with self._lock:
            return list(self._commands)

    def _continue_commands(self) -> None:
        for command in self._running():
            command.send(signal.SIGCONT)

    def _end_one(self, shortage: Shortage) -> None:
        commands = self._running()
        running = [command for command in commands if command.end is None]
        if not running:
            return
        # The files of a command that was ended are being removed, or nothing was to blame.
        is_waiting = len(running) < len(commands) or time.monotonic() < self._measure_at
        step = (shortage.reserve - shortage.floor) // GROWTH_SHARE
        if is_waiting and self._measured_free - shortage.free < step:
            return
        # They must not go on while they are measured.
        for command in running:
            command.send(signal.SIGSTOP)
        shortage = self._reserve.shortage() or shortage
        self._measured_free = shortage.free
        ends = self._ends(shortage, running)
        chosen = _largest(ends)
        if not ends[chosen].is_to_blame():
            suspects = [command for command in running if shortage.is_urgent and not ends[command].is_explained]
            if not suspects:
                self._measure_at = time.monotonic() + PAUSE_SECONDS
                self._continue_commands()
                return
            # Its end loses the least work.
            chosen = max(suspects, key=lambda command: command.started_at_ns)
        self._measure_at = 0.0
        chosen.end = ends[chosen]
        chosen.send(signal.SIGKILL)
        # If it is urgent, the others wait until it is known whether this is enough.
        if not shortage.is_urgent:
            self._continue_commands()

    def _ends(self, shortage: Shortage, commands: Collection[WatchedCommand]) -> Mapping[WatchedCommand, EndOfCommand]:
        """The commands, each with what is known if it is ended now."""
        resource, size_min = shortage.resource, SIZE_MIN[shortage.resource]
        used = {command: command.use_of(resource) for command in commands}
        used_by_all = sum(used.values())
        lost = {command: command.free_at_start.get(resource, 0) - shortage.free for command in commands}

        def is_explained(lost: int) -> bool:
            return lost - used_by_all < max(size_min, lost // 2)

        # If something else uses much, the one to blame is the one without which the host would have its reserve.
        is_all_explained = is_explained(max(lost.values()))
        blame_min = size_min if is_all_explained else max(size_min, shortage.reserve - shortage.free)
        return {
            command: EndOfCommand(
                shortage=shortage,
                used=used[command],
                unexplained=lost[command] - used_by_all,
                is_explained=is_explained(lost[command]),
                blame_min=blame_min,
            )
            for command in commands
        }

    def _text_of(self, shortage: Shortage) -> str:
        place = "This host" if shortage.resource is Resource.MEMORY else f"The disk of {self._reserve.directory}"
        return f"{place} had {shortage}."


def _largest(ends: Mapping[WatchedCommand, EndOfCommand]) -> WatchedCommand:
    """The command that uses the most, as far as that can be measured."""
    return max(ends, key=lambda command: ends[command].used)
