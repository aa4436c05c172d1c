"""How much space the stored data takes."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hookmill.domain.ids import RunKey
from hookmill.domain.limits import LOG_DAYS_KEPT
from hookmill.domain.storage_forecast import (
    DAY_US,
    POSTGRES_IDENTITY_BYTES,
    SQLITE_IDENTITY_BYTES,
    StoredData,
)
from hookmill.store import dialect
from hookmill.store.database import Transaction
from hookmill.store.recent_rows import DELIVERIES, RUN_FILES, RUNS, count_rows
from hookmill.store.rows.tables import TABLES

PACKAGES_READ: Final = 20
"""Of so many of the newest runs, the sizes of the packages are read."""


def data_bytes(tx: Transaction) -> int:
    """The bytes of all rows. On SQLite, this includes the indexes."""
    if tx.on_sqlite:
        row = tx.one(
            """
            SELECT (page_count - freelist_count) * page_size AS bytes
            FROM pragma_page_count, pragma_freelist_count, pragma_page_size
            """
        )
    else:
        sizes = " + ".join(f"pg_table_size('{table.quoted}')" for table in TABLES)
        row = tx.one(f"SELECT {sizes} AS bytes")
    assert row is not None
    return int(row["bytes"])


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSize:
    size: int
    """In bytes, with SQLite's WAL."""
    reusable: int
    """The free pages of SQLite's file, in bytes. On PostgreSQL they are not known, and this is 0."""


def database_size(tx: Transaction, path: Path | None) -> DatabaseSize:
    """The size of the database. `path` is SQLite's file."""
    if path is None:
        return DatabaseSize(size=dialect.database_bytes(tx), reusable=0)
    row = tx.one(
        """
        SELECT page_count * page_size AS size, freelist_count * page_size AS reusable
        FROM pragma_page_count, pragma_freelist_count, pragma_page_size
        """
    )
    assert row is not None
    wal_bytes = 0
    with suppress(OSError):
        wal_bytes = path.with_name(f"{path.name}-wal").stat().st_size
    return DatabaseSize(size=int(row["size"]) + wal_bytes, reusable=int(row["reusable"]))


def stored_data(
    tx: Transaction, now: int, *, path: Path | None, package_bytes: Callable[[RunKey], int | None]
) -> StoredData:
    """What is stored. `now` is in µs since 1970; `path` is SQLite's file.

    `package_bytes` returns the space that a run's package has on the database's disk; None if it is not there.
    """
    dialect.force_custom_query_plans(tx)
    recent_since = now - LOG_DAYS_KEPT * DAY_US
    recent = count_rows(tx, DELIVERIES, recent_since, now)
    older = count_rows(tx, DELIVERIES, 0, recent_since)
    leaving = count_rows(tx, DELIVERIES, recent_since, recent_since + DAY_US)
    runs = count_rows(tx, RUNS, recent_since, now)
    files = count_rows(tx, RUN_FILES, recent_since, now)
    segments = tx.one("SELECT MIN(opened_at) AS opened_at FROM identity_segments")
    size = database_size(tx, path)
    newest_runs = tx.all("SELECT id FROM runs ORDER BY id DESC LIMIT :at_most", at_most=PACKAGES_READ)
    packages = [found for row in newest_runs if (found := package_bytes(RunKey(bytes(row["id"])))) is not None]
    return StoredData(
        at=now,
        recent_since=recent.since,
        identities_since=segments["opened_at"] if segments is not None else None,
        deliveries=recent.rows,
        accepted=recent.accepted,
        identity_bytes=SQLITE_IDENTITY_BYTES if tx.on_sqlite else POSTGRES_IDENTITY_BYTES,
        payload_bytes=recent.byte_count,
        runs=runs.rows,
        run_file_bytes=files.byte_count,
        is_estimate=any(rows.is_estimate for rows in (recent, older, leaving, runs, files)),
        older_deliveries=older.rows,
        older_payload_bytes=older.byte_count,
        leaving_deliveries=leaving.rows,
        leaving_payload_bytes=leaving.byte_count,
        database_bytes=size.size,
        reusable_bytes=size.reusable,
        # Packages that are on other hosts need no space here.
        package_bytes=runs.rows * sum(packages) // len(newest_runs) if newest_runs else 0,
    )
