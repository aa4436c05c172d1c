"""Uploads files of runs to the object store, and removes objects that nobody needs, in a thread of a worker.

A run never waits for the object store. When its command has ended, `file_writer` stores a row for each file, with the
key of an object that does not exist yet. This thread uploads the files of such rows whenever the object store works.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hookmill.domain.errors import ObjectStoreUnavailable, ReportFailure
from hookmill.domain.ids import RunKey
from hookmill.runs.package import PackagesOnHost, read_file
from hookmill.store.database import Database
from hookmill.store.objects import OBJECTS_PER_PAGE, ObjectStore
from hookmill.store.runs import files, reading
from hookmill.store.runs.files import FileToUpload

IDLE_SECONDS: Final = 15.0
"""The time between two passes if nothing wakes the thread."""
RETRY_SECONDS_MIN: Final = 2.0
RETRY_SECONDS_MAX: Final = 120.0
"""After a failed pass, the time to the next one doubles from the minimum to the maximum."""
FILES_PER_PAGE: Final = 100
FAILURES_PER_PASS_MAX: Final = 3
"""After this many failed uploads, the pass ends. The next one begins with the files after them, so that files which
the object store refuses don't keep others from being uploaded."""
SWEEP_SECONDS: Final = 86_400.0
"""The time between two searches for objects without a row."""
SWEEP_RETRY_SECONDS: Final = 300.0
SWEEP_PAGE_SECONDS: Final = 5.0
"""The time between two pages of such a search."""
ORPHANED_AFTER_US: Final = 86_400_000_000
"""The age at which an object without a row is removed. It exceeds every difference between clocks."""


