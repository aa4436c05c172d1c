"""Background maintenance: retention, and the check for free disk space.

Retention works in small transactions, so that deliveries don't wait for it.
"""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from hookmill.domain.errors import HookmillError
from hookmill.domain.ids import run_key
from hookmill.domain.limits import IDEMPOTENT_ANSWERS_KEPT_HOURS, SESSION_HOURS, SESSION_IDLE_HOURS
from hookmill.store import deliveries, dialect, idempotency, metadata, runs, sessions
from hookmill.store.database import Database, Transaction
from hookmill.store.directories import PROBE_PREFIX, SET_ASIDE_PREFIX, remove_directory

HOUR_US: Final = 3_600_000_000
DAY_US: Final = 24 * HOUR_US
CATCH_UP_FACTOR: Final = 24
"""If the clock jumps ahead, retention catches up by one day in each hour."""
CLOCK_AHEAD: Final = (
    "The clock is more than a day ahead of the last pass of retention. If the clock is wrong, correct it. If it is "
    "right, because the service was stopped for so long, do nothing: retention catches up by one day in each hour."
)
FIRST_SWEEP_SECONDS: Final = 5.0
RETENTION_SECONDS: Final = 600.0
ROWS_PER_STEP: Final = 100
STEPS_PER_PASS: Final = 2_000
REST_BETWEEN_STEPS_SECONDS: Final = 0.02
"""Much longer than a step holds SQLite's write lock, so deliveries take precedence."""
FREE_INODES_MIN: Final = 1_000
"""A delivery may start several runs, and each run has about eight files."""
DRAFT_SECONDS: Final = 3_600.0
"""A draft older than this is abandoned: the worker writes a package, or probes a directory, within seconds."""
_RETENTION_LOCK: Final = 0x73776570
"""PostgreSQL's advisory lock for the sweep: "swep"."""


class DiskGuard:
    """Whether the disk has room for another delivery. Each delivery calls it; it checks the disk once a second."""

    def __init__(self, directory: Path, free_bytes_min: int) -> None:
        self._directory = directory
        self._free_bytes_min = free_bytes_min
        self._checked_at = 0.0
        self._has_room = True

    def __call__(self) -> bool:
        now = time.monotonic()
        if now - self._checked_at > 1.0:
            self._checked_at = now
            try:
                self._has_room = self._check()
            except OSError:
                self._has_room = False
        return self._has_room

    def _check(self) -> bool:
        disk = os.statvfs(self._directory)
        # Some file systems have no inode table and report zero inodes.
        has_inodes = disk.f_files == 0 or disk.f_favail >= FREE_INODES_MIN
        return has_inodes and disk.f_bavail * disk.f_frsize >= self._free_bytes_min


class PackagesNotRemoved(HookmillError):
    """Retention could not remove the files of some runs."""


class ClockAhead(HookmillError):
    """The clock moved further than the time that passed."""


def retention_time(database: Database, now: int, elapsed: int) -> int:
    """The time that this pass of retention uses, in microseconds since 1970. Stores it for the next pass.

    `now` is the clock's time; `elapsed` is the monotonic time since the last pass, in microseconds. The result never
    exceeds `now`, and advances by at most 24 times `elapsed` plus one hour. A clock that is wrong for an hour would
    otherwise remove rows permanently. If the service was stopped, retention catches up in a 24th of the pause.
    """
    with database.write() as tx:
        last = metadata.retention_time(tx)
        current = now if last is None else min(now, last + CATCH_UP_FACTOR * elapsed + HOUR_US)
        metadata.set_retention_time(tx, current)
    return current


