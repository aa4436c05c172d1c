"""Bring a database to this version's schema: all steps or none, one process at a time, and never a database from the
future."""

from contextlib import suppress
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from hookmill.domain.errors import Conflict, Invalid
from hookmill.store.database import Database, close_to_strangers

WAIT_SECONDS: Final = 600
_LOCK: Final = 0x686F6F6B
"""PostgreSQL's advisory lock for migrations: "hook"."""


def migrate(database: Database, *, to: str = "head") -> bool:
    """Bring the database to a revision, as a rule the newest. True when something was changed.

    Raises `Conflict` for a database that a newer version has written.
    """
    if database.path is not None:
        _refuse_what_is_no_database(database.path)
        # SQLite gives the files beside it, which hold the same data, the mode that it finds here.
        with suppress(OSError):
            database.path.touch(mode=0o600)
    with database.write() as tx:
        connection = tx.connection
        if not tx.on_sqlite:
            # Waiting for another process's migration may take longer than a statement usually may.
            tx.be_patient(WAIT_SECONDS)
            tx.run("SELECT pg_advisory_xact_lock(:lock)", lock=_LOCK)
        config = _config(connection)
        script = ScriptDirectory.from_config(config)
        current = MigrationContext.configure(connection).get_current_revision()
        known = {step.revision for step in script.walk_revisions()}
        if current is not None and current not in known:
            raise Conflict(
                f"The database is at schema {current}, which this version of Hookmill does not know: a newer one has "
                "written it. Start that version, or restore a backup from before. Nothing was changed."
            )
        if current == script.get_current_head():
            return False
        command.upgrade(config, to)
    if database.path is not None:
        close_to_strangers(database.path)
    return True


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _refuse_what_is_no_database(path: Path) -> None:
    """SQLite would take an empty or foreign file for a new database, and hide that a good one was lost."""
    if not path.exists():
        if path.with_name(path.name + "-wal").exists():
            raise Invalid(
                f"{path} is missing, but its -wal file is there: the database was moved away. Put it back first."
            )
        return
    with path.open("rb") as file:
        head = file.read(16)
    if head and head != b"SQLite format 3\x00":
        raise Invalid(f"{path} is not a SQLite database. Move it away, or point HOOKMILL_DATA_DIR elsewhere.")
