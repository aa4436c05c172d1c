"""Rows for every table of the schema, with the most unusual values of each column, and all rows of a database."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import sql
from sqlalchemy import BigInteger, Boolean, Column, Integer, LargeBinary, SmallInteger

from hookmill.store.moved import SUCCESSOR
from hookmill.store.schema import metadata

ROWS: Final = 5
FIRST_KEY: Final = 1_000
_TEXTS: Final = ("", "\\N", "tab\tand\r\nlines\\.", "ä\U0001f600\u202e\ufffe", "'\"%s{}:x \x01\x7f")
_BODIES: Final = (b"", os.urandom(262_144), bytes(range(256)), b"\\x00", b"{}")

_VALID: Final[dict[str, tuple[Any, ...]]] = {
    "webhooks.auth_mode": ("token", "url_token", "signature", "token", "signature"),
    "webhooks.state": ("enabled", "deleted", "deleted", "deleted", "deleted"),
    "webhooks.revision": (1, 2, (1 << 31) - 1, 7, 1),
    "deliveries.label": (1, 2, 2, 2, 2),
    "deliveries.rate_limit": (1, 1, 2, 1, 2),
    "deliveries.identity_kind": (None, 1, 2, 4, 5),
    "runs.state": ("queued", "succeeded", "failed", "interrupted", "superseded"),
    "runs.hold": (4, None, None, None, None),
    "runs.policy_key": (None, *(bytes([number]) * 16 for number in (0, 10, 92, 255))),
    "runs.attempt": (0, 1, (1 << 31) - 1, 7, 2),
    "runs.failures": (0, 1, 0, 7, 1),
    "runs.stopped_attempts": (0, 0, 7, 0, 1),
    "runs.webhook_no": (1, -1, (1 << 31) - 1, -(1 << 31), 7),
    "audit_log.actor_kind": ("operator", "key", "member", "service", "key"),
    "audit_log.channel": ("cli", "api", "files", "dashboard", "service"),
}
"""The values of columns with constraints, in the order of the rows."""

Rows = dict[str, list[tuple[Any, ...]]]


def fill(path: Path):
    """Add `ROWS` rows to each table of the SQLite database, each of which refers to rows that exist."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA foreign_keys = ON")
        for table in metadata.sorted_tables:
            names = ", ".join(f'"{column.name}"' for column in table.columns)
            places = ", ".join("?" * len(table.columns))
            connection.executemany(
                f'INSERT INTO "{table.name}" ({names}) VALUES ({places})',
                [[odd_value(column, number) for column in table.columns] for number in range(ROWS)],
            )


def odd_value(column: Column[Any], number: int) -> Any:
    """The value of this column in the row with this number, below `ROWS`."""
    for foreign_key in column.foreign_keys:
        return odd_value(foreign_key.column, number)
    if (valid := _VALID.get(f"{column.table.name}.{column.name}")) is not None:
        return valid[number]
    if column.nullable and not number:
        return None
    if isinstance(column.type, Boolean):
        return number % 2
    if isinstance(column.type, Integer):
        if column.primary_key:
            return FIRST_KEY + number
        if column.name == "created_at":
            # Of several teams, the oldest one is the installation's.
            return (1 << 62) + number
        bits = 32
        if isinstance(column.type, SmallInteger | BigInteger):
            bits = 16 if isinstance(column.type, SmallInteger) else 64
        return (0, -1, (1 << (bits - 1)) - 1, -(1 << (bits - 1)), 7)[number]
    if isinstance(column.type, LargeBinary):
        if not column.primary_key and column.type.length is None:
            return _BODIES[number]
        # The order of the bytes is the reverse of the order of the numbers.
        return bytes([0xFF - number, 0]) + column.name.encode().ljust(column.type.length or 16, b"\0")[:14]
    return f"{number} {column.name} {_TEXTS[number]}"


def rows_of_sqlite(path: Path) -> Rows:
    """All rows of each table, in a fixed order, except the mark of a move."""
    with closing(sqlite3.connect(path)) as connection:
        return {
            table.name: _sorted(connection.execute(f"SELECT {_names(table.columns)} FROM {table.name}"))
            for table in metadata.sorted_tables
        }


def rows_of_postgres(url: str) -> Rows:
    """Like `rows_of_sqlite`, for a PostgreSQL database. Booleans are numbers, as in SQLite."""
    with psycopg.connect(url) as connection:
        return {
            table.name: _sorted(
                connection.execute(f"SELECT {_names(table.columns)} FROM {table.name}".encode()),
            )
            for table in metadata.sorted_tables
        }


def relations(url: str) -> list[tuple[str, str]]:
    """The schema and name of each table and view in a database, except those of PostgreSQL itself."""
    query = sql.SQL(
        "SELECT table_schema, table_name FROM information_schema.tables "
        "WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2"
    )
    with psycopg.connect(url) as connection:
        return connection.execute(query).fetchall()


def _names(columns: Any) -> str:
    return ", ".join(f'"{column.name}"' for column in columns)


def _sorted(rows: Any) -> list[tuple[Any, ...]]:
    converted = (tuple(int(value) if isinstance(value, bool) else value for value in row) for row in rows)
    return sorted((row for row in converted if row[0] != SUCCESSOR), key=repr)
