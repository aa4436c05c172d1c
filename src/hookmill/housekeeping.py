"""What happens in the background: retention, and an eye on the disk. Small steps, so that no delivery ever waits for
one."""

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
FASTER_THAN_TIME: Final = 24
"""Retention follows a clock that was set forward by a day an hour."""
CLOCK_AHEAD: Final = (
    "The clock is more than a day ahead of the last pass of retention. If it is right, because the service was stopped "
    "for so long, nothing needs to be done: retention catches up by a day in each hour. If it is wrong, correct it."
)
FIRST_SWEEP_SECONDS: Final = 5.0
RETENTION_SECONDS: Final = 600.0
ROWS_PER_STEP: Final = 100
STEPS_PER_PASS: Final = 2_000
REST_BETWEEN_STEPS_SECONDS: Final = 0.02
"""Deliveries go first: between two steps the writer's place is free for much longer than a step holds it."""
FREE_INODES_MIN: Final = 1_000
"""A delivery may start several runs, and each has about eight files."""
DRAFT_SECONDS: Final = 3_600.0
"""A package is written, and a test write made, within seconds."""
_RETENTION_LOCK: Final = 0x73776570
"""PostgreSQL's advisory lock for the sweep: "swep"."""


class DiskGuard:
    """Whether there is room for another delivery. Asked for each one, looked up once a second."""

    def __init__(self, directory: Path, free_bytes_min: int) -> None:
        self._directory = directory
        self._free_bytes_min = free_bytes_min
        self._looked_at = 0.0
        self._has_room = True

    def __call__(self) -> bool:
        now = time.monotonic()
        if now - self._looked_at > 1.0:
            self._looked_at = now
            try:
                self._has_room = self._look()
            except OSError:
                self._has_room = False
        return self._has_room

    def _look(self) -> bool:
        disk = os.statvfs(self._directory)
        # Some file systems have no table of inodes, and say that it has no entries.
        has_inodes = disk.f_files == 0 or disk.f_favail >= FREE_INODES_MIN
        return has_inodes and disk.f_bavail * disk.f_frsize >= self._free_bytes_min


class PackagesKept(HookmillError):
    """Files that retention should have removed are still there."""


class ClockAhead(HookmillError):
    """The clock has moved further than the time that passed."""


def believed_time(database: Database, now: int, elapsed: int) -> int:
    """What retention takes for the time, in microseconds, when the clock says `now` and `elapsed` have passed since the
    last pass: what a clock that is wrong for an hour would remove is gone permanently.

    After a pause the clock is right, and retention reaches it in a 24th of the pause.
    """
    with database.write() as tx:
        last = metadata.retention_time(tx)
        believed = now if last is None else min(now, last + FASTER_THAN_TIME * elapsed + HOUR_US)
        metadata.set_retention_time(tx, believed)
    return believed


class Housekeeping:
    """A thread that keeps house until it is closed."""

    def __init__(
        self,
        database: Database,
        packages: Path,
        now_us: Callable[[], int],
        *,
        failed: Callable[[str, BaseException], None] = lambda _where, _error: None,
    ) -> None:
        self._database = database
        self._packages = packages
        self._now = now_us
        self._failed = failed
        self._last_reported: dict[str, str] = {}
        """By kind of error: what stays as it is, pass after pass, is reported once."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="housekeeping", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(5.0)

    def _keep(self) -> None:
        wait = FIRST_SWEEP_SECONDS
        last = time.monotonic()
        while not self._stop.wait(wait):
            wait = RETENTION_SECONDS
            elapsed, last = time.monotonic() - last, time.monotonic()
            try:
                now = self._now()
                believed = believed_time(self._database, now, int(elapsed * 1_000_000))
                if believed < now - DAY_US:
                    self._report_once("retention", ClockAhead(CLOCK_AHEAD))
                sweep(self._database, self._packages, believed, rest=self._rest, failed=self._report_once)
            except Exception as error:
                # A pass that failed, for whatever reason, must not be the last one.
                self._failed("retention", error)

    def _report_once(self, where: str, error: BaseException) -> None:
        kind, text = type(error).__name__, str(error)
        if self._last_reported.get(kind) != text:
            self._last_reported[kind] = text
            self._failed(where, error)

    def _rest(self) -> bool:
        return self._stop.wait(REST_BETWEEN_STEPS_SECONDS)


def sweep(
    database: Database,
    packages: Path,
    now: int,
    *,
    rest: Callable[[], bool] = lambda: False,
    failed: Callable[[str, BaseException], None] = lambda _where, _error: None,
) -> int:
    """One pass of retention. Returns how many rows of the log went. `rest` is called between steps; True from it ends
    the pass. `failed` hears of files that can't be removed, once for all of them."""
    removed = _sweep_rows(database, now, rest)
    if not rest():
        # Also where another host sweeps the database: these lie on this one.
        _remove_orphaned_packages(database, packages, failed)
    return removed


