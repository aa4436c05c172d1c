"""The durable engine's own SQLite file. If it loses its last commits, workers continue from the rows of the runs."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from hookmill.store.database import restrict_to_owner


class EngineDbConnection(sqlite3.Connection):
    """A connection whose commits don't wait for the disk, so that they don't delay deliveries."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute("PRAGMA journal_mode = WAL")
        self.execute("PRAGMA synchronous = NORMAL")


def prepare_engine_db(path: Path) -> Path | None:
    """Create the file if it is missing; only its owner may open it. Renames a damaged file, and returns its new
    path."""
    damaged = None
    if path.exists() and not _is_intact(path):
        damaged = path.with_name(f"{path.name}.damaged")
        path.replace(damaged)
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
    path.touch(mode=0o600)
    restrict_to_owner(path)
    return damaged


def _is_intact(path: Path) -> bool:
    try:
        with closing(sqlite3.connect(path)) as connection:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
    except sqlite3.OperationalError:
        # The file can't be opened now, which does not mean that it is damaged.
        return True
    except sqlite3.DatabaseError:
        return False
