"""Writes the records of a backup into an empty database, in one transaction."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from sqlalchemy.exc import SQLAlchemyError

from hookmill.domain.errors import Conflict, Invalid
from hookmill.store.backup.container import GET_ANOTHER, UnusableBackup
from hookmill.store.backup.records import BackupSnapshot, PackageFile, Record, Rows, Summary
from hookmill.store.database import Transaction
from hookmill.store.migrate import create_schema, refuse_other_revision
from hookmill.store.occupancy import OWN_TABLES, not_empty_error, relations, tables_with_rows
from hookmill.store.rows import ReportRows, postgres, sqlite
from hookmill.store.rows.digest import RowDigest
from hookmill.store.rows.tables import TABLES, StoredTable, Values, batches


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedBackup:
    snapshot: BackupSnapshot
    summary: Summary


def require_empty(tx: Transaction) -> bool:
    """Whether the PostgreSQL database has this version's tables already, without rows. Raises `Conflict` unless it has
    these tables or none."""
    present = relations(tx)
    if not present:
        return False
    row = tx.one("SELECT current_schema() AS name")
    assert row is not None
    others = [f"{namespace}.{name}" for namespace, name in present]
    own_tables = {name for namespace, name in present if namespace == row["name"]}
    if own_tables == OWN_TABLES and len(present) == len(OWN_TABLES):
        others = tables_with_rows(tx)
        if not others:
            refuse_other_revision(tx)
            return True
    raise not_empty_error(others)


def create_tables(tx: Transaction) -> None:
    """Create this version's tables, unless they exist. Raises `Conflict` if the database is not empty."""
    if tx.on_sqlite or not require_empty(tx):
        create_schema(tx)


def load(
    tx: Transaction,
    records: Iterator[Record],
    *,
    add_package_file: Callable[[PackageFile], None],
    report: ReportRows,
) -> LoadedBackup:
    """Write all rows, and read them back. `records` are those after the header and the keys.

    `add_package_file` gets the files of packages. Raises `UnusableBackup`; `Conflict` if the database does not have
    what was written to it; and `Invalid` for a value that PostgreSQL can't store.
    """
    tables: dict[str, StoredTable] = {}
    snapshot: BackupSnapshot | None = None
    digests: dict[str, RowDigest] = {}
    summary: Summary | None = None
    for record in records:
        if summary is not None:
            raise _contradiction("records follow its summary")
        match record:
            case PackageFile() if snapshot is None:
                add_package_file(record)
            case BackupSnapshot() if snapshot is None:
                snapshot = record
                tables = _tables_of_snapshot(snapshot)
                digests = {table.name: RowDigest(tables[table.name]) for table in snapshot.tables}
                report("copying", 0, snapshot.rows)
            case Rows() if snapshot is not None and record.table in digests:
                _write(tx, tables[record.table], record.rows)
                digests[record.table].add(record.rows)
                report("copying", len(record.rows), snapshot.rows)
            case Summary() if snapshot is not None:
                summary = record
            case _:
                raise _contradiction("a record is not at its place")
    if snapshot is None or summary is None:
        raise _contradiction("it has no summary")
    if [digest.result() for digest in digests.values()] != summary.tables:
        raise _contradiction("its rows are not those that its summary describes")
    _continue_numbers(tx, snapshot, tables)
    _compare(tx, tables, summary, snapshot.rows, report)
    return LoadedBackup(snapshot=snapshot, summary=summary)


def _tables_of_snapshot(snapshot: BackupSnapshot) -> dict[str, StoredTable]:
    tables = {table.name: table for table in TABLES}
    for description in snapshot.tables:
        table = tables.get(description.name)
        if table is None or [column.name for column in table.columns] != list(description.columns):
            raise _contradiction(f"the table {description.name[:80]!r} is not one of its schema")
    return tables


def _write(tx: Transaction, table: StoredTable, rows: Sequence[Values]) -> None:
    if any(len(row) != len(table.columns) for row in rows):
        raise _contradiction(f"a row of {table.name} has too many or too few values")
    with _naming_table(table):
        if tx.on_sqlite:
            sqlite.write_rows(tx, table, rows)
        else:
            postgres.write_rows(tx, table, rows)


@contextmanager
def _naming_table(table: StoredTable) -> Iterator[None]:
    """Convert errors about rows that a database refuses."""
    try:
        yield
    except (psycopg.DataError, TypeError, OverflowError) as error:
        raise Invalid(
            f"PostgreSQL can't store a value of the table {table.name}, which SQLite had. Hookmill writes no such "
            "values. Correct the row in the SQLite database first. Nothing was changed."
        ) from error
    except (psycopg.IntegrityError, SQLAlchemyError) as error:
        if isinstance(error, SQLAlchemyError) and type(error).__name__ != "IntegrityError":
            raise
        raise _contradiction(f"rows of {table.name} contradict others") from error


def _continue_numbers(tx: Transaction, snapshot: BackupSnapshot, tables: dict[str, StoredTable]) -> None:
    for name, number in snapshot.numbers.items():
        if name not in tables:
            raise _contradiction(f"the table {name[:80]!r} is not one of its schema")
        if tx.on_sqlite:
            sqlite.continue_numbers(tx, tables[name], number)
        else:
            postgres.continue_numbers(tx, tables[name], number)


def _compare(
    tx: Transaction, tables: dict[str, StoredTable], expected: Summary, total: int, report: ReportRows
) -> None:
    """Raises `Conflict` if the database returns other rows than were written to it."""
    report("comparing", 0, total)
    read_rows = sqlite.read_rows if tx.on_sqlite else postgres.read_rows
    for written in expected.tables:
        table = tables[written.name]
        digest = RowDigest(table)
        for rows in batches(read_rows(tx, table)):
            digest.add(rows)
            report("comparing", len(rows), total)
        if digest.result() != written:
            raise Conflict(
                f"The written table {table.name} differs from what was read. Nothing was changed. Another program may "
                "have written to the database, its disk may be damaged, or it can't store one of the values."
            )


def _contradiction(what: str) -> UnusableBackup:
    return UnusableBackup(f"The backup contradicts itself: {what}. {GET_ANOTHER}")
