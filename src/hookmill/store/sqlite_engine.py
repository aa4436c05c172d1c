"""How a connection to SQLite is made, and begins: durable, one writer, and only that one checkpoints."""

import sqlite3
from typing import Final

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import QueuePool

from hookmill.store import timeouts

CHECKPOINT_PAGES: Final = 2_048
"""WAL pages (4 KB each) between checkpoints. Eight times as many took as many deliveries a second, with twice the
p99."""
WAL_BYTES_AHEAD: Final = 16 * 1024 * 1024
"""What the WAL is grown to before the first delivery. A sync of a file that grew waits for the file system's journal
too, several times as long as a sync of one that was only written over."""
WRITER_CACHE: Final = "PRAGMA cache_size = -65536"


def sqlite_engine(url: str, *, writes: bool, checkpoints: bool = False, syncs: bool = True) -> Engine:
    engine = create_engine(
        url,
        poolclass=QueuePool,
        pool_size=1 if writes else 4,
        max_overflow=0,
        connect_args={
            "isolation_level": None,
            "check_same_thread": False,
            "cached_statements": 256,
            "timeout": timeouts.BUSY_SECONDS,
        },
    )

    @event.listens_for(engine, "connect")
    def _prepare(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if syncs else 'NORMAL'}")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES if checkpoints else 0}")
        connection.execute("PRAGMA journal_size_limit = 134217728")
        connection.execute(WRITER_CACHE if writes else "PRAGMA cache_size = -16384")
        connection.execute("PRAGMA temp_store = MEMORY")
        if not writes:
            connection.execute("PRAGMA query_only = ON")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # IMMEDIATE takes the writer's place at once: a read that later wants to write could only fail.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine
