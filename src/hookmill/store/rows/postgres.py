"""Reads and writes rows of PostgreSQL with binary COPY."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import psycopg

from hookmill.domain.errors import StoreUnavailable
from hookmill.store import dialect
from hookmill.store.database import Transaction, disk_full
from hookmill.store.postgres_engine import driver_connection
from hookmill.store.rows.tables import TABLES, StoredTable, Values

READ_SECONDS: Final = 24 * 3600
"""The longest time to read a whole table."""
NO_ROW_SECONDS: Final = 600
"""The longest time without a row while a table is read: before the first one, PostgreSQL may sort the table."""
ANALYZE_SECONDS: Final = 600


def read_rows(tx: Transaction, table: StoredTable) -> Iterator[Values]:
    """The rows in the order of their keys, one at a time, as SQLite has them. Raises `StoreUnavailable`.

    The transaction's timeouts become long, and it prefers the index to sorting.
    """
    columns = ", ".join(f"{column.quoted}::int" if column.is_boolean else column.quoted for column in table.columns)
    # SQLite orders text by its bytes, too.
    order = table.key_list(
        lambda column: f'{column.quoted} COLLATE "C"' if column.postgres_type == "text" else column.quoted
    )
    query = f"SELECT {columns} FROM {table.quoted} WHERE {table.condition} ORDER BY {order}"
    dialect.allow_long_statements(tx, READ_SECONDS, response_seconds=NO_ROW_SECONDS)
    # Prefer an index that has the order: reading through it is faster than sorting all bodies on disk.
    tx.run("SET LOCAL enable_sort = off")
    try:
        with (
            driver_connection(tx.connection).cursor() as cursor,
            cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT BINARY)".encode()) as copy,
        ):
            copy.set_types(["int4" if column.is_boolean else column.postgres_type for column in table.columns])
            yield from copy.rows()
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        raise _unavailable_error(tx, error) from error


def write_rows(tx: Transaction, table: StoredTable, rows: Sequence[Values]) -> None:
    """Insert these rows, which are as SQLite has them. Raises `StoreUnavailable`, also as `DiskFull`, and
    `psycopg.Error`."""
    boolean_positions = [number for number, column in enumerate(table.columns) if column.is_boolean]
    try:
        with (
            driver_connection(tx.connection).cursor() as cursor,
            cursor.copy(f"COPY {table.quoted} ({table.column_list}) FROM STDIN (FORMAT BINARY)".encode()) as copy,
        ):
            copy.set_types([column.postgres_type for column in table.columns])
            for row in rows:
                copy.write_row(_with_booleans(row, boolean_positions) if boolean_positions else row)
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        raise _unavailable_error(tx, error) from error


def generated_numbers(tx: Transaction) -> dict[str, int]:
    """The highest number that PostgreSQL has generated for a key, even if that row is deleted, by the table's name."""
    numbers = {}
    for table in TABLES:
        if (sequence := _sequence(tx, table)) is not None:
            row = tx.one(f"SELECT last_value, is_called FROM {sequence}")
            assert row is not None
            numbers[table.name] = int(row["last_value"]) if row["is_called"] else 0
    return numbers


def continue_numbers(tx: Transaction, table: StoredTable, after: int) -> None:
    """Let generated keys of this table continue after the number."""
    if (sequence := _sequence(tx, table)) is not None and after > 0:
        tx.one("SELECT setval(CAST(:name AS regclass), :number)", name=sequence, number=after)


def analyze(tx: Transaction, tables: Sequence[StoredTable]) -> None:
    """Collect the statistics without which PostgreSQL would plan the first queries badly."""
    dialect.allow_long_statements(tx, ANALYZE_SECONDS)
    tx.run(f"ANALYZE {', '.join(table.quoted for table in tables)}")


def _sequence(tx: Transaction, table: StoredTable) -> str | None:
    """The name of the sequence that generates the key of this table, ready for SQL. None if there is none."""
    return tx.scalar("SELECT pg_get_serial_sequence(:table, :column)", table=table.quoted, column=table.key[0].name)


def _with_booleans(row: Values, positions: Sequence[int]) -> Sequence[Any]:
    values = list(row)
    for position in positions:
        if values[position] is not None:
            values[position] = bool(values[position])
    return values


def _unavailable_error(tx: Transaction, error: psycopg.Error) -> StoreUnavailable:
    # The transaction is lost. Without this call, its rollback would fail on a broken connection.
    tx.connection.invalidate(error)
    if isinstance(error, psycopg.errors.DiskFull):
        return disk_full()
    return StoreUnavailable(str(error).strip().split("\n")[0][:200])
