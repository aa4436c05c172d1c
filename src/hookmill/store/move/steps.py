"""The steps of a move: check the rows, copy them in batches, and compare both databases."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum

from hookmill.domain.errors import Conflict
from hookmill.store.database import Database, Transaction
from hookmill.store.move import source, target
from hookmill.store.move.target import MovePosition
from hookmill.store.rows import postgres, sqlite
from hookmill.store.rows.digest import TableDigest, digest_of
from hookmill.store.rows.tables import TABLES, StoredTable, Values, batches


class MovePhase(StrEnum):
    """The current step of a move. The values are for people."""

    CHECKING = "checking"
    COPYING = "copying"
    COMPARING = "comparing"
    """Both databases are read, so each row counts twice."""


ReportRows = Callable[[MovePhase, int, int], None]
"""Receives the phase, the number of rows since the last call of this phase, and the total number of rows."""


def check(tx: Transaction, report: ReportRows) -> int:
    """Check that PostgreSQL can store every row, and return their number. Raises `Invalid` with rows that it can't."""
    counts = {table.name: sqlite.count_rows(tx, table) for table in TABLES}
    total = sum(counts.values())
    report(MovePhase.CHECKING, 0, total)
    for table in TABLES:
        source.refuse_unstorable(tx, table)
        report(MovePhase.CHECKING, counts[table.name], total)
    return total


def copy(tx: Transaction, database: Database, position: MovePosition, total: int, report: ReportRows) -> MovePosition:
    """Copy the rows after the position from SQLite (`tx`) to PostgreSQL (`database`). Returns the last position.

    Raises `StoreUnavailable`, and `Conflict` like `target.write_batch`.
    """
    remaining_tables = position.remaining_tables
    finished_tables = TABLES[: len(TABLES) - len(remaining_tables)]
    copied_rows = sum(sqlite.count_rows(tx, table) for table in finished_tables)
    if position.after:
        copied_rows += sqlite.count_rows(tx, remaining_tables[0], up_to=position.after)
    report(MovePhase.COPYING, copied_rows, total)
    for table in remaining_tables:
        after = position.after if table.name == position.table else ()
        for rows in batches(sqlite.read_rows(tx, table, after)):
            next_position = replace(position, table=table.name, after=table.key_of(rows[-1]))
            target.write_batch(database, table, rows, position, next_position)
            position = next_position
            report(MovePhase.COPYING, len(rows), total)
    _continue_numbers(tx, database)
    return position


def _continue_numbers(tx: Transaction, database: Database) -> None:
    numbers = sqlite.generated_numbers(tx)
    with database.write() as target_tx:
        for table in TABLES:
            if (number := numbers.get(table.name)) is not None:
                postgres.continue_numbers(target_tx, table, number)
        postgres.analyze(target_tx, TABLES)


def compare(tx: Transaction, database: Database, total: int, report: ReportRows) -> Sequence[TableDigest]:
    """Compare every table of SQLite (`tx`) and PostgreSQL (`database`). Raises `Conflict` with those that differ."""
    report(MovePhase.COMPARING, 0, total * 2)
    digests, differences = [], []
    for table in TABLES:
        expected = _digest(table, sqlite.read_rows(tx, table), total, report)
        copied = _digest(table, _rows_of(database, table), total, report)
        digests.append(expected)
        if copied.rows != expected.rows:
            differences.append(f"  {table.name}: SQLite has {expected.rows:,} rows, PostgreSQL has {copied.rows:,}")
        elif copied != expected:
            differences.append(f"  {table.name}: the contents of its {expected.rows:,} rows differ")
    if differences:
        raise Conflict(
            "The databases differ in these tables:\n"
            + "\n".join(differences)
            + "\nEither the SQLite database has changed since the move began, or another program has written to "
            f"PostgreSQL. The SQLite database is still in use, and complete. {target.START_AGAIN}"
        )
    return digests


def _rows_of(database: Database, table: StoredTable) -> Iterator[Values]:
    with database.read() as tx:
        yield from postgres.read_rows(tx, table)


def _digest(table: StoredTable, rows: Iterable[Values], total: int, report: ReportRows) -> TableDigest:
    return digest_of(table, rows, lambda number: report(MovePhase.COMPARING, number, total * 2))


def count_unfinished_runs(tx: Transaction) -> int:
    row = tx.one("SELECT COUNT(*) AS number FROM runs WHERE finished_at IS NULL")
    return int(row["number"]) if row is not None else 0
