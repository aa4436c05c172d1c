"""The tables of the schema, in the order of the foreign keys.

Rows are tuples of the values that SQLite's driver returns: a boolean is 0 or 1.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from sqlalchemy import BigInteger, Boolean, Column, Integer, LargeBinary, SmallInteger, Table, Text
from sqlalchemy.types import TypeEngine

from hookmill.store import moved, schema

Values: TypeAlias = tuple[Any, ...]
"""The values of a row, in the order of the columns."""

_POSTGRES_TYPES: Final[Sequence[tuple[type[TypeEngine[Any]], str]]] = (
    (Boolean, "bool"),
    # The first class of a column's type counts: the first two classes of integers are subclasses of the third.
    (SmallInteger, "int2"),
    (BigInteger, "int8"),
    (Integer, "int4"),
    (LargeBinary, "bytea"),
    (Text, "text"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredColumn:
    """A column of a table."""

    name: str
    postgres_type: str

    @property
    def quoted(self) -> str:
        return f'"{self.name}"'

    @property
    def is_boolean(self) -> bool:
        return self.postgres_type == "bool"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTable:
    """A table, and the SQL that reads and writes its rows in the order of the primary key."""

    name: str
    columns: tuple[StoredColumn, ...]
    key: tuple[StoredColumn, ...]

    @property
    def quoted(self) -> str:
        return f'"{self.name}"'

    @property
    def column_list(self) -> str:
        return _listed(self.columns)

    @property
    def condition(self) -> str:
        """An SQL condition: which rows are copied."""
        return f"name <> '{moved.SUCCESSOR}'" if self.name == "metadata" else "1 = 1"

    def key_list(self, render: Callable[[StoredColumn], str] = lambda column: column.quoted) -> str:
        return _listed(self.key, render)


def _listed(
    columns: Sequence[StoredColumn], render: Callable[[StoredColumn], str] = lambda column: column.quoted
) -> str:
    return ", ".join(map(render, columns))


def _stored_column(column: Column[Any]) -> StoredColumn:
    postgres_type = next((name for sql_type, name in _POSTGRES_TYPES if isinstance(column.type, sql_type)), None)
    assert postgres_type is not None, f"add the type of {column} to `_POSTGRES_TYPES`"
    return StoredColumn(name=str(column.name), postgres_type=postgres_type)


def _stored_table(table: Table) -> StoredTable:
    return StoredTable(
        name=str(table.name),
        columns=tuple(map(_stored_column, table.columns)),
        key=tuple(map(_stored_column, table.primary_key)),
    )


TABLES: Final = tuple(map(_stored_table, schema.metadata.sorted_tables))
"""Every table of this version's schema. A table follows those to which its foreign keys refer."""

BATCH_ROWS: Final = 2_000
BATCH_BYTES: Final = 8 * 1024 * 1024
"""After this size of texts and bytes, no row is added to a batch."""


def batches(rows: Iterable[Values]) -> Iterator[Sequence[Values]]:
    """The rows in batches of up to `BATCH_ROWS` rows. No batch is empty."""
    batch: list[Values] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += sum(len(value) for value in row if isinstance(value, str | bytes))
        if len(batch) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