class Maintenance:
    """Runs retention in a thread, every `RETENTION_SECONDS`, until `close`.

    It calls `failed(component, error)` for each failed pass, and once for an error that persists.
    """

    def __init__(
        self,
        database: Database,
        packages: Path,
        now_us: Callable[[], int],
        *,
        failed: Callable[[str, BaseException], None] = lambda _component, _error: None,
    ) -> None:
        self._database = database
        self._packages = packages
        self._now = now_us
        self._failed = failed
        self._last_reported: dict[str, str] = {}
        """The last reported text of each exception class, so that a persistent error is reported once."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(5.0)

    def _run(self) -> None:
        wait = FIRST_SWEEP_SECONDS
        last = time.monotonic()
        while not self._stop.wait(wait):
            wait = RETENTION_SECONDS
            elapsed, last = time.monotonic() - last, time.monotonic()
            try:
                now = self._now()
                time_of_pass = retention_time(self._database, now, int(elapsed * 1_000_000))
                if time_of_pass < now - DAY_US:
                    self._report_once("retention", ClockAhead(CLOCK_AHEAD))
                sweep(self._database, self._packages, time_of_pass, rest=self._rest, failed=self._report_once)
            except Exception as error:
                # One failed pass must not end retention.
                self._failed("retention", error)

    def _report_once(self, component: str, error: BaseException) -> None:
        kind, text = type(error).__name__, str(error)
        if self._last_reported.get(kind) != text:
            self._last_reported[kind] = text
            self._failed(component, error)

    def _rest(self) -> bool:
        return self._stop.wait(REST_BETWEEN_STEPS_SECONDS)


def sweep(
    database: Database,
    packages: Path,
    now: int,
    *,
    rest: Callable[[], bool] = lambda: False,
    failed: Callable[[str, BaseException], None] = lambda _component, _error: None,
) -> int:
    """Perform one pass of retention as of `now`, in microseconds since 1970. Returns the number of removed log rows.

    `rest` is called between steps; if it returns True, the pass ends. `failed` is called once if some files can't be
    removed.
    """
    removed = _sweep_rows(database, now, rest)
    if not rest():
        # Each host removes its own files, even if another host sweeps the database.
        _remove_orphaned_packages(database, packages, failed)
    return removed


def _sweep_rows(database: Database, now: int, rest: Callable[[], bool]) -> int:
    with database.read() as tx:
        webhook_numbers = deliveries.webhooks_with_old_rows(tx, now)
    removed = steps = 0
    for webhook_no in webhook_numbers:
        while steps < STEPS_PER_PASS:
            with database.write() as tx:
                # One process sweeps at a time.
                if not dialect.try_lock(tx, _RETENTION_LOCK):
                    return removed
                pruned = deliveries.prune(tx, webhook_no, now, ROWS_PER_STEP)
            removed += pruned
            # A step that removes nothing is cheap, and must not use up the steps of other webhooks.
            steps += pruned > 0
            if rest():
                return removed
            if pruned < ROWS_PER_STEP:
                break
    cursor: tuple[int, bytes] | None = (0, b"")
    while cursor is not None and steps < STEPS_PER_PASS:
        with database.write() as tx:
            cursor = deliveries.forget_identities(tx, cursor, now, ROWS_PER_STEP)
        steps += 1
        if rest():
            return removed
    with database.write() as tx:
        deliveries.forget_dropped_attempts(tx, now)
        _forget_expired(tx, now)
    return removed


def _forget_expired(tx: Transaction, now: int) -> None:
    """Remove expired idempotent answers, sessions and sign-in links. Some contain secrets."""
    idempotency.forget(tx, before=now - IDEMPOTENT_ANSWERS_KEPT_HOURS * HOUR_US)
    sessions.forget_old(
        tx, created_before=now - SESSION_HOURS * HOUR_US, seen_before=now - SESSION_IDLE_HOURS * HOUR_US
    )
    sessions.forget_old_links(tx, now)


def _remove_orphaned_packages(database: Database, packages: Path, failed: Callable[[str, BaseException], None]) -> None:
    """Remove packages whose runs have no row, and the drafts and probe files of killed workers."""
    if not packages.is_dir():
        return
    not_removed: list[str] = []
    for path in packages.iterdir():
        try:
            if _is_orphaned(database, path):
                remove_directory(path)
        except OSError as error:
            not_removed.append(f"{path}: {error.strerror}")
    if not_removed:
        more = f", and {len(not_removed) - 1} more" if len(not_removed) > 1 else ""
        failed(
            "retention",
            PackagesNotRemoved(
                f"Retention could not remove packages of pruned runs: {min(not_removed)}{more}. "
                "Remove them by hand, or correct their owner."
            ),
        )


def _is_orphaned(database: Database, path: Path) -> bool:
    if path.name.startswith((PROBE_PREFIX, SET_ASIDE_PREFIX)):
        return _is_abandoned(path)
    is_draft = path.name.startswith(".")
    try:
        key = run_key(path.name.removeprefix("."))
    except HookmillError:
        return False
    if is_draft and not _is_abandoned(path):
        return False
    with database.read() as tx:
        run = runs.run_of(tx, key)
    # An unfinished run's next attempt removes the draft itself; removing it here would race with that attempt.
    return run is None or (is_draft and run.state.is_final)


def _is_abandoned(path: Path) -> bool:
    """Whether the path is too old for a worker to be writing it. False if it no longer exists."""
    with suppress(FileNotFoundError):
        return time.time() - path.lstat().st_mtime > DRAFT_SECONDS
    return False
