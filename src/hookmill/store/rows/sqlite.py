"""Reads and writes rows of SQLite."""

from collections.abc import Iterator, Sequence

from hookmill.store.database import Transaction
from hookmill.store.rows.tables import TABLES, StoredTable, Values


def read_rows(tx: Transaction, table: StoredTable, after: Values = ()) -> Iterator[Values]:
    """The rows in the order of their keys, one at a time. `after` is the key of the row before the first one."""
    condition = f" AND ({table.key_list()}) > ({_placeholders(after)})" if after else ""
    query = f"SELECT {table.column_list} FROM {table.quoted} WHERE {table.condition}{condition}"
    return map(tuple, tx.bulk(f"{query} ORDER BY {table.key_list()}", after))


def write_rows(tx: Transaction, table: StoredTable, rows: Sequence[Values]) -> None:
    """Insert these rows."""
    places = _placeholders(table.columns)
    tx.bulk_many(f"INSERT INTO {table.quoted} ({table.column_list}) VALUES ({places})", rows)


def count_rows(tx: Transaction, table: StoredTable, up_to: Values = ()) -> int:
    """The number of rows, or of those up to the row with the key `up_to`."""
    condition = f" AND ({table.key_list()}) <= ({_placeholders(up_to)})" if up_to else ""
    result = tx.bulk(f"SELECT COUNT(*) FROM {table.quoted} WHERE {table.condition}{condition}", up_to)
    return int(result.scalar_one())


def generated_numbers(tx: Transaction) -> dict[str, int]:
    """The highest number that SQLite has generated for a key, even if that row is deleted, by the table's name."""
    numbers = {row["name"]: int(row["seq"]) for row in tx.all("SELECT name, seq FROM sqlite_sequence")}
    for table in TABLES:
        if table.name in numbers:
            row = tx.one(f"SELECT MAX({table.key[0].quoted}) AS number FROM {table.quoted}")
            numbers[table.name] = max(numbers[table.name], int(row["number"] or 0) if row is not None else 0)
    return numbers


def continue_numbers(tx: Transaction, table: StoredTable, after: int) -> None:
    """Let generated keys of this table continue after the number."""
    tx.run("DELETE FROM sqlite_sequence WHERE name = :name", name=table.name)
    tx.run("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :number)", name=table.name, number=after)


def _placeholders(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
