"""Checks of the tables themselves: this version's schema, and the structure of SQLite's file."""

from collections.abc import Iterator
from typing import Final

from sqlalchemy import inspect
from sqlalchemy.exc import DatabaseError

from hookmill.store import schema
from hookmill.store.verification.snapshot import DatabaseProblem, DatabaseSnapshot

SCHEMA: Final = "schema"
FILE_DAMAGED: Final = "file_damaged"
FAULTS_MAX: Final = 100
_RESTORE: Final = "Stop the service, and restore the newest backup that verifies (docs/backup.md)."
_MIGRATE: Final = "Restore a backup into an empty database, which creates the right schema (docs/backup.md)."


def check_sqlite_file(snapshot: DatabaseSnapshot) -> Iterator[DatabaseProblem]:
    """What SQLite says about its file. PostgreSQL has no such check."""
    tx = snapshot.tx
    if not tx.on_sqlite:
        return
    try:
        faults = tx.scalars(f"PRAGMA integrity_check({FAULTS_MAX})")
    except DatabaseError as error:
        faults = [str(error.orig)]
    for fault in faults:
        if fault != "ok":
            yield DatabaseProblem(FILE_DAMAGED, "the SQLite file", f"SQLite reports: {fault}.", _RESTORE)
    if faults != ["ok"]:
        return
    for row in tx.all("PRAGMA foreign_key_check")[:FAULTS_MAX]:
        yield DatabaseProblem(
            "foreign_key",
            f"{row['table']}, row {row['rowid']}",
            f"It refers to a row of {row['parent']} that does not exist.",
            _RESTORE,
        )


def check_schema(snapshot: DatabaseSnapshot) -> Iterator[DatabaseProblem]:
    """Whether every table has the columns and indexes of this version's schema. Its revision was checked before."""
    inspector = inspect(snapshot.tx.connection)
    present = set(inspector.get_table_names())
    for table in schema.metadata.sorted_tables:
        if table.name not in present:
            yield DatabaseProblem(SCHEMA, f"the table {table.name}", "It does not exist.", _MIGRATE)
            continue
        columns = {column["name"] for column in inspector.get_columns(table.name)}
        expected = {column.name for column in table.columns}
        for name in sorted(columns ^ expected):
            text = "It does not exist." if name in expected else "This version's schema does not have it."
            yield DatabaseProblem(SCHEMA, f"the column {table.name}.{name}", text, _MIGRATE)
        indexes = {index["name"] for index in inspector.get_indexes(table.name)}
        for index in table.indexes:
            if index.name not in indexes:
                yield DatabaseProblem(
                    SCHEMA,
                    f"the index {index.name}",
                    f"It does not exist, so {table.name} is slow, or has rows that contradict each other.",
                    _MIGRATE,
                )
