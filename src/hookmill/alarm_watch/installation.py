"""The conditions of alarms about the installation and its hosts."""

import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from hookmill.alarm_watch.certificate import certificate_expiry
from hookmill.domain import moment
from hookmill.domain.alarm import (
    WORKER_SILENT_SECONDS,
    AlarmCondition,
    AlarmKind,
    AlarmSubject,
    AlarmThresholds,
    FreeSpace,
    certificate_expires,
    clock_problem,
    disk_is_low,
    duration_text,
)
from hookmill.domain.errors import DestinationUnavailable
from hookmill.store import alarm_inputs
from hookmill.store.database import Database

CERTIFICATE_SECONDS: Final = 10.0
"""The deadline of a connection that reads the certificate."""
CERTIFICATE_PAUSE_SECONDS: Final = 3_600.0
CERTIFICATE_RETRY_SECONDS: Final = 600.0
"""The pause after a connection that failed."""
HTTPS_PORT: Final = 443


def disk_subject(host: str) -> AlarmSubject:
    return AlarmSubject(id=f"disk@{host}", name=f"disk of {host}", factory_id=None)


def clock_subject(host: str) -> AlarmSubject:
    return AlarmSubject(id=f"clock@{host}", name=f"clock of {host}", factory_id=None)


def disk_condition(host: str, space: FreeSpace, thresholds: AlarmThresholds, *, is_open: bool) -> AlarmCondition | None:
    """The condition that the disk of this host's data directory is almost full; None if it does not hold.

    `is_open`: whether the alarm is open.
    """
    if not disk_is_low(space, thresholds, is_open=is_open):
        return None
    return AlarmCondition(
        kind=AlarmKind.DISK_LOW,
        subject=disk_subject(host),
        summary="The disk of the data directory has less than the reserve that runs must leave, so no run starts."
        if space.is_below_reserve
        else f"The disk of the data directory has less than {thresholds.disk_free_bytes // 1024**2:,} MB free, or few "
        "free inodes.",
    )


def clock_condition(host: str, database: Database, now_us: Callable[[], int]) -> AlarmCondition | None:
    """The condition that the clock of this host is wrong, compared with what the database knows; None otherwise."""
    with database.read() as tx:
        began_at = time.monotonic()
        now = now_us()
        times = alarm_inputs.stored_times(tx)
        elapsed_us = int((time.monotonic() - began_at) * 1_000_000)
    problem = clock_problem(now, server_at=times.server_at, retention_at=times.retention_at, elapsed_us=elapsed_us)
    if problem is None:
        return None
    return AlarmCondition(kind=AlarmKind.CLOCK_WRONG, subject=clock_subject(host), summary=problem)


def worker_condition() -> AlarmCondition:
    """The condition that no worker is left."""
    return AlarmCondition(
        kind=AlarmKind.WORKER_STOPPED,
        subject=AlarmSubject(id="worker", name="worker", factory_id=None),
        summary=f"No worker has evaluated alarms for more than {duration_text(WORKER_SILENT_SECONDS)}, so runs, "
        "schedules and retention have stopped.",
    )


class CertificateWatch:
    """Reads the certificate of the base URL once an hour, if the URL is https and the alarm is not turned off."""

    def __init__(self, base_url: str | None, thresholds: AlarmThresholds) -> None:
        parts = urlsplit(base_url or "")
        self._days = thresholds.certificate_days
        self._host = parts.hostname if parts.scheme == "https" and self._days else None
        self._port = parts.port or HTTPS_PORT
        self._next_read_at = 0.0
        self._expiry: int | None = None
        """The end of its validity when it was last read, in µs since 1970; None if it has not been read yet."""

    @property
    def unknown_subject(self) -> AlarmSubject | None:
        """The subject if the certificate is watched, and could not be read yet."""
        return self._subject(self._host) if self._host is not None and self._expiry is None else None

    def _subject(self, host: str) -> AlarmSubject:
        return AlarmSubject(id=f"certificate@{host}:{self._port}", name=f"certificate of {host}", factory_id=None)

    def condition(self, now: int) -> AlarmCondition | None:
        """The condition that the certificate expires soon; None if it does not hold, or is not known.

        If the server can't be reached, the last known certificate counts.
        """
        if self._host is None:
            return None
        if time.monotonic() >= self._next_read_at:
            pause = CERTIFICATE_PAUSE_SECONDS
            try:
                self._expiry = certificate_expiry(self._host, self._port, CERTIFICATE_SECONDS)
            except DestinationUnavailable:
                pause = CERTIFICATE_RETRY_SECONDS
            self._next_read_at = time.monotonic() + pause
        if self._expiry is None or not certificate_expires(self._expiry, self._days, now):
            return None
        text = "expired on" if self._expiry <= now else "is valid until"
        return AlarmCondition(
            kind=AlarmKind.CERTIFICATE_EXPIRING,
            subject=self._subject(self._host),
            summary=f"The certificate {text} {moment.utc(self._expiry)} UTC.",
        )
