"""Migrates a database to this version's schema in one transaction. It rejects databases of newer versions."""

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, inspect

from hookmill.domain.errors import Conflict, Invalid
from hookmill.store import dialect
from hookmill.store.database import Database, Transaction, is_sqlite_file, restrict_to_owner
from hookmill.store.private_file import locked_directory, open_lock_file
from hookmill.store.privileges import refuse_missing_privilege
from hookmill.store.revision import application_name, revisions

if TYPE_CHECKING:
    from alembic.config import Config

WAIT_SECONDS: Final = 600
"""The time that a statement of a migration may take, and the time to wait for another process's migration."""
_MIGRATIONS_DIRECTORY: Final = Path(__file__).parent / "migrations"
_MIGRATION_LOCK: Final = 0x686F6F6B
"""The number of PostgreSQL's advisory lock for migrations: "hook" in ASCII."""


def migrate(database: Database, *, to: str = "head") -> bool:
    """Migrate the database to a revision, by default the newest. Returns whether anything changed.

    Raises `Conflict` for a database of a newer version, while processes of another version use the database, and for a
    role that may not create tables. Raises `Invalid` for a file that is not a SQLite database, and for an unsuitable
    connection pooler. Raises `StoreUnavailable`.
    """
    if database.path is not None:
        _refuse_foreign_file(database.path)
        # SQLite creates the WAL files, which contain the same data, with the mode of the database file.
        with suppress(OSError):
            database.path.touch(mode=0o600)
    else:
        # Imported here, because it loads the driver.
        from hookmill.store.pooler import refuse_pooler

        refuse_pooler(database)
    with database.write() as tx:
        connection = tx.connection
        # Another process's migration may take longer than the default timeouts.
        dialect.allow_long_statements(tx, WAIT_SECONDS)
        dialect.lock(tx, _MIGRATION_LOCK)
        current = stored_revision(connection)
        if current is not None and current not in revisions():
            raise Conflict(
                f"The database has schema {current}, which a newer version of Hookmill has written. "
                "Start that version, or restore an older backup. Nothing was changed."
            )
        if current == revisions()[-1]:
            return False
        refuse_missing_privilege(tx)
        with _excluding_other_versions(tx, database) if current is not None else nullcontext():
            _upgrade(connection, to)
    if database.path is not None:
        restrict_to_owner(database.path)
    return True


def create_schema(tx: Transaction, *, revision: str) -> None:
    """Create the tables of a revision in an empty database. Every other migration waits until the transaction ends.

    Raises `Conflict` for a role that may not create tables.
    """
    dialect.allow_long_statements(tx, WAIT_SECONDS)
    dialect.lock(tx, _MIGRATION_LOCK)
    refuse_missing_privilege(tx)
    _upgrade(tx.connection, revision)


def upgrade_schema(tx: Transaction) -> None:
    """Migrate the tables that `create_schema` has created in this transaction to this version's schema."""
    _upgrade(tx.connection, "head")


def refuse_other_revision(tx: Transaction) -> None:
    """Raises `Conflict` unless the database has this version's schema."""
    revision = stored_revision(tx.connection)
    if revision != revisions()[-1]:
        raise Conflict(
            f"The database has schema {revision or 'none'}, and this version needs {revisions()[-1]}. Run "
            "`hookmill migrate`, or use the version that has written the database. Nothing was changed."
        )


@contextmanager
def _excluding_other_versions(tx: Transaction, database: Database) -> Iterator[None]:
    """Raises `Conflict` while processes of other versions use the database. On SQLite, none can start before the block
    ends. Other versions would write rows that this version misreads, and ignore columns that they don't know."""
    if database.path is not None:
        # `serve` takes this lock after its own migration, and holds it while it runs.
        with ExitStack() as locks:
            lock = locks.enter_context(open_lock_file(database.path.parent / "serve.lock"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                locks.enter_context(locked_directory(database.path.parent))
            except BlockingIOError:
                raise Conflict(
                    f"The database in {database.path.parent} has an older schema, and a `hookmill serve` uses it. "
                    "Stop it, and then start this version. Nothing was changed."
                ) from None
            yield
        return
    rows = tx.all(
        """
        SELECT DISTINCT COALESCE(host(client_addr), 'this host') AS host
        FROM pg_stat_activity
        WHERE datname = current_database() AND application_name LIKE 'hookmill%'
            AND application_name NOT LIKE :own || '%'
        ORDER BY 1
        """,
        own=application_name(),
    )
    if rows:
        raise Conflict(
            "The database has an older schema, and processes of another version of Hookmill use it, on "
            f"{', '.join(row['host'] for row in rows)}. Stop them, and then start this version. Nothing was changed."
        )
    yield


def stored_revision(connection: Connection) -> str | None:
    """The revision of the database's schema; None if the database has no schema of this service."""
    # Without Alembic: importing it would take more time than all the rest of most starts.
    if not inspect(connection).has_table("alembic_version"):
        return None
    row = connection.exec_driver_sql("SELECT version_num FROM alembic_version").first()
    return str(row[0]) if row is not None else None


def _upgrade(connection: Connection, to: str) -> None:
    from alembic import command

    command.upgrade(_alembic_config(connection), to)


def _alembic_config(connection: Connection) -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS_DIRECTORY))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _refuse_foreign_file(path: Path) -> None:
    if path.exists() and path.stat().st_size and not is_sqlite_file(path):
        raise Invalid(f"{path} is not a SQLite database. Move it, or set HOOKMILL_DATA_DIR to another directory.")