def _sweep_rows(database: Database, now: int, rest: Callable[[], bool]) -> int:
    with database.read() as tx:
        webhook_numbers = deliveries.webhooks_with_old_rows(tx, now)
    removed = steps = 0
    for webhook_no in webhook_numbers:
        while steps < STEPS_PER_PASS:
            with database.write() as tx:
                # One process sweeps at a time; the others have nothing to add.
                if not dialect.try_lock(tx, _RETENTION_LOCK):
                    return removed
                gone = deliveries.prune(tx, webhook_no, now, ROWS_PER_STEP)
            removed += gone
            # Looking costs nearly nothing: webhooks that have nothing to remove must not use up the others' steps.
            steps += gone > 0
            if rest():
                return removed
            if gone < ROWS_PER_STEP:
                break
    place: tuple[int, bytes] | None = (0, b"")
    while place is not None and steps < STEPS_PER_PASS:
        with database.write() as tx:
            place = deliveries.forget_identities(tx, place, now, ROWS_PER_STEP)
        steps += 1
        if rest():
            return removed
    with database.write() as tx:
        deliveries.forget_dropped_attempts(tx, now)
        _forget_what_is_over(tx, now)
    return removed


def _forget_what_is_over(tx: Transaction, now: int) -> None:
    """Answers that are given no more, sessions and links that open nothing: some hold what is secret."""
    idempotency.forget(tx, before=now - IDEMPOTENT_ANSWERS_KEPT_HOURS * HOUR_US)
    sessions.forget_old(
        tx, created_before=now - SESSION_HOURS * HOUR_US, seen_before=now - SESSION_IDLE_HOURS * HOUR_US
    )
    sessions.forget_old_links(tx, now)


def _remove_orphaned_packages(database: Database, packages: Path, failed: Callable[[str, BaseException], None]) -> None:
    """A run's files go when its row has gone, and so do the drafts and test writes that a killed worker left."""
    if not packages.is_dir():
        return
    kept: list[str] = []
    for place in packages.iterdir():
        try:
            if _is_left_over(database, place):
                remove_directory(place)
        except OSError as error:
            kept.append(f"{place}: {error.strerror}")
    if kept:
        others = f", and {len(kept) - 1} more" if len(kept) > 1 else ""
        failed(
            "retention",
            PackagesKept(
                f"Packages whose runs are no longer kept could not be removed: {min(kept)}{others}. "
                "Remove them by hand, or correct their owner."
            ),
        )


def _is_left_over(database: Database, place: Path) -> bool:
    if place.name.startswith((PROBE_PREFIX, SET_ASIDE_PREFIX)):
        return _is_old(place)
    is_draft = place.name.startswith(".")
    try:
        key = run_key(place.name.removeprefix("."))
    except HookmillError:
        return False
    if is_draft and not _is_old(place):
        return False
    with database.read() as tx:
        run = runs.run_of(tx, key)
    # The next attempt of an unfinished run removes its draft itself, so nobody else may.
    return run is None or (is_draft and run.state.is_final)


def _is_old(place: Path) -> bool:
    """Whether nobody can be at work on it any more. What has gone meanwhile is not."""
    with suppress(FileNotFoundError):
        return time.time() - place.lstat().st_mtime > DRAFT_SECONDS
    return False
