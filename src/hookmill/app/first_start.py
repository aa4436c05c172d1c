"""Detects a lost database, which a start must not replace with an empty one.

With an empty database, every URL would answer 404, and many senders stop sending after a 404.
"""

from pathlib import Path

from hookmill.domain.errors import Conflict
from hookmill.settings import Settings
from hookmill.store.database import Database
from hookmill.store.revision import stored_revision


def refuse_lost_database(settings: Settings, database: Database) -> None:
    """Raises `Conflict` if the database is not set up, but the data directory was used before.

    A first start sets up the database before it creates other files. So a killed first start does not raise this.
    """
    # The files are checked first, because another start creates the database before them. So if this start sees one of
    # these files, it also finds the database.
    if not (traces := _traces(settings, database)) or _is_set_up(database):
        return
    names = ", ".join(trace.name for trace in traces)
    if database.path is None:
        problem = f"The PostgreSQL database in HOOKMILL_DATABASE_URL is empty, but {settings.data_dir.absolute()}"
        advice = "Check that HOOKMILL_DATABASE_URL names the right database, or restore it from a backup."
    else:
        state = "is empty" if database.path.exists() else "is missing"
        problem = f"The database {database.path} {state}, but {settings.data_dir.absolute()}"
        advice = (
            f"Restore {database.path.name} from a backup. Use only the {database.path.name}-wal of the same backup, if "
            "there is one. If the data is in PostgreSQL, set HOOKMILL_DATABASE_URL."
        )
    raise Conflict(
        f"{problem} was used before: it contains {names}.\n{advice}\n"
        f"To start without the old data, move these away: {names}. "
        "To start with a master key of your own, set HOOKMILL_MASTER_KEY.\nNothing was changed."
    )


def _is_set_up(database: Database) -> bool:
    if (path := database.path) is not None:
        # A connection would create the file.
        if not path.exists() or not path.stat().st_size:
            return False
        # The file is no SQLite database, so it is not an empty one. The migration rejects it.
        if not database.has_sqlite_file():
            return True
    with database.read() as tx:
        return stored_revision(tx) is not None


def _traces(settings: Settings, database: Database) -> list[Path]:
    """The files in the data directory that the service creates only after the database is set up."""
    paths = [settings.data_dir / "serve.lock"]
    if settings.master_key is None:
        paths.insert(0, settings.data_dir / "master.key")
    if database.path is not None and not database.path.exists():
        paths.append(database.path.with_name(f"{database.path.name}-wal"))
    traces = [path for path in paths if path.exists()]
    packages = settings.data_dir / "runs"
    if packages.is_dir() and any(path.name.startswith("run_") for path in packages.iterdir()):
        traces.append(packages)
    return traces
