"""Digests of the tables of a database, to compare all rows before and after a change of the schema."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

import sqlalchemy as sa

_BATCH: Final = 10_000


@dataclass(frozen=True, slots=True)
class TableDigest:
    columns: tuple[str, ...]
    rows: int
    digest: int
    """The sum of the hashes of all rows."""


def engine_of(url: str) -> sa.Engine:
    return sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))


def digests_of_tables(url: str, columns: Mapping[str, tuple[str, ...]] | None = None) -> dict[str, TableDigest]:
    """Each table with all its rows, in these columns. Without `columns`: all columns of all tables."""
    engine = engine_of(url)
    try:
        if columns is None:
            inspector = sa.inspect(engine)
            columns = {
                name: tuple(str(column["name"]) for column in inspector.get_columns(name))
                for name in inspector.get_table_names()
                if name != "alembic_version"
            }
        with closing(engine.connect()) as connection:
            return {
                name: TableDigest(names, *_digest(connection, f"SELECT {', '.join(names)} FROM {name}"))
                for name, names in columns.items()
            }
    finally:
        engine.dispose()


def digests_of_queries(url: str, *queries: str) -> list[tuple[int, int]]:
    """For each query, the number of its rows, and the sum of their hashes."""
    engine = engine_of(url)
    try:
        with closing(engine.connect()) as connection:
            return [_digest(connection, query) for query in queries]
    finally:
        engine.dispose()


def _digest(connection: sa.Connection, query: str) -> tuple[int, int]:
    rows = digest = 0
    streamed = connection.execution_options(stream_results=True, yield_per=_BATCH)
    for row in streamed.exec_driver_sql(query):
        rows += 1
        digest += int.from_bytes(sha256(repr(tuple(row)).encode("utf-8", "surrogatepass")).digest(), "big")
    return rows, digest % 2**256
