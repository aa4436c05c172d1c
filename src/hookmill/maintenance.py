"""Background maintenance: retention, and the check for free disk space.

Retention removes old rows in passes of small transactions, so that deliveries don't wait for it.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hookmill.domain.errors import HookmillError, ReportFailure, reporting_once
from hookmill.domain.ids import run_key
from hookmill.domain.limits import IDEMPOTENT_ANSWERS_KEPT_HOURS, SESSION_HOURS, SESSION_IDLE_HOURS
from hookmill.domain.run import PACKAGE_RUNNER, Run
from hookmill.domain.run_files import WORKSPACE_DIRECTORY
from hookmill.metrics import RETENTION_PASS, RETENTION_ROWS, Metrics
from hookmill.sandbox.disk import DiskUse, disk_use
from hookmill.sandbox.reserve import FAR_RESERVES, FREE_INODES_MIN, NEAR_RESERVES, HostReserve, Resource, Shortage
from hookmill.store import (
    deliveries,
    dialect,
    idempotency,
    identity_segments,
    log_retention,
    metadata,
    notices,
    sessions,
)
from hookmill.store.database import Database, Transaction
from hookmill.store.directories import PROBE_PREFIX, UNREMOVABLE_PREFIX, remove_directory
from hookmill.store.runs import reading, removal
from hookmill.store.runs import retention as runs_retention
from hookmill.store.runs.files import has_files_to_upload

HOUR_US: Final = 3_600_000_000
DAY_US: Final = 24 * HOUR_US
CATCH_UP_FACTOR: Final = 24
"""After the clock has jumped ahead, the time of retention advances this many times as fast as real time, and by one
more hour in each pass. In all, it advances by 30 hours in each hour."""
CLOCK_AHEAD: Final = (
    "The clock is more than a day ahead of the last pass of retention. If the clock is wrong, correct it. If it is "
    "right, because the service was stopped for so long, do nothing: retention advances by 30 hours in each hour."
)
FIRST_PASS_SECONDS: Final = 5.0
"""The time between the start and the first pass of retention."""
RETENTION_SECONDS: Final = 600.0
"""The time between two passes. If a pass left old rows, the next one follows directly."""
SEGMENT_SECONDS_MIN: Final = 2.0
"""The shortest time between two checks whether a segment of the identities is full."""
SEGMENT_SECONDS_MAX: Final = 30.0
"""The longest time between these checks."""
BOUND_SECONDS: Final = 1.0
"""The shortest time between two checks whether all packages together need too much."""
BOUND_PAUSE_FACTOR: Final = 5
"""The pause after a check is at least this multiple of its duration."""
ROWS_PER_STEP: Final = 100
"""The rows that one transaction removes."""
IDENTITIES_PER_STEP: Final = 1_000
"""They are next to each other, so removing them takes less time than removing rows of the log."""
STEPS_PER_PASS: Final = 2_000
"""How many transactions of one pass may remove rows of the log."""
PAUSE_BETWEEN_STEPS_SECONDS: Final = 0.02
"""The shortest pause after a step."""
PAUSE_FACTOR_ON_SQLITE: Final = 15
"""The pause after a step is at least this multiple of the time for which the step held the write lock. So deliveries
take precedence."""
PAUSE_FACTOR_ON_POSTGRESQL: Final = 3
"""The same multiple of the time of a step on PostgreSQL, where deliveries don't wait for its locks."""
ABANDONED_AFTER_SECONDS: Final = 3_600.0
"""The age at which a draft or a probe file counts as abandoned. A worker needs only seconds to write one.

A draft is a package that is not complete yet. Its name begins with a dot."""
_MEGABYTE: Final = 1024 * 1024
_RETENTION_LOCK: Final = 0x73776570
"""The number of PostgreSQL's advisory lock for retention. Every version must use the same one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSpace:
    """The free space for a directory, and the space that deliveries need."""

    free_bytes: int
    free_bytes_min: int
    free_inodes: int | None
    """None if the file system has no inode table."""
    is_read_only: bool = False

    @property
    def has_room(self) -> bool:
        """Whether there is room for another delivery."""
        has_enough_inodes = self.free_inodes is None or self.free_inodes >= FREE_INODES_MIN
        return has_enough_inodes and self.free_bytes >= self.free_bytes_min and not self.is_read_only


def disk_space(directory: Path, free_bytes_min: int) -> DiskSpace:
    """Raises `OSError`."""
    disk = os.statvfs(directory)
    return DiskSpace(
        free_bytes=disk.f_bavail * disk.f_frsize,
        free_bytes_min=free_bytes_min,
        # Some file systems have no inode table and report zero inodes.
        free_inodes=disk.f_favail if disk.f_files else None,
        is_read_only=bool(disk.f_flag & os.ST_RDONLY),
    )


class NoRoomForDeliveries(HookmillError):
    """The data directory has too little space or too few inodes for deliveries, or they can't be read."""


