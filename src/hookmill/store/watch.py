"""Detects commits to SQLite for a quarter of the cost of the smallest query."""

import sqlite3
from contextlib import suppress

from hookmill.domain.errors import StoreUnavailable
from hookmill.store.database import Database


class CommitWatch:
    """Detects commits of other connections to SQLite, in any process. Use it in one thread."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: sqlite3.Connection | None = None
        self._data_version = -1

    def has_new_commit(self) -> bool:
        """Whether anything was committed since the last call. Also True if the database can't be read: then the
        caller's next query raises the error."""
        try:
            if self._connection is None:
                self._data_version = -1
                self._connection = self._database.connection_for_commit_watch()
            # The value changes with each commit of another connection. This connection commits nothing.
            (data_version,) = self._connection.execute("PRAGMA data_version").fetchone()
        except (sqlite3.Error, StoreUnavailable):
            self.close()
            return True
        is_changed = data_version != self._data_version
        self._data_version = data_version
        return bool(is_changed)

    def close(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
