"""A start creates a new installation only where there has been none. A database that was lost is restored, not replaced
by an empty one: every URL would answer 404, and senders give up on that."""

from pathlib import Path

from hookmill.domain.errors import Conflict
from hookmill.settings import Settings
from hookmill.store import metadata
from hookmill.store.database import Database, is_sqlite_file


def refuse_lost_database(settings: Settings, database: Database) -> None:
    """Raises `Conflict` where the database is not set up and the data directory was used before.

    A first start sets the database up before it creates anything else, so a first start that was killed never looks
    like this.
    """
    # In this order: another start may be creating both right now, the database first.
    if not (traces := _traces(settings, database)) or _is_set_up(database):
        return
    names = ", ".join(trace.name for trace in traces)
    if database.path is None:
        what = f"The PostgreSQL database that HOOKMILL_DATABASE_URL names is empty, but {settings.data_dir.absolute()}"
        restore = "Check that HOOKMILL_DATABASE_URL names the right database, or restore it from a backup."
    else:
        state = "is empty" if database.path.exists() else "is missing"
        what = f"The database {database.path} {state}, but {settings.data_dir.absolute()}"
        restore = (
            f"Put {database.path.name} back from a backup, with the {database.path.name}-wal of that backup, if it has "
            "one, and no other. If the data is in PostgreSQL, set HOOKMILL_DATABASE_URL."
        )
    raise Conflict(
        f"{what} was used before: it holds {names}.\n{restore}\n"
        f"To start anew without the old data, move these away: {names}. "
        "To start with a master key of your own, set HOOKMILL_MASTER_KEY.\nNothing was changed."
    )


def _is_set_up(database: Database) -> bool:
    if (path := database.path) is not None:
        # To connect would create the file.
        if not path.exists() or not path.stat().st_size:
            return False
        # The migration refuses a file of another kind.
        if not is_sqlite_file(path):
            return True
    with database.read() as tx:
        return metadata.is_set_up(tx)


def _traces(settings: Settings, database: Database) -> list[Path]:
    """What only an installation that was set up leaves in its data directory."""
    paths = [settings.data_dir / name for name in ("serve.lock", "engine.db")]
    if settings.master_key is None:
        paths.insert(0, settings.data_dir / "master.key")
    if database.path is not None and not database.path.exists():
        paths.append(database.path.with_name(f"{database.path.name}-wal"))
    traces = [path for path in paths if path.exists()]
    packages = settings.data_dir / "runs"
    if packages.is_dir() and any(each.name.startswith("run_") for each in packages.iterdir()):
        traces.append(packages)
    return traces
