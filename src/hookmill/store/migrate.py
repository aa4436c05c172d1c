"""Migrates a database to this version's schema in one transaction. It rejects databases of newer versions."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, inspect

from hookmill.domain.errors import Conflict, Invalid
from hookmill.store import dialect
from hookmill.store.database import Database, is_sqlite_file, restrict_to_owner
from hookmill.store.rights import refuse_missing_rights

if TYPE_CHECKING:
    from alembic.config import Config

WAIT_SECONDS: Final = 600
_STEPS: Final = Path(__file__).parent / "migrations"
_LOCK: Final = 0x686F6F6B
"""PostgreSQL's advisory lock for migrations: "hook"."""


def migrate(database: Database, *, to: str = "head", performs_runs: bool = False) -> bool:
    """Migrate the database to a revision, by default the newest. Returns whether anything changed.

    Raises `Conflict` for a database of a newer version, and for a role without the privileges for the migration. If
    `performs_runs`, the role also needs the privileges for the engine that performs runs.
    """
    if database.path is not None:
        _refuse_other_files(database.path)
        # SQLite creates the WAL files, which contain the same data, with the mode of the database file.
        with suppress(OSError):
            database.path.touch(mode=0o600)
    with database.write() as tx:
        connection = tx.connection
        # Another process's migration may take longer than the default timeouts.
        dialect.allow_long_statements(tx, WAIT_SECONDS)
        dialect.lock(tx, _LOCK)
        current = _revision_of(connection)
        if current is not None and current not in revisions():
            raise Conflict(
                f"The database has schema {current}, which a newer version of Hookmill has written. "
                "Start that version, or restore an older backup. Nothing was changed."
            )
        is_current = current == revisions()[-1]
        refuse_missing_rights(tx, creates_tables=not is_current, performs_runs=performs_runs)
        if is_current:
            return False
        _upgrade(connection, to)
    if database.path is not None:
        restrict_to_owner(database.path)
    return True


def revisions() -> list[str]:
    """This version's migrations, oldest first. A file name begins with its revision."""
    return sorted(path.name.partition("_")[0] for path in (_STEPS / "versions").glob("[0-9]*_*.py"))


def _revision_of(connection: Connection) -> str | None:
    # Without Alembic, because importing it takes longer than most starts.
    if not inspect(connection).has_table("alembic_version"):
        return None
    row = connection.exec_driver_sql("SELECT version_num FROM alembic_version").first()
    return str(row[0]) if row is not None else None


def _upgrade(connection: Connection, to: str) -> None:
    from alembic import command

    command.upgrade(_config(connection), to)


def _config(connection: Connection) -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_STEPS))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _refuse_other_files(path: Path) -> None:
    if path.exists() and path.stat().st_size and not is_sqlite_file(path):
        raise Invalid(f"{path} is not a SQLite database. Move it, or set HOOKMILL_DATA_DIR to another directory.")
