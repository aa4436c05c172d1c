"""Writes the PostgreSQL database of a move.

A mark in the metadata says that the move is unfinished, and where it is. Each transaction that writes rows also
advances the mark, and fails if the mark is not where this move left it. So a delayed transaction of an earlier start
can't write rows twice.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import psycopg

from hookmill.domain.errors import Conflict
from hookmill.domain.ids import TeamId
from hookmill.store import dialect, metadata, moved
from hookmill.store.database import Database, Transaction
from hookmill.store.migrate import migrate
from hookmill.store.occupancy import OWN_TABLES, not_empty_error, relations, tables_with_rows
from hookmill.store.privileges import refuse_missing_privilege
from hookmill.store.revision import revisions, stored_revision
from hookmill.store.rows import postgres
from hookmill.store.rows.tables import TABLES, StoredTable, Values

BATCH_SECONDS: Final = 60
"""The longest time to write one batch of rows. Also the time to wait for a transaction of a move that was killed."""
START_AGAIN: Final = "To start again, create another empty database, and move to that one."


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePosition:
    """How far a move has come.

    The tables before `table` are copied, and the rows of `table` up to the one with the key `after`.
    """

    source: TeamId
    """Identifies the installation that is moved."""
    table: str
    after: Values = ()

    def to_text(self) -> str:
        values = [value.hex() if isinstance(value, bytes) else value for value in self.after]
        return json.dumps({"source": self.source, "table": self.table, "after": values})

    @classmethod
    def parse(cls, text: str) -> Self:
        fields = json.loads(text)
        (table,) = (table for table in TABLES if table.name == fields["table"])
        after = tuple(
            bytes.fromhex(value) if column.is_bytes else value
            for column, value in zip(table.key, fields["after"], strict=False)
        )
        return cls(source=TeamId(fields["source"]), table=table.name, after=after)

    @property
    def remaining_tables(self) -> Sequence[StoredTable]:
        """The tables that are not completely copied."""
        return TABLES[[table.name for table in TABLES].index(self.table) :]


# The state of the database


def unfinished_move(database: Database, source: TeamId) -> MovePosition | None:
    """The position of the unfinished move of this installation into the database; None if no move has begun.

    Then the database has no tables, or only those of this version, without rows. Raises `Conflict` for any other
    database, also for one with the tables of another version or with the move of another installation.
    """
    with database.read() as tx:
        present = relations(tx)
        if not present:
            return None
        own_schema = tx.one("SELECT current_schema() AS name")
        assert own_schema is not None
        own_tables = {name for schema_name, name in present if schema_name == own_schema["name"]}
        if {"metadata", "alembic_version"} <= own_tables:
            _refuse_other_version(tx)
        others = [f"{schema_name}.{name}" for schema_name, name in present]
        if own_tables == OWN_TABLES and len(present) == len(OWN_TABLES):
            if (mark := metadata.value(tx, moved.UNFINISHED)) is not None:
                return _own_position(mark, source)
            others = tables_with_rows(tx)
            if not others:
                return None
    raise not_empty_error(others, "move")


def begin_or_resume(database: Database, source: TeamId) -> tuple[MovePosition, bool]:
    """The position of the move, and whether it is one that was interrupted. Creates the tables, and marks the database.

    Raises `Conflict` like `unfinished_move`, and for a role that may not create tables.
    """
    with database.read() as tx:
        refuse_missing_privilege(tx)
    position = unfinished_move(database, source)
    migrate(database)
    if position is not None:
        return position, True
    with database.write() as tx:
        dialect.allow_long_statements(tx, BATCH_SECONDS)
        # Every service writes into this table first. One that starts now waits for this transaction, and then finds the
        # mark.
        tx.run("LOCK TABLE metadata IN SHARE ROW EXCLUSIVE MODE")
        if tables := tables_with_rows(tx):
            raise Conflict(
                f"Another process has written to the PostgreSQL database: {', '.join(tables)}. Nothing was moved. "
                f"{START_AGAIN}"
            )
        position = MovePosition(source=source, table=TABLES[0].name)
        metadata.set_value(tx, moved.UNFINISHED, position.to_text())
    return position, False


def _refuse_other_version(tx: Transaction) -> None:
    revision = stored_revision(tx)
    if revision != revisions()[-1]:
        raise Conflict(
            f"The PostgreSQL database has the tables of another version of Hookmill: its schema is {revision}, and "
            f"this version's is {revisions()[-1]}. If it holds an unfinished move, finish it with the version that "
            f"began it. {START_AGAIN} Nothing was changed."
        )


def _own_position(mark: str, source: TeamId) -> MovePosition:
    position = MovePosition.parse(mark)
    if position.source != source:
        raise Conflict(
            "The PostgreSQL database holds an unfinished move of another installation. Move this installation to "
            "another database. Nothing was changed."
        )
    return position


# Writing


def write_batch(
    database: Database, table: StoredTable, rows: Sequence[Values], position: MovePosition, next_position: MovePosition
) -> None:
    """Write rows of the table, and advance the move from `position` to `next_position`, in one transaction.

    Raises `StoreUnavailable`, and `Conflict` if another process moves too, or if a row contradicts an earlier one.
    """
    with database.write() as tx:
        dialect.allow_long_statements(tx, BATCH_SECONDS)
        advance(tx, position, next_position)
        try:
            postgres.write_rows(tx, table, rows)
        except psycopg.IntegrityError:
            raise Conflict(
                f"A row of the table {table.name} contradicts the rows that were copied earlier: the SQLite database "
                f"has changed since the move began. {START_AGAIN}"
            ) from None


def advance(tx: Transaction, position: MovePosition, next_position: MovePosition) -> None:
    """Advance the mark. Raises `Conflict` if another process has changed it."""
    if not metadata.replace_value(tx, moved.UNFINISHED, position.to_text(), next_position.to_text()):
        raise _superseded_error()


def finish(database: Database, position: MovePosition) -> None:
    """Remove the mark, so that services can use the database. Raises `Conflict` if another process has changed it."""
    with database.write() as tx:
        removed_rows = tx.run(
            "DELETE FROM metadata WHERE name = :name AND value = :value",
            name=moved.UNFINISHED,
            value=position.to_text().encode(),
        )
        if removed_rows != 1:
            raise _superseded_error()


def _superseded_error() -> Conflict:
    return Conflict("Another `hookmill move` uses the same PostgreSQL database. Let it finish. This one has stopped.")
