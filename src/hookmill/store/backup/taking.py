"""Reads a snapshot of the database into the records of a backup.

The snapshot is one read transaction, so it is consistent while deliveries come in. On SQLite, the WAL can't be reset
before it ends.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from hookmill.domain.ids import time_of
from hookmill.store import deliveries
from hookmill.store.backup.records import BackupSnapshot, Rows, Summary, TableDescription, TableSummary
from hookmill.store.database import Transaction
from hookmill.store.rows import postgres, sqlite
from hookmill.store.rows.digest import RowDigest
from hookmill.store.rows.tables import TABLES, StoredTable, Values, batches

_EXCLUDED_TABLES: Final = frozenset({"executors", "sessions", "sign_in_links"})
"""Workers that were alive, who was signed in, and links that may have been used since: none of it may come back."""

TABLES_OF_BACKUPS: Final = [table for table in TABLES if table.name not in _EXCLUDED_TABLES]

ReportRows = Callable[[int, int], None]
"""Receives the number of rows since its last call, and the total number of rows."""


def snapshot_records(
    tx: Transaction, tables: Sequence[StoredTable], *, now: int, report: ReportRows
) -> Iterator[BackupSnapshot | Rows | Summary]:
    """The records of the snapshot that `tx` has, with the rows of these tables. The summary has no packages.

    `now` is in µs since 1970. Raises `StoreUnavailable`.
    """
    counts = {table.name: _count_rows(tx, table) for table in tables}
    newest = deliveries.newest_key(tx)
    yield BackupSnapshot(
        taken_at=now,
        newest_delivery_at=time_of(newest) if newest is not None else None,
        tables=[
            TableDescription(
                name=table.name, columns=[column.name for column in table.columns], rows=counts[table.name]
            )
            for table in tables
        ],
        numbers=sqlite.generated_numbers(tx) if tx.on_sqlite else postgres.generated_numbers(tx),
    )
    total = sum(counts.values())
    report(0, total)
    summaries = []
    for table in tables:
        digest = RowDigest(table)
        for rows in batches(_read_rows(tx, table)):
            digest.add(rows)
            yield Rows(table=table.name, rows=list(rows))
            report(len(rows), total)
        result = digest.result()
        summaries.append(TableSummary(name=result.table, rows=result.rows, sha256=result.sha256))
    yield Summary(tables=summaries)


def _count_rows(tx: Transaction, table: StoredTable) -> int:
    return sqlite.count_rows(tx, table) if tx.on_sqlite else postgres.count_rows(tx, table)


def _read_rows(tx: Transaction, table: StoredTable) -> Iterator[Values]:
    return sqlite.read_rows(tx, table) if tx.on_sqlite else postgres.read_rows(tx, table)
