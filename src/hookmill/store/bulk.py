"""Statements with many rows, so that a batch of deliveries needs only a few statements.

PostgreSQL takes one array for each column. SQLite takes a list of `VALUES`, padded with rows of 0 to the next power of
two, so that the driver prepares each statement in only a few sizes.

Values should be `int`, `str` or `bytearray`. The SQLite driver looks up an adapter for each `bytes`, `None` and enum
member, which takes three to ten times as long as binding the value.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import CursorResult

from hookmill.store.database import Transaction

ROWS_MAX: Final = 1024
"""The maximum number of rows of one statement. SQLite allows 32,766 parameters, and no statement has more
than thirty columns."""


@dataclass(frozen=True, slots=True)
class RowStatement:
    """SQL that contains `{rows}`, and PostgreSQL's type of each column of these rows.

    The first column is never 0, because on SQLite the statement skips rows of padding by it.
    """

    sql: str
    types: tuple[str, ...]

    def execute(self, tx: Transaction, rows: Sequence[tuple[Any, ...]]) -> int:
        """The total number of rows that the statement changed."""
        return sum(result.rowcount for result in self._results(tx, rows))

    def select(self, tx: Transaction, rows: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The rows that the statement returns."""
        return [row for result in self._results(tx, rows) for row in result.fetchall()]

    def _results(self, tx: Transaction, rows: Sequence[tuple[Any, ...]]) -> list[CursorResult[Any]]:
        batches = [rows[start : start + ROWS_MAX] for start in range(0, len(rows), ROWS_MAX)]
        if not tx.on_sqlite:
            return [tx.bulk(_for_postgres(self), tuple(map(list, zip(*batch, strict=True)))) for batch in batches]
        return [tx.bulk(*_for_sqlite(self, batch)) for batch in batches]


def _for_sqlite(statement: RowStatement, rows: Sequence[tuple[Any, ...]]) -> tuple[str, tuple[Any, ...]]:
    size = 1 << (len(rows) - 1).bit_length()
    padding = (0,) * (len(statement.types) * (size - len(rows)))
    return _sqlite_text(statement, size), (*(value for row in rows for value in row), *padding)


@lru_cache(maxsize=256)
def _sqlite_text(statement: RowStatement, size: int) -> str:
    row_placeholder = "(" + ", ".join("?" * len(statement.types)) + ")"
    values = ", ".join([row_placeholder] * size)
    return statement.sql.format(rows=f"SELECT * FROM (VALUES {values}) WHERE column1 <> 0")


@lru_cache(maxsize=64)
def _for_postgres(statement: RowStatement) -> str:
    # `%b` is the binary format. In the text format, a body would be twice as long and escaped twice.
    arrays = ", ".join(
        f"{'%b' if column_type == 'bytea' else '%s'}::{column_type}[]" for column_type in statement.types
    )
    return statement.sql.format(rows=f"SELECT * FROM unnest({arrays})")
