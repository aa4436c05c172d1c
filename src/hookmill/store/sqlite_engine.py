"""Opens connections to SQLite, and begins their transactions.

Each process has one connection that writes. Only that of the writing process checkpoints the WAL.
"""

import sqlite3
from typing import Final

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import QueuePool

from hookmill.store import timeouts

CHECKPOINT_PAGES: Final = 2_048
"""WAL pages (4 KB each) between checkpoints. Eight times as many don't increase the deliveries per second, and double
the p99 latency."""
PREALLOCATED_WAL_BYTES: Final = 16 * 1024 * 1024
"""The WAL's size before the first delivery. Syncing a file that has grown also waits for the file system's journal, and
takes several times as long as syncing a file that was only overwritten."""
SET_WRITER_CACHE_SIZE: Final = "PRAGMA cache_size = -65536"
"""64 MiB."""


def sqlite_engine(url: str, *, writes: bool, checkpoints: bool = False, syncs: bool = True) -> Engine:
    """An engine with one connection that writes, or with up to four that can only read.

    `checkpoints` and `syncs` are like those of `Database`.
    """
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
    def _prepare_connection(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if syncs else 'NORMAL'}")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES if checkpoints else 0}")
        connection.execute("PRAGMA journal_size_limit = 134217728")
        connection.execute(SET_WRITER_CACHE_SIZE if writes else "PRAGMA cache_size = -16384")
        connection.execute("PRAGMA temp_store = MEMORY")
        if not writes:
            connection.execute("PRAGMA query_only = ON")

    @event.listens_for(engine, "begin")
    def _begin_transaction(connection: Connection) -> None:
        # IMMEDIATE acquires the write lock first. After a plain BEGIN and a read, the first write could fail.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine
