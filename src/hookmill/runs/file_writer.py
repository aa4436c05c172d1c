"""Stores files of runs where all hosts reach them: the output while a command runs, all files when it has ended.

A fault while files are stored never fails a run. The files are then on this host only.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hookmill.domain.errors import ReportFailure, StoreUnavailable
from hookmill.domain.run import Run
from hookmill.domain.run_files import OUTPUT_END_BYTES, OUTPUT_FILE, RunFileLimits, prepared_files
from hookmill.runs.package import list_files, open_file, raise_host_fault, read_file, read_tail
from hookmill.store.database import Database
from hookmill.store.runs.executors import ExecutorId
from hookmill.store.runs.files import ClaimedAttempt, FileToStore, RunFileStorage

LIVE_SECONDS: Final = 1.0
"""The minimum time between two stores of a run's output while its command runs."""
LIVE_STORES_PER_SECOND: Final = 20
"""The maximum for all runs of this process. With more runs, each run's output is stored less often."""
ATTEMPTS_TO_STORE: Final = 3
"""How many times the service tries to store the files of a run while the database is available."""
FIRST_TRANSACTION_BYTES: Final = 1_048_576
"""The first transaction stores the list of files, and contents up to this size. Further contents follow one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFileSettings:
    """Where files of runs are stored, and how much of them."""

    storage: RunFileStorage = field(default_factory=RunFileStorage)
    limits: RunFileLimits = field(default_factory=RunFileLimits)
    wake_uploads: Callable[[], None] | None = None
    """Called when files wait for their upload to the object store."""


class RunFileWriter:
    """Stores files of the runs that this process performs. Threads may share it."""

    def __init__(
        self,
        database: Database,
        settings: RunFileSettings,
        *,
        executor: ExecutorId,
        host: str,
        packages: Path,
        should_stop: Callable[[], bool],
        report_failure: ReportFailure,
    ) -> None:
        """`should_stop`: whether the service stops, so that no time is left for large contents."""
        self._database = database
        self._settings = settings
        self._executor = executor
        self._host = host
        self._packages = packages
        self._should_stop = should_stop
        self._report_failure = report_failure
        self._lock = threading.Lock()
        self._next_live_store_at = 0.0
        """Seconds of the monotonic clock."""

    def live_output(self, run: Run) -> "LiveOutput":
        return LiveOutput(self, run)

    def store_files(self, run: Run, payload: bytes | None, wait_for_database: Callable[[], object]) -> None:
        """Store the files of an attempt whose command has ended. `wait_for_database` waits until it is available.

        Raises only what `wait_for_database` raises. Other errors are reported.
        """
        for attempts_left in reversed(range(ATTEMPTS_TO_STORE)):
            try:
                self._store_files(run, payload)
                return
            except Exception as error:
                if not isinstance(error, StoreUnavailable) or not attempts_left:
                    self._report_failure("runs", error)
                    return
            wait_for_database()

    def _store_files(self, run: Run, payload: bytes | None) -> None:
        storage = self._settings.storage
        files, large_files, has_more = self._files_to_store(run, payload)
        attempt = self._attempt_of(run)
        with self._database.write() as tx:
            is_current = storage.replace(tx, attempt, files, has_more=has_more)
        wake_uploads = self._settings.wake_uploads
        if is_current and wake_uploads is not None and any(file.is_to_upload for file in files):
            wake_uploads()
        # On SQLite, a short transaction for each file lets deliveries in between.
        for name, size in large_files:
            if not is_current or self._should_stop():
                return
            content = self._read(run, name, size)
            if content is not None:
                with self._database.write() as tx:
                    is_current = storage.add_content(tx, attempt, name, content)

    def _files_to_store(self, run: Run, payload: bytes | None) -> tuple[list[FileToStore], list[tuple[str, int]], bool]:
        """The files, the names and sizes of those whose content is stored later, and whether there are more files.

        Prepared files that the command left unchanged are omitted, because other hosts derive them. In a run with a
        workspace, the envelope has commits that other hosts don't know, so it is not omitted.
        """
        limits, is_uploading = self._settings.limits, self._settings.storage.is_uploading
        listed_files, has_more = list_files(self._packages, run.id)
        sizes = dict(listed_files)
        prepared = dict(prepared_files(run, payload))
        # The command has removed these.
        files = [FileToStore(name=name, size=None) for name in prepared if name not in sizes]
        large_files = []
        files_left, bytes_left = limits.files_max, limits.run_bytes_max
        first_bytes_left = FIRST_TRANSACTION_BYTES
        # The output comes first: if not everything fits, people need the output most.
        for name in sorted(sizes, key=lambda name: (name != OUTPUT_FILE, name)):
            size = sizes[name]
            if name in prepared and size == len(prepared[name]) and self._read(run, name, size) == prepared[name]:
                continue
            content = None
            is_to_upload = False
            if files_left > 0 and size <= min(limits.file_bytes_max, bytes_left):
                files_left, bytes_left = files_left - 1, bytes_left - size
                # The row has a short output as a whole, and an empty file needs no object.
                if is_uploading and size > (OUTPUT_END_BYTES if name == OUTPUT_FILE else 0):
                    is_to_upload = True
                elif size <= first_bytes_left:
                    first_bytes_left -= size
                    content = self._read(run, name, size)
                else:
                    large_files.append((name, size))
            if content is not None:
                files.append(FileToStore(name=name, size=len(content), content=content))
            elif name == OUTPUT_FILE and (output_end := self._output_end(run)) is not None:
                # With an object, the row has the end nevertheless, so that pages need no request to the object store.
                files.append(
                    FileToStore(name=name, size=output_end[1], content=output_end[0], is_to_upload=is_to_upload)
                )
            else:
                files.append(FileToStore(name=name, size=size, is_to_upload=is_to_upload))
        return files, large_files, has_more

    def store_output(self, run: Run, stored_size: int) -> int:
        """Store the end of the output if the output has grown beyond `stored_size` bytes, and return its new size.

        Raises `StoreUnavailable`, and other errors of the storage.
        """
        content, size = self._output_end(run) or (b"", 0)
        if size <= stored_size or not self._may_store_output_now():
            return stored_size
        with self._database.write() as tx:
            self._settings.storage.store_output(tx, self._attempt_of(run), content, size)
        return size

    def report_failure(self, error: BaseException) -> None:
        self._report_failure("runs", error)

    def _may_store_output_now(self) -> bool:
        now = time.monotonic()
        with self._lock:
            if now < self._next_live_store_at:
                return False
            self._next_live_store_at = now + 1 / LIVE_STORES_PER_SECOND
            return True

    def _attempt_of(self, run: Run) -> ClaimedAttempt:
        return ClaimedAttempt(run=run.id, attempt=run.attempt, executor=self._executor, host=self._host)

    def _output_end(self, run: Run) -> tuple[bytes, int] | None:
        """The end of the output, and the size of the whole. None if there is no output file. Raises `OSError`."""
        try:
            end, size = read_tail(open_file(self._packages, run.id, OUTPUT_FILE), OUTPUT_END_BYTES)
        except OSError as error:
            raise_host_fault(error)
            return None
        # The file may grow while it is read.
        return end, max(size, len(end))

    def _read(self, run: Run, name: str, size: int) -> bytes | None:
        # What this host can't read now must not be recorded as removed, so a fault of the host is raised.
        return read_file(self._packages, run.id, name, size)


class LiveOutput:
    """Stores the output of one run while its command runs."""

    def __init__(self, writer: RunFileWriter, run: Run) -> None:
        self._writer = writer
        self._run = run
        self._stored_size = 0
        self._next_store_at = 0.0
        """Seconds of the monotonic clock."""
        self._has_failed = False

    def store_if_grown(self) -> None:
        """Store the end of the output if it has grown, at most every `LIVE_SECONDS`. Raises nothing."""
        now = time.monotonic()
        if now < self._next_store_at:
            return
        try:
            stored_size = self._writer.store_output(self._run, self._stored_size)
        except StoreUnavailable:
            return
        except Exception as error:
            # The next call tries again, but reports nothing.
            if not self._has_failed:
                self._has_failed = True
                self._writer.report_failure(error)
            return
        if stored_size != self._stored_size:
            self._stored_size = stored_size
            self._next_store_at = now + LIVE_SECONDS
