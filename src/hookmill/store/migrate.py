"""Migrates a database to this version's schema in one transaction. It rejects schemas that it does not know."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection

from hookmill.domain.errors import Conflict, Invalid
from hookmill.store import dialect
from hookmill.store.database import Database, Transaction, is_sqlite_file, restrict_to_owner
from hookmill.store.privileges import refuse_missing_privilege
from hookmill.store.revision import VERSIONS, refuse_unknown_schema, revisions, stored_revision

if TYPE_CHECKING:
    from alembic.config import Config

WAIT_SECONDS: Final = 600
"""The time that a statement of a migration may take, and the time to wait for another process's migration."""
_MIGRATION_LOCK: Final = 0x686F6F6B
"""The number of PostgreSQL's advisory lock for migrations: "hook" in ASCII."""


def migrate(database: Database) -> bool:
    """Migrate the database to this version's schema. Returns whether anything changed.

    Raises `Conflict` for a database of another version whose schema this one doesn't know, and for a role that may not
    create tables. Raises `Invalid` for a file that is not a SQLite database, and for an unsuitable connection pooler.
    Raises `StoreUnavailable`.
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
        # Another process's migration may take longer than the default timeouts.
        dialect.allow_long_statements(tx, WAIT_SECONDS)
        dialect.lock(tx, _MIGRATION_LOCK)
        refuse_unknown_schema(tx)
        if stored_revision(tx) == revisions()[-1]:
            return False
        refuse_missing_privilege(tx)
        upgrade(tx.connection)
    if database.path is not None:
        restrict_to_owner(database.path)
    return True


def create_schema(tx: Transaction) -> None:
    """Create this version's tables in an empty database. Every other migration waits until the transaction ends.

    Raises `Conflict` for a role that may not create tables.
    """
    dialect.allow_long_statements(tx, WAIT_SECONDS)
    dialect.lock(tx, _MIGRATION_LOCK)
    refuse_missing_privilege(tx)
    upgrade(tx.connection)


def refuse_other_revision(tx: Transaction) -> None:
    """Raises `Conflict` unless the database has this version's schema."""
    revision = stored_revision(tx)
    if revision != revisions()[-1]:
        raise Conflict(
            f"The database has schema {revision or 'none'}, and this version needs {revisions()[-1]}. Run "
            "`hookmill migrate`, or use the version that has written the database. Nothing was changed."
        )


def upgrade(connection: Connection, versions: Path = VERSIONS) -> None:
    """Run the migrations of the directory that the database lacks."""
    from alembic import command

    command.upgrade(alembic_config(connection, versions), "head")


def alembic_config(connection: Connection, versions: Path = VERSIONS) -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(VERSIONS.parent))
    config.set_main_option("version_locations", str(versions))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _refuse_foreign_file(path: Path) -> None:
    if path.exists() and path.stat().st_size and not is_sqlite_file(path):
        raise Invalid(f"{path} is not a SQLite database. Move it, or set HOOKMILL_DATA_DIR to another directory.")
