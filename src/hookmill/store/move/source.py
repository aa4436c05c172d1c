"""Checks the SQLite database of a move, in one transaction that keeps every other process from writing."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from hookmill.domain.errors import Invalid
from hookmill.domain.text import shown
from hookmill.store.database import Transaction
from hookmill.store.rows.tables import StoredTable

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


def refuse_unstorable(tx: Transaction, table: StoredTable) -> None:
    """Raises `Invalid` with the rows and columns of this table whose values PostgreSQL can't store.

    Hookmill writes no such values. But SQLite stores any bytes as text, and any value in any column.
    """
    driver = tx.connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    driver.create_function("is_storable_text", 1, _is_storable_text, deterministic=True)
    # Positions instead of names, and no alias: SQLite would prefer a column of this name to the alias.
    cases = " ".join(
        f"WHEN NOT {column.storable_in_sqlite} THEN {position}" for position, column in enumerate(table.columns)
    )
    unstorable = f"CASE {cases} END"
    # As bytes, because the key itself may be text that can't be decoded.
    keys = table.key_list(lambda column: f"CAST({column.quoted} AS BLOB)")
    rows = tx.bulk(
        f"""
        SELECT {unstorable}, {keys}
        FROM {table.quoted}
        WHERE {unstorable} IS NOT NULL
        ORDER BY {table.key_list()}
        LIMIT {ROWS_SHOWN_MAX}
        """,
        (),
    ).all()
    if rows:
        lines = [f"  {table.name} {_described_key(table, row[1:])}: {table.columns[row[0]].name}" for row in rows]
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


def _described_key(table: StoredTable, key: Sequence[bytes]) -> str:
    return ", ".join(
        f"{column.name}={value.hex() if column.is_bytes else shown(value.decode('utf-8', 'backslashreplace'))}"
        for column, value in zip(table.key, key, strict=True)
    )