class DiskGuard:
    """Whether the disk has room for another delivery. Each delivery calls it, so the result is cached for a second.

    `report_failure` is called once when there is no longer any room, and `report_recovery` when there is room again.
    """

    def __init__(
        self,
        directory: Path,
        free_bytes_min: int,
        *,
        report_failure: ReportFailure = lambda _component, _error: None,
        report_recovery: Callable[[str, str], None] = lambda _component, _what: None,
    ) -> None:
        self._directory = directory
        self._free_bytes_min = free_bytes_min
        self._report_failure = report_failure
        self._report_recovery = report_recovery
        self._checked_at = 0.0
        self._has_room = True
        self._lock = threading.Lock()

    def __call__(self) -> bool:
        # While one thread checks, others use the last result.
        if time.monotonic() - self._checked_at > 1.0 and self._lock.acquire(blocking=False):
            try:
                self._check()
            finally:
                self._lock.release()
        return self._has_room

    def _check(self) -> None:
        fault = self._fault()
        had_room, self._has_room = self._has_room, fault is None
        self._checked_at = time.monotonic()
        if fault is not None and had_room:
            self._report_failure("disk", NoRoomForDeliveries(f"Deliveries get a 503. {fault}"))
        elif fault is None and not had_room:
            self._report_recovery("disk", f"{self._directory} has enough free space: deliveries are accepted again.")

    def _fault(self) -> str | None:
        """Why there is no room, and what to do; None if there is room."""
        try:
            space = disk_space(self._directory, self._free_bytes_min)
        except OSError as error:
            return (
                f"The free space of {self._directory} can't be read: {error.strerror}. Make the directory accessible."
            )
        if space.has_room:
            return None
        if space.is_read_only:
            return (
                f"The disk of {self._directory} is mounted read-only. Check it for errors, and remount it read-write."
            )
        if space.free_bytes < space.free_bytes_min:
            return (
                f"The disk of {self._directory} has {space.free_bytes // _MEGABYTE:,} MB free, less than "
                f"free_space_min_mb ({space.free_bytes_min // _MEGABYTE:,} MB). Free disk space, move data_dir to a "
                "larger disk, or lower free_space_min_mb."
            )
        return (
            f"The disk of {self._directory} has {space.free_inodes or 0:,} free inodes, fewer than "
            f"{FREE_INODES_MIN:,}. Remove files from this disk, or move data_dir to another one."
        )


class PackagesNotRemoved(HookmillError):
    """Retention could not remove the files of some runs."""


class ClockAhead(HookmillError):
    """The clock is far ahead of the last pass of retention."""


def advance_retention_time(database: Database, now: int, elapsed: int) -> int:
    """Retention determines the age of rows from a stored time instead of the clock. Advance this time, and return it.

    `now` is the clock's time. It and the result are in microseconds since 1970; `elapsed` is the monotonic time since
    the last pass, in microseconds. The result is `now` unless the clock jumped ahead: the stored time advances by at
    most 24 times `elapsed` plus one hour. So a clock that is wrong for an hour does not remove all rows. After a pause
    of the service, retention catches up in less than a 24th of the pause.
    """
    with database.write() as tx:
        last = metadata.retention_clock(tx)
        effective_now = now if last is None else min(now, last + CATCH_UP_FACTOR * elapsed + HOUR_US)
        metadata.set_retention_clock(tx, effective_now)
    return effective_now


def keep_segments(database: Database, now: int) -> int:
    """Close the open segment of the identities if it is full, and complete the filters of closed ones.

    Returns how many identities the open segment has. `now` is in microseconds since 1970.
    """
    identities = identity_segments.close_full_segment(database, now)
    identity_segments.note_transactions(database)
    has_more = True
    while has_more:
        has_more = identity_segments.add_filter(database)
    return identities


