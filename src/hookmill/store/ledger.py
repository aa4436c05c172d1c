"""The durable engine's own SQLite file. It may forget its last moments: what it forgets, the runs' rows still know."""

import sqlite3
from pathlib import Path
from typing import Any

from hookmill.store.database import close_to_strangers


class LedgerConnection(sqlite3.Connection):
    """A connection that does not wait for the disk at each commit, and so takes no time from the deliveries'."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute("PRAGMA journal_mode = WAL")
        self.execute("PRAGMA synchronous = NORMAL")


def prepare_ledger(path: Path) -> None:
    """Make the file, for its owner alone, if there is none."""
    path.touch(mode=0o600)
    close_to_strangers(path)
