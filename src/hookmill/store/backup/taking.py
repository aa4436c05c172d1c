"""Reads a snapshot of the database into the records of a backup.

The snapshot is one read transaction, so it is consistent while deliveries come in. On SQLite, the WAL can't be reset
before it ends.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hookmill.domain.ids import time_of
from hookmill.store import deliveries
from hookmill.store.backup.container import BackupWriter
from hookmill.store.backup.records import BackupSnapshot, Rows, TableDescription, TableSummary
from hookmill.store.database import Transaction
from hookmill.store.rows import postgres, sqlite
from hookmill.store.rows.digest import RowDigest
from hookmill.store.rows.tables import TABLES, StoredTable, Values, batches

EXCLUDED_TABLES: Final = frozenset({"executors", "sessions", "sign_in_links"})
"""Workers that were alive, who was signed in, and links that may have been used since: none of it may come back."""

ReportRows = Callable[[int, int], None]
"""Receives the number of rows since its last call, and the total number of rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotResult:
    snapshot: BackupSnapshot
    tables: Sequence[TableSummary]


def backed_up(tables: Sequence[StoredTable]) -> Sequence[StoredTable]:
    """Those of the tables that a backup has."""
    return [table for table in tables if table.name not in EXCLUDED_TABLES]


def write_snapshot(
    tx: Transaction,
    writer: BackupWriter,
    *,
    now: int,
    report: ReportRows,
    check: Callable[[], None],
) -> SnapshotResult:
    """Write the snapshot that `tx` has, and the rows of its tables. `now` is in µs since 1970.

    `check` is called before each record; it raises to end the backup. Raises `StoreUnavailable`.
    """
    included = backed_up(TABLES)
    counts = {table.name: _count_rows(tx, table) for table in included}
    newest = deliveries.newest_key(tx)
    snapshot = BackupSnapshot(
        taken_at=now,
        newest_delivery_at=time_of(newest) if newest is not None else None,
        tables=[
            TableDescription(
                name=table.name, columns=[column.name for column in table.columns], rows=counts[table.name]
            )
            for table in included
        ],
        numbers=sqlite.generated_numbers(tx) if tx.on_sqlite else postgres.generated_numbers(tx),
    )
    writer.add(snapshot)
    total = sum(counts.values())
    report(0, total)
    summaries = []
    for table in included:
        digest = RowDigest(table)
        for rows in batches(_read_rows(tx, table)):
            check()
            digest.add(rows)
            writer.add(Rows(table=table.name, rows=list(rows)))
            report(len(rows), total)
        result = digest.result()
        summaries.append(TableSummary(name=result.table, rows=result.rows, sha256=result.sha256))
    return SnapshotResult(snapshot=snapshot, tables=summaries)


def _count_rows(tx: Transaction, table: StoredTable) -> int:
    return sqlite.count_rows(tx, table) if tx.on_sqlite else postgres.count_rows(tx, table)


def _read_rows(tx: Transaction, table: StoredTable) -> Iterator[Values]:
    return sqlite.read_rows(tx, table) if tx.on_sqlite else postgres.read_rows(tx, table)
