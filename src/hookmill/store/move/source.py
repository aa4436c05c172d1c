"""Reads the SQLite database of a move, in one transaction that keeps every other process from writing."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from hookmill.domain.errors import Invalid
from hookmill.domain.text import shown
from hookmill.store import dialect
from hookmill.store.database import Transaction
from hookmill.store.move.tables import MovedTable, Values

ROWS_SHOWN_MAX: Final = 20
"""The most rows that an error names."""


@contextmanager
def read_only(tx: Transaction) -> Iterator[None]:
    """Make the transaction, which holds the write lock, refuse changes until the block ends."""
    tx.run("PRAGMA query_only = ON")
    try:
        yield
    finally:
        tx.run("PRAGMA query_only = OFF")


def read_rows(tx: Transaction, table: MovedTable, after: Values = ()) -> Iterator[Values]:
    """The rows in the order of their keys, one at a time. `after` is the key of the row before the first one."""
    condition = f" AND ({table.key_list()}) > ({_placeholders(after)})" if after else ""
    query = f"SELECT {table.column_list} FROM {table.quoted} WHERE {table.condition}{condition}"
    return map(tuple, tx.bulk(f"{query} ORDER BY {table.key_list()}", after))


def count_rows(tx: Transaction, table: MovedTable, up_to: Values = ()) -> int:
    """The number of rows, or of those up to the row with the key `up_to`."""
    condition = f" AND ({table.key_list()}) <= ({_placeholders(up_to)})" if up_to else ""
    result = tx.bulk(f"SELECT COUNT(*) FROM {table.quoted} WHERE {table.condition}{condition}", up_to)
    return int(result.scalar_one())


def highest_number(tx: Transaction, table: MovedTable) -> int:
    """The highest number that SQLite has generated for a key of this table, even if that row is deleted; at least 0."""
    row = tx.one(f"SELECT MAX({table.key[0].quoted}) AS number FROM {table.quoted}")
    highest = int(row["number"] or 0) if row is not None else 0
    if dialect.has_table(tx, "sqlite_sequence"):
        generated = tx.one("SELECT seq FROM sqlite_sequence WHERE name = :name", name=table.name)
        highest = max(highest, int(generated["seq"]) if generated is not None else 0)
    return highest


def refuse_unstorable(tx: Transaction, table: MovedTable) -> None:
    """Raises `Invalid` with the rows and columns of this table whose values PostgreSQL can't store.

    Hookmill writes no such values. But SQLite stores any bytes as text, and any value in any column.
    """
    driver = tx.connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    driver.create_function("is_storable_text", 1, _is_storable_text, deterministic=True)
    cases = " ".join(f"WHEN NOT {column.storable_in_sqlite} THEN '{column.name}'" for column in table.columns)
    # As bytes, because the key itself may be text that can't be decoded.
    keys = table.key_list(lambda column: f"CAST({column.quoted} AS BLOB)")
    rows = tx.bulk(
        f"""
        SELECT CASE {cases} END AS problem, {keys}
        FROM {table.quoted}
        WHERE problem IS NOT NULL
        ORDER BY {table.key_list()}
        LIMIT {ROWS_SHOWN_MAX}
        """,
        (),
    ).all()
    if rows:
        lines = [f"  {table.name} {_described_key(table, row[1:])}: {row[0]}" for row in rows]
        raise Invalid(
            "PostgreSQL can't store these values of the SQLite database: a text must be UTF-8 without NUL, a number "
            "must be in range, and each value must have the type of its column.\n"
            + "\n".join(lines)
            + "\nChange or delete these rows, then start the move again. Nothing was copied."
        )


def _is_storable_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in content


def _described_key(table: MovedTable, key: Sequence[bytes]) -> str:
    return ", ".join(
        f"{column.name}={value.hex() if column.is_bytes else shown(value.decode('utf-8', 'backslashreplace'))}"
        for column, value in zip(table.key, key, strict=True)
    )


def _placeholders(values: Values) -> str:
    return ", ".join("?" * len(values))