class Maintenance:
    """Runs a pass of retention every `RETENTION_SECONDS` in a thread, keeps the identities in segments in another one,
    and all packages together within their bound in a third one, until `close`.

    `report_failure` is called for each pass that fails, and once for a problem that persists.
    """

    def __init__(
        self,
        database: Database,
        packages: Path,
        now_us: Callable[[], int],
        *,
        bound: "PackageBound | None" = None,
        metrics: Metrics | None = None,
        report_failure: ReportFailure = lambda _component, _error: None,
    ) -> None:
        metrics = metrics or Metrics()
        self._bound = bound
        self._removed_rows = metrics.number(RETENTION_ROWS)
        self._last_pass = metrics.number(RETENTION_PASS)
        self._database = database
        self._packages = packages
        self._now_us = now_us
        self._report_failure = report_failure
        self._report_once = reporting_once(report_failure)
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name="maintenance", daemon=True),
            threading.Thread(target=self._keep_segments, name="identity segments", daemon=True),
            threading.Thread(target=self._bound_packages, name="packages", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(5.0)

    def _run(self) -> None:
        seconds_to_next_pass = FIRST_PASS_SECONDS
        last_pass_at = time.monotonic()
        while not self._stop.wait(seconds_to_next_pass):
            seconds_to_next_pass = RETENTION_SECONDS
            elapsed, last_pass_at = time.monotonic() - last_pass_at, time.monotonic()
            try:
                now = self._now_us()
                effective_now = advance_retention_time(self._database, now, int(elapsed * 1_000_000))
                if effective_now < now - DAY_US:
                    self._report_once("retention", ClockAhead(CLOCK_AHEAD))
                while self._run_pass(effective_now) >= ROWS_PER_STEP * STEPS_PER_PASS / 2 and not self._stop.is_set():
                    # The pass probably ended because of its bound, so it left rows for another one.
                    continue
                self._last_pass.value = now / 1_000_000
            except Exception as error:
                # Later passes must run even if one fails.
                self._report_failure("retention", error)

    def _run_pass(self, effective_now: int) -> int:
        removed_rows = run_retention(
            self._database, self._packages, effective_now, pause=self._pause, report_failure=self._report_once
        )
        self._removed_rows.value += removed_rows
        return removed_rows

    def _keep_segments(self) -> None:
        """Close segments of the identities soon after they are full."""
        pause_seconds = SEGMENT_SECONDS_MIN
        identities = 0
        while not self._stop.wait(pause_seconds):
            try:
                previous, identities = identities, keep_segments(self._database, self._now_us())
                # At the present rate, half of the remaining room is used until the next check.
                added_per_second = max(identities - previous, 1) / pause_seconds
                seconds_to_full = (identity_segments.SEGMENT_ROWS - identities) / added_per_second
                pause_seconds = min(max(seconds_to_full / 2, SEGMENT_SECONDS_MIN), SEGMENT_SECONDS_MAX)
            except Exception as error:
                pause_seconds = SEGMENT_SECONDS_MAX
                self._report_once("identities", error)

    def _bound_packages(self) -> None:
        pause_seconds = BOUND_SECONDS
        while self._bound is not None and not self._stop.wait(pause_seconds):
            began_at = time.monotonic()
            try:
                text = self._bound.remove_excess(self._stop.is_set)
                if text is not None:
                    self._report_failure("retention", PackagesRemoved(text))
            except Exception as error:
                self._report_once("retention", error)
            pause_seconds = max(BOUND_SECONDS, BOUND_PAUSE_FACTOR * (time.monotonic() - began_at))

    def _pause(self, locked_seconds: float) -> bool:
        """Wait after a step that held locks for so long. Returns whether the pass must end."""
        factor = PAUSE_FACTOR_ON_SQLITE if self._database.on_sqlite else PAUSE_FACTOR_ON_POSTGRESQL
        return self._stop.wait(max(PAUSE_BETWEEN_STEPS_SECONDS, factor * locked_seconds))


class PackagesRemoved(HookmillError):
    """Packages were removed before their runs, because they needed too much of the disk."""


class PackageBound:
    """Removes packages of ended runs, oldest first, if all packages need more than `bytes_max`, or if the disk gets
    near the reserve that runs must leave. Then mirrors of repositories, which are only a cache, are removed before.

    Kept are packages with files that were not uploaded yet, and those that the runner `package` has written for others.
    """

    def __init__(
        self,
        database: Database,
        packages: Path,
        reserve: HostReserve,
        bytes_max: int | None,
        remove_mirrors: Callable[[Callable[[], bool]], None] = lambda _has_enough: None,
    ) -> None:
        """`remove_mirrors` removes mirrors until the function that it gets returns true, or all that are not in use."""
        self._database = database
        self._packages = packages
        self._reserve = reserve
        self._bytes_max = bytes_max
        self._remove_mirrors = remove_mirrors
        self._sizes: dict[str, DiskUse] = {}
        """The sizes of packages of ended runs, by name. They no longer change."""

    def remove_excess(self, should_stop: Callable[[], bool] = lambda: False) -> str | None:
        """Remove packages. Returns how many and why, for people; None if none were. Raises `OSError`."""
        shortage = self._reserve.disk_shortage(reserves=NEAR_RESERVES)
        if shortage is not None:
            self._remove_mirrors(lambda: should_stop() or self._reserve.disk_shortage(reserves=FAR_RESERVES) is None)
            shortage = self._reserve.disk_shortage(reserves=NEAR_RESERVES)
        if (shortage is None and self._bytes_max is None) or not self._packages.is_dir():
            return None
        # The names of runs begin with their time.
        names = sorted(entry.name for entry in os.scandir(self._packages))
        bytes_left = self._measure(names)
        is_near = shortage is not None and self._would_help(shortage)
        removed = 0
        for name in names:
            if should_stop() or not (is_near or bytes_left > (self._bytes_max or bytes_left)):
                break
            if not self._is_removable(name):
                continue
            with suppress(OSError):
                # Retention reports what can't be removed.
                remove_directory(self._packages / name)
                removed += 1
                bytes_left -= self._sizes.pop(name).bytes
            is_near = is_near and self._reserve.disk_shortage(reserves=FAR_RESERVES) is not None
        if not removed:
            return None
        return (
            f"Removed packages of ended runs ({removed:,}), oldest first, because all packages needed more than "
            "packages_max_mb, or the disk was almost full. Use a larger disk, or lower disk_mb of the runners."
        )

    def _would_help(self, shortage: Shortage) -> bool:
        """Whether the disk has enough without the packages of ended runs. If not, something else fills it."""
        sizes = self._sizes.values()
        ended = sum(size.files if shortage.resource is Resource.INODES else size.bytes for size in sizes)
        return shortage.free + ended >= shortage.reserve

    def _measure(self, names: Sequence[str]) -> int:
        """Measure the packages of ended runs that were not measured before. Returns the size of all packages."""
        self._sizes = {name: self._sizes[name] for name in names if name in self._sizes}
        unfinished_bytes = 0
        for name in names:
            if name not in self._sizes:
                if self._has_ended(name):
                    self._sizes[name] = disk_use([str(self._packages / name)])
                elif self._bytes_max is not None:
                    unfinished_bytes += disk_use([str(self._packages / name)], bytes_max=self._bytes_max).bytes
        return unfinished_bytes + sum(size.bytes for size in self._sizes.values())

    def _has_ended(self, name: str) -> bool:
        run = _run_of(self._database, name)
        return run is not None and run.state.is_final

    def _is_removable(self, name: str) -> bool:
        run = _run_of(self._database, name)
        if run is None or not run.state.is_final or run.runner == PACKAGE_RUNNER:
            return False
        with self._database.read() as tx:
            return not has_files_to_upload(tx, run.id)


def _run_of(database: Database, package: str) -> Run | None:
    """The run of the package with this name; None if it has no row, or if the service did not create the package."""
    try:
        key = run_key(package)
    except HookmillError:
        return None
    with database.read() as tx:
        return reading.run_by_key(tx, key)


class _Steps:
    """The transactions of a pass of retention, and the pauses between them."""

    def __init__(self, database: Database, pause: Callable[[float], bool]) -> None:
        self.database = database
        self._pause = pause
        self._locked_seconds = 0.0

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """Like `Database.write`. The time that it waits for the write lock does not count: deliveries hold the lock."""
        began_at = None
        try:
            with self.database.write() as tx:
                began_at = time.monotonic()
                yield tx
        finally:
            if began_at is not None:
                self._locked_seconds += time.monotonic() - began_at

    def pause(self) -> bool:
        """Wait until the next step may begin. Returns whether the pass must end."""
        locked_seconds, self._locked_seconds = self._locked_seconds, 0.0
        return self._pause(locked_seconds)


def run_retention(
    database: Database,
    packages: Path,
    now: int,
    *,
    pause: Callable[[float], bool] = lambda _locked_seconds: False,
    report_failure: ReportFailure = lambda _component, _error: None,
) -> int:
    """Run one pass of retention as of `now`, in microseconds since 1970. Returns the number of removed log rows.

    `pause` is called between steps, with the seconds for which the step held locks; if it returns True, the pass ends.
    `report_failure` is called once if some files can't be removed.
    """
    steps = _Steps(database, pause)
    removed_log_rows = _remove_old_rows(steps, now)
    if not steps.pause():
        # Each host removes its own files, even if another host removes the rows.
        _remove_orphaned_packages(database, packages, report_failure)
    return removed_log_rows


def _remove_old_rows(steps: _Steps, now: int) -> int:
    removed_log_rows = steps_done = 0
    for keys in log_retention.removable(steps.database, now, at_most=ROWS_PER_STEP):
        if keys:
            with steps.write() as tx:
                # Only one process at a time removes rows.
                if not dialect.try_lock(tx, _RETENTION_LOCK):
                    return removed_log_rows
                removed_log_rows += log_retention.remove(tx, keys)
            steps_done += 1
        if steps.pause():
            return removed_log_rows
        if steps_done >= STEPS_PER_PASS:
            break
    with steps.database.read() as tx:
        automation_ids = runs_retention.automations_to_prune(tx, now)
    for automation_id in automation_ids:
        while steps_done < STEPS_PER_PASS:
            with steps.write() as tx:
                if not dialect.try_lock(tx, _RETENTION_LOCK):
                    return removed_log_rows
                pruned = runs_retention.prune(tx, automation_id, now, ROWS_PER_STEP)
            steps_done += pruned > 0
            if steps.pause():
                return removed_log_rows
            if pruned < ROWS_PER_STEP:
                break
    while steps_done < STEPS_PER_PASS:
        with steps.write() as tx:
            if not dialect.try_lock(tx, _RETENTION_LOCK) or not removal.remove_files(tx, ROWS_PER_STEP):
                break
        steps_done += 1
        if steps.pause():
            return removed_log_rows
    # Under constant load, the log can need all steps of each pass, so identities have steps of their own.
    for _ in range(STEPS_PER_PASS):
        with steps.write() as tx:
            if not identity_segments.forget_old(tx, now, IDENTITIES_PER_STEP):
                break
        if steps.pause():
            return removed_log_rows
    with steps.write() as tx:
        deliveries.forget_dropped_attempts(tx, now)
        _forget_expired(tx, now)
    return removed_log_rows


def _forget_expired(tx: Transaction, now: int) -> None:
    """Remove expired idempotent answers, sessions and sign-in links, some of which contain secrets; and old notices."""
    idempotency.forget(tx, before=now - IDEMPOTENT_ANSWERS_KEPT_HOURS * HOUR_US)
    sessions.forget_old(
        tx, created_before=now - SESSION_HOURS * HOUR_US, seen_before=now - SESSION_IDLE_HOURS * HOUR_US
    )
    sessions.forget_old_links(tx, now)
    notices.forget_old(tx, now)


def _remove_orphaned_packages(database: Database, packages: Path, report_failure: ReportFailure) -> None:
    """Remove packages whose runs have no row, drafts, workspaces and probe files of killed workers, and directories
    that could not be removed before."""
    if not packages.is_dir():
        return
    not_removed: list[str] = []
    for path in packages.iterdir():
        try:
            if _is_orphaned(database, path):
                remove_directory(path)
            elif (path / WORKSPACE_DIRECTORY).is_dir() and _is_workspace_left(database, path):
                remove_directory(path / WORKSPACE_DIRECTORY)
        except OSError as error:
            not_removed.append(f"{path}: {error.strerror}")
    if not_removed:
        more = f", and {len(not_removed) - 1} more" if len(not_removed) > 1 else ""
        report_failure(
            "retention",
            PackagesNotRemoved(
                f"Retention could not remove packages of pruned runs: {min(not_removed)}{more}. "
                "Remove them by hand, or correct their owner."
            ),
        )


def _is_orphaned(database: Database, path: Path) -> bool:
    if path.name.startswith((PROBE_PREFIX, UNREMOVABLE_PREFIX)):
        return _is_abandoned(path)
    is_draft = path.name.startswith(".")
    try:
        key = run_key(path.name.removeprefix("."))
    except HookmillError:
        # The name contains no run id, so the service did not create this path.
        return False
    if is_draft and not _is_abandoned(path):
        return False
    with database.read() as tx:
        run = reading.run_by_key(tx, key)
    # The next attempt of an unfinished run removes the draft itself, and must not race with this removal.
    return run is None or (is_draft and run.state.is_final)


def _is_workspace_left(database: Database, package: Path) -> bool:
    """Whether a worker died before it could remove the workspace of a run that has ended since."""
    run = _run_of(database, package.name)
    return run is not None and run.state.is_final and run.options.workspace is not None


def _is_abandoned(path: Path) -> bool:
    """Whether the path is too old for a worker to be writing it. False if it no longer exists."""
    with suppress(FileNotFoundError):
        return time.time() - path.lstat().st_mtime > ABANDONED_AFTER_SECONDS
    return False
