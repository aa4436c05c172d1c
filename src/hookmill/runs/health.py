"""Whether this host can perform runs: after a fault of it, this worker claims none until a test write succeeds."""

import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hookmill.domain.errors import HookmillError
from hookmill.runs.package import make_packages_directory
from hookmill.runs.runner import HostFault, reason_of
from hookmill.store.directories import PROBE_PREFIX, remove_directory

PROBE_SECONDS: Final = 1.0
"""Between two test writes, and between a fault and the first one."""
PROBE_SECONDS_MAX: Final = 30.0
"""Where test writes succeed and runs still don't, the first one comes later each time, up to this."""
PROBE_FILES: Final = 8
PROBE_FILE_BYTES: Final = 131_072
"""Together more files and bytes than any package has: what has room for these has room for a package."""
LOG_AGAIN_SECONDS: Final = 60.0
"""A fault that comes and goes is logged this often."""


class HostHealth:
    """Shared by the thread that claims runs, which asks, and by those that perform them, which report."""

    def __init__(
        self,
        packages: Path,
        *,
        failed: Callable[[str, BaseException], None],
        recovered: Callable[[str, str], None],
    ) -> None:
        self._packages = packages
        self._failed = failed
        self._recovered = recovered
        self._lock = threading.Lock()
        self._is_faulty = False
        self._wait_seconds = PROBE_SECONDS
        self._has_performed = True
        self._probe_at = 0.0
        self._logged = ("", 0.0)
        self._was_logged = False

    def check(self) -> None:
        """Probe now, as a start does."""
        try:
            probe(self._packages)
        except (OSError, MemoryError) as error:
            self.report_fault(_not_writable(self._packages, error))

    def may_claim(self) -> bool:
        """False after a fault, until a probe succeeds. Probes when one is due, so it may take a while."""
        with self._lock:
            if not self._is_faulty:
                return True
            if time.monotonic() < self._probe_at:
                return False
        try:
            probe(self._packages)
        except (OSError, MemoryError):
            with self._lock:
                self._probe_at = time.monotonic() + PROBE_SECONDS
            return False
        with self._lock:
            self._is_faulty = False
            was_logged = self._was_logged
        if was_logged:
            self._recovered("runs", f"A test write in {self._packages} succeeded: this worker claims runs again.")
        return True

    def report_fault(self, fault: HostFault) -> None:
        with self._lock:
            if self._is_faulty:
                return
            self._is_faulty = True
            self._wait_seconds = (
                PROBE_SECONDS if self._has_performed else min(2 * self._wait_seconds, PROBE_SECONDS_MAX)
            )
            self._has_performed = False
            now = time.monotonic()
            self._probe_at = now + self._wait_seconds
            logged, logged_at = self._logged
            self._was_logged = str(fault) != logged or now - logged_at > LOG_AGAIN_SECONDS
            if self._was_logged:
                self._logged = (str(fault), now)
            was_logged = self._was_logged
        if was_logged:
            self._failed("runs", WaitingForHost(f"{fault} This worker claims no runs until a test write succeeds."))

    def report_performed(self) -> None:
        with self._lock:
            self._has_performed = True


class WaitingForHost(HookmillError):
    """This worker claims no runs for now."""


def probe(packages: Path) -> None:
    """Write as much as a package can have, and remove it again. Raises `OSError` when the disk refuses."""
    make_packages_directory(packages)
    place = Path(tempfile.mkdtemp(prefix=PROBE_PREFIX, dir=packages))
    try:
        for number in range(PROBE_FILES):
            with (place / str(number)).open("wb") as file:
                # Zeros take no space on a disk that compresses.
                file.write(os.urandom(PROBE_FILE_BYTES))
                file.flush()
                os.fsync(file.fileno())
    finally:
        remove_directory(place)


def _not_writable(packages: Path, error: OSError | MemoryError) -> HostFault:
    return HostFault(f"Runs can't be performed, as {packages} can't be written to: {reason_of(error)}. {WHAT_TO_DO}")


WHAT_TO_DO: Final = "Free disk space or inodes, or give the service's account the right to write there."
