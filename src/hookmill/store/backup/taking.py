"""Reads a snapshot of the database into the records of a backup.

The snapshot is one read transaction, so it is consistent while deliveries come in. On SQLite, the WAL can't be reset
before it ends.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from hookmill.domain.ids import time_of
from hookmill.store import deliveries, dialect
from hookmill.store.backup.records import BackupSnapshot, Rows, Summary, TableDescription
from hookmill.store.database import Transaction
from hookmill.store.rows import postgres, sqlite
from hookmill.store.rows.digest import RowDigest
from hookmill.store.rows.tables import TABLES, StoredTable, batches

_EXCLUDED_TABLES: Final = frozenset({"executors", "sessions", "sign_in_links"})
"""Workers that were alive, who was signed in, and links that may have been used since: none of it may come back."""

TABLES_OF_BACKUPS: Final = [table for table in TABLES if table.name not in _EXCLUDED_TABLES]


def snapshot_records(
    tx: Transaction, tables: Sequence[StoredTable], now: int
) -> Iterator[BackupSnapshot | Rows | Summary]:
    """The records of the snapshot that `tx` has, with the rows of these tables. The summary has no packages.

    `now` is in µs since 1970. Raises `StoreUnavailable`.
    """
    dialect.allow_long_statements(tx, postgres.NO_ROW_SECONDS)
    newest = deliveries.newest_key(tx)
    yield BackupSnapshot(
        taken_at=now,
        newest_delivery_at=time_of(newest) if newest is not None else None,
        tables=[
            TableDescription(
                name=table.name, columns=[column.name for column in table.columns], rows=_count_rows(tx, table)
            )
            for table in tables
        ],
        numbers=sqlite.generated_numbers(tx) if tx.on_sqlite else postgres.generated_numbers(tx),
    )
    read_rows = sqlite.read_rows if tx.on_sqlite else postgres.read_rows
    digests = []
    for table in tables:
        digest = RowDigest(table)
        for rows in batches(read_rows(tx, table)):
            digest.add(rows)
            yield Rows(table=table.name, rows=list(rows))
        digests.append(digest.result())
    yield Summary(tables=digests)


def _count_rows(tx: Transaction, table: StoredTable) -> int:
    row = tx.one(f"SELECT COUNT(*) AS number FROM {table.quoted} WHERE {table.condition}")
    assert row is not None
    return int(row["number"])
