"""The durable engine's own SQLite file. It may forget its last moments: what it forgets, the runs' rows still know."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from hookmill.store.database import close_to_strangers


class EngineDbConnection(sqlite3.Connection):
    """A connection that does not wait for the disk at each commit, and so takes no time from the deliveries'."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute("PRAGMA journal_mode = WAL")
        self.execute("PRAGMA synchronous = NORMAL")


def prepare_engine_db(path: Path) -> Path | None:
    """Make the file, for its owner alone, if there is none. A damaged one is moved aside: where it is then."""
    damaged = None
    if path.exists() and not _is_sound(path):
        damaged = path.with_name(f"{path.name}.damaged")
        path.replace(damaged)
        for beside in ("-wal", "-shm"):
            path.with_name(path.name + beside).unlink(missing_ok=True)
    path.touch(mode=0o600)
    close_to_strangers(path)
    return damaged


def _is_sound(path: Path) -> bool:
    try:
        with closing(sqlite3.connect(path)) as connection:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
    except sqlite3.OperationalError:
        # It can't be opened now, which is not its fault.
        return True
    except sqlite3.DatabaseError:
        return False
