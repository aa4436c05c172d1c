"""Reads and writes rows of SQLite."""

from collections.abc import Iterator, Sequence

from sqlalchemy.exc import OperationalError

from hookmill.domain.errors import Invalid
from hookmill.store.database import Transaction
from hookmill.store.rows.tables import TABLES, StoredTable, Values


def read_rows(tx: Transaction, table: StoredTable) -> Iterator[Values]:
    """The rows in the order of their keys, one at a time. Raises `Invalid` for a text that is not UTF-8."""
    query = f"SELECT {table.column_list} FROM {table.quoted} WHERE {table.condition} ORDER BY {table.key_list()}"
    try:
        yield from map(tuple, tx.bulk(query, ()))
    except OperationalError as error:
        if "decode to UTF-8" not in str(error.orig):
            raise
        raise Invalid(
            f"A text of the table {table.name} is not UTF-8. Hookmill writes no such values. Correct the row in the "
            "SQLite database first. Nothing was changed."
        ) from error


def write_rows(tx: Transaction, table: StoredTable, rows: Sequence[Values]) -> None:
    """Insert these rows."""
    places = ", ".join("?" * len(table.columns))
    tx.bulk_many(f"INSERT INTO {table.quoted} ({table.column_list}) VALUES ({places})", rows)


def generated_numbers(tx: Transaction) -> dict[str, int]:
    """The highest number that SQLite has generated for a key, even if that row is deleted, by the table's name."""
    numbers = {row["name"]: int(row["seq"]) for row in tx.all("SELECT name, seq FROM sqlite_sequence")}
    for table in TABLES:
        if table.name in numbers:
            highest = tx.scalar(f"SELECT MAX({table.key[0].quoted}) FROM {table.quoted}")
            numbers[table.name] = max(numbers[table.name], highest or 0)
    return numbers


def continue_numbers(tx: Transaction, table: StoredTable, after: int) -> None:
    """Let generated keys of this table continue after the number."""
    tx.run("DELETE FROM sqlite_sequence WHERE name = :name", name=table.name)
    tx.run("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :number)", name=table.name, number=after)