class Uploads:
    """The thread. `start` starts it. Tests call `run_pass` and `sweep_page` instead."""

    def __init__(
        self,
        database: Database,
        objects: ObjectStore,
        *,
        host: str,
        packages: Path,
        clock: Callable[[], int],
        report_failure: ReportFailure,
        report_recovery: Callable[[str, str], None],
    ) -> None:
        """`clock` returns microseconds since 1970."""
        self._database = database
        self._objects = objects
        self._host = host
        self._packages = packages
        self._clock = clock
        self._report_failure = report_failure
        self._report_recovery = report_recovery
        self._wakeup = threading.Event()
        self._stop = threading.Event()
        self._has_failed = False
        self._resume_after: tuple[RunKey, str] | None = None
        """The last file of the previous pass, if it ended early."""
        self._has_used_store = False
        """Whether the object store has done what the present pass requested."""
        self._thread = threading.Thread(target=self._run, name="run-uploads", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._wakeup.set()

    def close(self, seconds: float) -> None:
        """Stop the thread. An upload that takes longer than `seconds` ends with the process, and is repeated later."""
        self._stop.set()
        self._wakeup.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        retry_seconds = 0.0
        next_sweep_at = time.monotonic()
        sweep_after: str | None = None
        while not self._stop.is_set():
            self._wakeup.clear()
            is_complete = self.run_pass()
            has_used_store = self._has_used_store
            if time.monotonic() >= next_sweep_at:
                is_swept, sweep_after = self._sweep(sweep_after)
                pause_seconds = SWEEP_SECONDS if sweep_after is None else SWEEP_PAGE_SECONDS
                next_sweep_at = time.monotonic() + (pause_seconds if is_swept else SWEEP_RETRY_SECONDS)
            if is_complete or has_used_store:
                retry_seconds = 0.0
            if is_complete:
                self._wakeup.wait(min(IDLE_SECONDS, max(next_sweep_at - time.monotonic(), 0.1)))
            else:
                # Ended runs don't shorten this pause.
                retry_seconds = min(max(2 * retry_seconds, RETRY_SECONDS_MIN), RETRY_SECONDS_MAX)
                self._stop.wait(retry_seconds)

    def run_pass(self) -> bool:
        """Upload this host's files, and remove objects that nobody needs. Returns whether nothing failed."""
        self._has_used_store = False
        failure: Exception | None = None
        for step in (self._upload_files, self._remove_objects):
            try:
                step()
            except Exception as error:
                failure = failure or error
        self._report(failure)
        return failure is None

    def _sweep(self, after: str | None) -> tuple[bool, str | None]:
        """One page of the search for objects without a row. Returns whether it succeeded, and where the next begins."""
        try:
            after = self.sweep_page(after)
        except Exception as error:
            self._report(error)
            return False, after
        self._report(None)
        return True, after

    def _report(self, failure: Exception | None) -> None:
        """Report the first failure, and the first success after it. A pass without a request is no success."""
        if failure is not None and not self._has_failed:
            self._has_failed = True
            self._report_failure("run files", failure)
        elif failure is None and self._has_failed and self._has_used_store:
            self._has_failed = False
            self._report_recovery("run files", "The object store works again: files of runs are uploaded.")

    def _upload_files(self) -> None:
        """Upload the files of this host. After a failure of one file, others are uploaded before it is raised."""
        failures: dict[tuple[RunKey, str], ObjectStoreUnavailable | OSError] = {}
        last = self._resume_after
        while not self._stop.is_set():
            with self._database.read() as tx:
                page = files.files_to_upload(tx, self._host, last, FILES_PER_PAGE)
            for file in page:
                if self._stop.is_set():
                    return
                last = file.run, file.name
                try:
                    self.upload(file)
                except (ObjectStoreUnavailable, OSError) as error:
                    failures[last] = error
                else:
                    # It failed before, in this pass.
                    failures.pop(last, None)
                if len(failures) == FAILURES_PER_PASS_MAX:
                    self._resume_after = last
                    break
            is_last_page = len(page) < FILES_PER_PAGE
            if len(failures) == FAILURES_PER_PASS_MAX or (is_last_page and self._resume_after is None):
                break
            if is_last_page:
                # The previous pass ended early, so this one began in the middle. Now it takes the files before that.
                last = self._resume_after = None
        if failures:
            raise next(iter(failures.values()))

    def upload(self, file: FileToUpload) -> None:
        """Upload the file if this host has its package.

        Raises `ObjectStoreUnavailable` and `StoreUnavailable`, and `OSError` for a fault of the host.
        """
        with self._database.read() as tx:
            run = reading.run_by_key(tx, file.run)
        if run is None or not PackagesOnHost(self._packages).has_package(run):
            # Retention removes the row, or another worker with this host's name has the package.
            return
        content = None
        if run.attempt == file.attempt:
            content = read_file(self._packages, run.id, file.name, file.size)
        if content is not None and len(content) < file.size:
            # The file no longer has the recorded size.
            content = None
        if content is not None:
            self._objects.put(file.object_key, content)
            self._has_used_store = True
        with self._database.write() as tx:
            if content is None:
                files.give_up_upload(tx, file)
            elif not files.record_upload(tx, file):
                # The object may have been removed before it was uploaded, so it is noted again.
                files.note_objects_to_remove(tx, [file.object_key])

    def _remove_objects(self) -> None:
        while not self._stop.is_set():
            with self._database.read() as tx:
                keys = files.objects_to_remove(tx, OBJECTS_PER_PAGE)
                own_keys = files.own_objects(tx, keys)
            if not keys:
                return
            if own_keys:
                self._objects.remove(own_keys)
                self._has_used_store = True
            with self._database.write() as tx:
                files.forget_objects_to_remove(tx, keys)

    def sweep_page(self, after: str | None) -> str | None:
        """Remove old objects that have no row, of one page of objects. Returns the page's last key; None at the end.

        A worker leaves such an object if it was frozen during an upload, and killed before it noticed that the run had
        been removed. Raises `ObjectStoreUnavailable`, `StoreUnavailable`.
        """
        with self._database.read() as tx:
            directory = files.directory_of_objects(tx, self._objects)
        if directory is None:
            return None
        listed = self._objects.list_page(directory, after)
        self._has_used_store = True
        removable_before = self._clock() - ORPHANED_AFTER_US
        with self._database.read() as tx:
            orphans = files.keys_without_row(tx, [each.key for each in listed if each.changed_at < removable_before])
        self._objects.remove(orphans)
        return listed[-1].key if len(listed) == OBJECTS_PER_PAGE else None
