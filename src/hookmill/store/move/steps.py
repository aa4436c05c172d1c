"""The steps of a move: check the rows, copy them in batches, and compare both databases."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import msgspec

from hookmill.domain.errors import Conflict
from hookmill.store.database import Database, Transaction
from hookmill.store.move import source, target
from hookmill.store.move.tables import TABLES, MovedTable, Values
from hookmill.store.move.target import MovePosition

BATCH_ROWS: Final = 2_000
BATCH_BYTES: Final = 8 * 1024 * 1024
"""After this size of texts and bytes, no row is added to a batch."""
REPORT_ROWS: Final = 1_000
"""Progress of a comparison is reported after so many rows."""


class MovePhase(StrEnum):
    """What a move does at the moment. The values are for people."""

    CHECKING = "checking"
    COPYING = "copying"
    COMPARING = "comparing"
    """Both databases are read, so each row counts twice."""


ReportRows = Callable[[MovePhase, int, int], None]
"""Receives the phase, the number of rows since the last call of this phase, and the total number of rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDigest:
    """The number of a table's rows, and the SHA-256 of all their values in the order of the keys."""

    table: str
    rows: int
    sha256: str


def check(tx: Transaction, report: ReportRows) -> int:
    """Check that PostgreSQL can store every row, and return their number. Raises `Invalid` with rows that it can't."""
    counts = {table.name: source.count_rows(tx, table) for table in TABLES}
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
    copied_rows = sum(source.count_rows(tx, table) for table in finished_tables)
    if position.after:
        copied_rows += source.count_rows(tx, remaining_tables[0], up_to=position.after)
    report(MovePhase.COPYING, copied_rows, total)
    for table in remaining_tables:
        after = position.after if table.name == position.table else ()
        for rows in _batches(source.read_rows(tx, table, after)):
            next_position = replace(position, table=table.name, after=table.key_of(rows[-1]))
            target.write_batch(database, table, rows, position, next_position)
            position = next_position
            report(MovePhase.COPYING, len(rows), total)
    _continue_sequences(tx, database)
    target.analyze(database)
    return position


def _continue_sequences(tx: Transaction, database: Database) -> None:
    numbered_tables = [table for table in TABLES if len(table.key) == 1 and table.key[0].is_integer]
    with database.write() as target_tx:
        for table in numbered_tables:
            target.set_sequence(target_tx, table, source.highest_number(tx, table))


def _batches(rows: Iterable[Values]) -> Iterator[Sequence[Values]]:
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


def compare(tx: Transaction, database: Database, total: int, report: ReportRows) -> Sequence[TableDigest]:
    """Compare every table of SQLite (`tx`) and PostgreSQL (`database`). Raises `Conflict` with those that differ."""
    report(MovePhase.COMPARING, 0, total * 2)
    digests, differences = [], []
    for table in TABLES:
        expected = _digest(table, source.read_rows(tx, table), total, report)
        copied = _digest(table, target.read_rows(database, table), total, report)
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


def _digest(table: MovedTable, rows: Iterable[Values], total: int, report: ReportRows) -> TableDigest:
    encode = msgspec.msgpack.Encoder().encode
    digest = hashlib.sha256()
    count = 0
    for count, row in enumerate(rows, 1):
        # MessagePack distinguishes types and lengths, so different rows have different encodings.
        digest.update(encode(row))
        if count % REPORT_ROWS == 0:
            report(MovePhase.COMPARING, REPORT_ROWS, total * 2)
    report(MovePhase.COMPARING, count % REPORT_ROWS, total * 2)
    return TableDigest(table=table.name, rows=count, sha256=digest.hexdigest())


def count_unfinished_runs(tx: Transaction) -> int:
    row = tx.one("SELECT COUNT(*) AS number FROM runs WHERE finished_at IS NULL")
    return int(row["number"]) if row is not None else 0
