"""Opens connections to SQLite, and begins their transactions.

Each process has one connection that writes. Only that of the writer process checkpoints the WAL.
"""

import sqlite3
import time
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import QueuePool

from hookmill.store import timeouts
from hookmill.store.sqlite_files import SqliteFiles

CHECKPOINT_PAGES: Final = 2_048
"""WAL pages (4 KB each) between checkpoints. Eight times as many don't increase the deliveries per second, and double
the p99 latency."""
PREALLOCATED_WAL_BYTES: Final = 16 * 1024 * 1024
"""The WAL's size before the first delivery. Syncing a file that has grown also waits for the file system's journal, and
takes several times as long as syncing a file that was only overwritten."""
WRITER_POLL_SECONDS: Final = 0.0005
"""The writer process's pause between two attempts to acquire the write lock.

SQLite's own pauses grow to 0.1 s, while most transactions hold the lock for a few milliseconds. With these, a process
often slept while the lock was free."""
POLL_SECONDS: Final = 0.005
"""The same for other processes, which try less often, so deliveries take precedence over runs and retention."""
SET_WRITER_CACHE_SIZE: Final = "PRAGMA cache_size = -65536"
"""64 MiB."""


def sqlite_engine(path: Path, files: SqliteFiles | None, *, writes: bool, checkpoints: bool, syncs: bool) -> Engine:
    """An engine with one connection that writes, or with up to four that can only read.

    `files` is None for a draft, which the first connection creates. `checkpoints` and `syncs` are like those of
    `Database`.
    """

    def connect() -> sqlite3.Connection:
        # Only a migration and a restore create a database.
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={'rwc' if files is None else 'rw'}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            timeout=timeouts.BUSY_SECONDS,
        )
        try:
            connection.execute(f"PRAGMA journal_mode = {'OFF' if files is None else 'WAL'}")
            connection.execute(f"PRAGMA synchronous = {'OFF' if files is None else 'FULL' if syncs else 'NORMAL'}")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES if checkpoints else 0}")
            connection.execute("PRAGMA journal_size_limit = 134217728")
            connection.execute(SET_WRITER_CACHE_SIZE if writes else "PRAGMA cache_size = -16384")
            connection.execute("PRAGMA temp_store = MEMORY")
            if not writes:
                connection.execute("PRAGMA query_only = ON")
            # The first read opens the WAL and its index.
            connection.execute("PRAGMA schema_version")
        except BaseException:
            connection.close()
            raise
        return connection

    engine = create_engine(
        "sqlite://",
        creator=connect if files is None else lambda: files.connect(connect),
        poolclass=QueuePool,
        pool_size=1 if writes else 4,
        max_overflow=0,
    )

    if files is not None:
        event.listen(engine, "close", lambda *_: files.connection_closed())

    @event.listens_for(engine, "begin")
    def _begin_transaction(connection: Connection) -> None:
        if writes:
            _begin_writing(connection, WRITER_POLL_SECONDS if checkpoints else POLL_SECONDS)
        else:
            connection.exec_driver_sql("BEGIN")

    return engine


def _begin_writing(connection: Connection, poll_seconds: float) -> None:
    """Begin a transaction with the write lock. After a plain BEGIN and a read, the first write could fail.

    If another process holds the lock for `BUSY_SECONDS`, this raises OperationalError.
    """
    driver = driver_connection(connection)
    give_up_at = time.monotonic() + timeouts.BUSY_SECONDS
    driver.execute("PRAGMA busy_timeout = 0")
    try:
        while time.monotonic() < give_up_at:
            try:
                driver.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    break
            time.sleep(poll_seconds)
        # Once more through SQLAlchemy, which converts the error.
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    finally:
        driver.execute(f"PRAGMA busy_timeout = {int(timeouts.BUSY_SECONDS * 1000)}")


def driver_connection(connection: Connection) -> sqlite3.Connection:
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver
