"""The tables of the schema, in the order of the foreign keys.

Rows are tuples of the values that SQLite's driver returns: a boolean is 0 or 1.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from sqlalchemy import BigInteger, Boolean, Column, Integer, LargeBinary, MetaData, SmallInteger, Table, Text
from sqlalchemy.types import TypeEngine

from hookmill.store import moved, schema

Values: TypeAlias = tuple[Any, ...]
"""The values of a row, in the order of the columns; or those of its primary key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ColumnKind:
    """A type of columns."""

    postgres_type: str
    storable: str
    """An SQL condition for SQLite: whether PostgreSQL can store the value of `{column}`, which is not NULL."""


def _integer(postgres_type: str, size_bytes: int) -> _ColumnKind:
    limit = 1 << (8 * size_bytes - 1)
    storable = f"typeof({{column}}) = 'integer' AND {{column}} BETWEEN {-limit} AND {limit - 1}"
    return _ColumnKind(postgres_type=postgres_type, storable=storable)


_KINDS: Final[Sequence[tuple[type[TypeEngine[Any]], _ColumnKind]]] = (
    (Boolean, _ColumnKind(postgres_type="bool", storable="typeof({column}) = 'integer' AND {column} IN (0, 1)")),
    # The first class of a column's type counts: the first two classes of integers are subclasses of the third.
    (SmallInteger, _integer("int2", 2)),
    (BigInteger, _integer("int8", 8)),
    (Integer, _integer("int4", 4)),
    (LargeBinary, _ColumnKind(postgres_type="bytea", storable="typeof({column}) = 'blob'")),
    # PostgreSQL's text is UTF-8, without NUL. SQLite checks neither.
    (
        Text,
        _ColumnKind(
            postgres_type="text",
            storable="typeof({column}) = 'text' AND is_storable_text(CAST({column} AS BLOB))",
        ),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredColumn:
    """A column of a table."""

    name: str
    kind: _ColumnKind
    is_nullable: bool

    @property
    def quoted(self) -> str:
        return f'"{self.name}"'

    @property
    def is_bytes(self) -> bool:
        return self.kind.postgres_type == "bytea"

    @property
    def is_boolean(self) -> bool:
        return self.kind.postgres_type == "bool"

    @property
    def storable_in_sqlite(self) -> str:
        """An SQL condition for SQLite: whether PostgreSQL can store this column's value."""
        storable = self.kind.storable.format(column=self.quoted)
        return f"({self.quoted} IS NULL OR {storable})" if self.is_nullable else f"({storable})"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTable:
    """A table, and the SQL that reads and writes its rows in the order of the primary key."""

    name: str
    columns: tuple[StoredColumn, ...]
    key: tuple[StoredColumn, ...]
    key_positions: tuple[int, ...]
    """The positions of the primary key's columns in `columns`."""

    @property
    def quoted(self) -> str:
        return f'"{self.name}"'

    @property
    def column_list(self) -> str:
        return _listed(self.columns)

    @property
    def condition(self) -> str:
        """An SQL condition: which rows are copied."""
        if self.name != "metadata":
            return "1 = 1"
        marks = ", ".join(f"'{mark}'" for mark in moved.MARKS)
        return f"name NOT IN ({marks})"

    def key_of(self, row: Values) -> Values:
        return tuple(row[position] for position in self.key_positions)

    def key_list(self, render: Callable[[StoredColumn], str] = lambda column: column.quoted) -> str:
        return _listed(self.key, render)


def _listed(
    columns: Sequence[StoredColumn], render: Callable[[StoredColumn], str] = lambda column: column.quoted
) -> str:
    return ", ".join(map(render, columns))


def _stored_column(column: Column[Any]) -> StoredColumn:
    kind = next((kind for sql_type, kind in _KINDS if isinstance(column.type, sql_type)), None)
    assert kind is not None, f"add the type of {column} to `_KINDS`"
    return StoredColumn(name=str(column.name), kind=kind, is_nullable=bool(column.nullable))


def _stored_table(table: Table) -> StoredTable:
    columns = tuple(map(_stored_column, table.columns))
    positions = tuple(list(table.columns).index(column) for column in table.primary_key)
    return StoredTable(
        name=str(table.name),
        columns=columns,
        key=tuple(columns[position] for position in positions),
        key_positions=positions,
    )


def tables_of(metadata: MetaData) -> tuple[StoredTable, ...]:
    """The tables of the schema. A table follows those to which its foreign keys refer."""
    return tuple(map(_stored_table, metadata.sorted_tables))


TABLES: Final = tables_of(schema.metadata)
"""Every table of this version's schema."""

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
