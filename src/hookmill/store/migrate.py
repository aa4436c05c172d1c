"""Bring a database to this version's schema: all steps or none, one process at a time, and never a database from the
future."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, inspect

from hookmill.domain.errors import Conflict, Invalid
from hookmill.store import dialect
from hookmill.store.database import Database, close_to_strangers, is_sqlite_file
from hookmill.store.rights import refuse_missing_rights

if TYPE_CHECKING:
    from alembic.config import Config

WAIT_SECONDS: Final = 600
_STEPS: Final = Path(__file__).parent / "migrations"
_LOCK: Final = 0x686F6F6B
"""PostgreSQL's advisory lock for migrations: "hook"."""


def migrate(database: Database, *, to: str = "head", performs_runs: bool = False) -> bool:
    """Bring the database to a revision, as a rule the newest. True when something was changed.

    Raises `Conflict` for a database that a newer version has written, and for a role that lacks the rights for the
    migration or, if `performs_runs`, for the engine that performs runs.
    """
    if database.path is not None:
        _refuse_what_is_no_database(database.path)
        # SQLite gives the files beside it, which hold the same data, the mode that it finds here.
        with suppress(OSError):
            database.path.touch(mode=0o600)
    with database.write() as tx:
        connection = tx.connection
        # To wait for another process's migration may take longer than a statement may.
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
        close_to_strangers(database.path)
    return True


def revisions() -> list[str]:
    """The steps that this version knows, oldest first: their files are named for them."""
    return sorted(path.name.partition("_")[0] for path in (_STEPS / "versions").glob("[0-9]*_*.py"))


def _revision_of(connection: Connection) -> str | None:
    # Asked without the migrations' library: it takes longer to load than most starts take.
    if not inspect(connection).has_table("alembic_version"):
        return None
    found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").first()
    return str(found[0]) if found is not None else None


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


def _refuse_what_is_no_database(path: Path) -> None:
    if path.exists() and path.stat().st_size and not is_sqlite_file(path):
        raise Invalid(f"{path} is not a SQLite database. Move it away, or point HOOKMILL_DATA_DIR elsewhere.")
