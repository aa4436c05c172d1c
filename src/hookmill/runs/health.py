"""Tracks whether this host can perform runs, in general and with each runner.

After a fault of the host, this worker claims no runs until a test write succeeds. After a fault of one runner, it
claims no runs for that runner for a while, and then tries again.
"""

import os
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hookmill.domain.errors import HookmillError, ReportFailure
from hookmill.runs.package import make_packages_directory
from hookmill.runs.runner import HostFault, reason_of
from hookmill.store.directories import PROBE_PREFIX, remove_directory

PROBE_SECONDS: Final = 1.0
"""The time between two test writes, and the pause after a first fault."""
PROBE_SECONDS_MAX: Final = 30.0
"""The pause doubles with each further fault, up to this value, until a run is performed."""
PROBE_FILES: Final = 12
PROBE_FILE_BYTES: Final = 131_072
"""A disk with room for the files of a test write has room for a package, which has fewer files and bytes."""
LOG_AGAIN_SECONDS: Final = 60.0
"""The minimum time between two log entries for a recurring fault."""


@dataclass(slots=True)
class _Pause:
    """The pause between a fault, of the host or of one runner, and the next claim."""

    is_on: bool = False
    until: float = 0.0
    """Seconds of the monotonic clock."""
    seconds: float = PROBE_SECONDS
    """The length of the latest pause."""
    has_performed_since_fault: bool = True
    last_logged: tuple[str, float] = ("", 0.0)
    """The text of the last fault that was logged, and when."""
    is_logged: bool = False
    """Whether the last fault was logged, so that the recovery must be logged, too."""

    def begin(self, fault: str) -> None:
        now = time.monotonic()
        self.seconds = PROBE_SECONDS if self.has_performed_since_fault else min(2 * self.seconds, PROBE_SECONDS_MAX)
        self.is_on, self.until, self.has_performed_since_fault = True, now + self.seconds, False
        logged_fault, logged_at = self.last_logged
        self.is_logged = fault != logged_fault or now - logged_at > LOG_AGAIN_SECONDS
        if self.is_logged:
            self.last_logged = (fault, now)


class HostHealth:
    """Whether this host can perform runs, in general and with each runner.

    Threads share this object: the thread that claims runs queries it, and threads that perform runs report to it.
    """

    def __init__(
        self,
        packages: Path,
        *,
        report_failure: ReportFailure,
        report_recovery: Callable[[str, str], None],
    ) -> None:
        self._packages = packages
        self._report_failure = report_failure
        self._report_recovery = report_recovery
        self._lock = threading.Lock()
        self._host_pause = _Pause()
        self._runner_pauses: defaultdict[str, _Pause] = defaultdict(_Pause)

    def probe_disk(self) -> None:
        """Write to the disk now, and report a fault if that fails. A worker calls this when it starts."""
        try:
            probe(self._packages)
        except (OSError, MemoryError) as error:
            reason = f"{self._packages} can't be written to: {reason_of(error)}"
            self.report_fault(HostFault(f"Runs can't be performed, as {reason}. {DISK_ADVICE}"))

    def may_claim(self) -> bool:
        """Whether this worker may claim runs: not after a fault of the host, until a test write succeeds.

        If a test write is due, this call does it.
        """
        with self._lock:
            if not self._host_pause.is_on:
                return True
            if time.monotonic() < self._host_pause.until:
                return False
        try:
            probe(self._packages)
        except (OSError, MemoryError):
            with self._lock:
                self._host_pause.until = time.monotonic() + PROBE_SECONDS
            return False
        with self._lock:
            self._host_pause.is_on = False
            is_logged = self._host_pause.is_logged
        if is_logged:
            self._report_recovery("runs", f"A test write in {self._packages} succeeded: this worker claims runs again.")
        return True

    def runners_at_fault(self) -> Collection[str]:
        """The names of the runners for which this worker claims no runs now."""
        now = time.monotonic()
        with self._lock:
            for pause in self._runner_pauses.values():
                if pause.is_on and now >= pause.until:
                    pause.is_on = False
            return frozenset(name for name, pause in self._runner_pauses.items() if pause.is_on)

    def report_fault(self, fault: HostFault) -> None:
        """Begin a pause for the runner, or for all runs if the fault is not of one runner.

        A fault during a pause does not extend it.
        """
        with self._lock:
            pause = self._host_pause if fault.runner is None else self._runner_pauses[fault.runner]
            if pause.is_on:
                return
            pause.begin(str(fault))
            is_logged = pause.is_logged
        if is_logged:
            paused_runs = (
                "runs until a test write succeeds"
                if fault.runner is None
                else f"run for the runner {fault.runner!r} for a while, and then tries again"
            )
            self._report_failure("runs", WaitingForHost(f"{fault} This worker claims no {paused_runs}."))

    def report_performed(self, runner: str) -> None:
        """Record that the runner performed a run, so that its faults are over."""
        with self._lock:
            self._host_pause.has_performed_since_fault = True
            if (pause := self._runner_pauses.get(runner)) is None:
                return
            pause.has_performed_since_fault = True
            # If a pause is on, another run has reported a fault since this run began, and nothing has recovered.
            has_recovered = pause.is_logged and not pause.is_on
            if has_recovered:
                pause.is_logged = False
        if has_recovered:
            self._report_recovery("runs", f"A run was performed with the runner {runner!r}: it works again.")


class WaitingForHost(HookmillError):
    """A pause after a fault of the host: this worker claims no runs, or none for one runner, until it recovers."""


def probe(packages: Path) -> None:
    """Write more than the largest package has, and remove it again. Raises `OSError` or `MemoryError`."""
    make_packages_directory(packages)
    directory = Path(tempfile.mkdtemp(prefix=PROBE_PREFIX, dir=packages))
    try:
        for number in range(PROBE_FILES):
            with (directory / str(number)).open("wb") as file:
                # Random bytes, because a file system with compression would store zeros without using space.
                file.write(os.urandom(PROBE_FILE_BYTES))
                file.flush()
                os.fsync(file.fileno())
    finally:
        remove_directory(directory)


DISK_ADVICE: Final = "Free disk space or inodes, or give the service's account the right to write there."
