"""Reads the state of a database for diagnoses. It changes nothing, and leaves no files behind.

It also works for a database at another version's schema, and beside running processes.
"""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy import NullPool, create_engine

from hookmill.store.database import Database, Transaction, raising_unavailable
from hookmill.store.sqlite_engine import driver_connection

DAMAGES_MAX: Final = 5
"""How many kinds of damage an integrity check names."""
_STEPS_BETWEEN_CLOCK_READS: Final = 10_000
_READ_VERSION_OFFSET: Final = 19
_READ_VERSION_WAL: Final = b"\x02"


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteIntegrity:
    """The result of SQLite's `quick_check`."""

    damages: Sequence[str]
    is_complete: bool
    """Whether the check read the whole database within its time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresState:
    """Settings and counters of a PostgreSQL server."""

    version: str
    is_standby: bool
    is_read_only: bool
    """Whether transactions of this role are read-only by default."""
    replaced_settings: Sequence[str]
    """Settings that the sessions inherit, and the service replaces, such as `idle_session_timeout = 300000 ms`."""
    fsync: bool
    full_page_writes: bool
    connections_max: int
    """How many connections this role may open, over all its clients, as far as the server is concerned."""
    connections_of_others: int
    """The connections to the server that are not Hookmill's."""
    clock_ahead_us: int
    """How much the server's clock is ahead of this host's, within half of the time that the query took."""
    query_us: int


def sqlite_version() -> str:
    """The version of the SQLite library."""
    return sqlite3.sqlite_version


@contextmanager
def inspecting(database: Database) -> Iterator[Transaction]:
    """A read transaction. On SQLite, it uses a connection that can't write. Raises `StoreUnavailable`."""
    if database.path is None:
        with database.read() as tx:
            yield tx
        return
    with raising_unavailable(), _read_only_connection(database.path) as connection:
        yield connection


@contextmanager
def _read_only_connection(path: Path) -> Iterator[Transaction]:
    # Even a connection that only reads would create a WAL and an index of it, unless the file is declared immutable. It
    # is immutable while no process has the database open: the last one that closes it removes the WAL.
    wal = path.with_name(f"{path.name}-wal")
    mode = "mode=ro" if wal.exists() and wal.stat().st_size else "immutable=1"
    engine = create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(
            f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=2.0, isolation_level=None
        ),
        poolclass=NullPool,
    )
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN")
        yield Transaction(connection)


def sqlite_integrity(tx: Transaction, seconds: float) -> SqliteIntegrity:
    """Check the structure of the SQLite database, for up to `seconds`."""
    driver = driver_connection(tx.connection)
    deadline = time.monotonic() + seconds
    driver.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_BETWEEN_CLOCK_READS)
    damages: list[str] = []
    try:
        for (line,) in driver.execute(f"PRAGMA quick_check({DAMAGES_MAX})"):
            if line != "ok":
                damages.append(str(line).splitlines()[-1][:200])
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            return SqliteIntegrity(damages=damages, is_complete=False)
        damages.append(str(error)[:200])
    finally:
        driver.set_progress_handler(None, 0)
    return SqliteIntegrity(damages=damages, is_complete=True)


def uses_wal(path: Path) -> bool:
    """Whether a SQLite file is in WAL mode, from its header. An immutable connection would report another mode."""
    with path.open("rb") as file:
        return file.read(_READ_VERSION_OFFSET + 1)[_READ_VERSION_OFFSET:] == _READ_VERSION_WAL


def postgres_state(tx: Transaction, now_us: int) -> PostgresState:
    """`now_us` is this host's time in µs since 1970, just before the call."""
    began = time.monotonic_ns()
    server_us = tx.integer("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)")
    query_us = (time.monotonic_ns() - began) // 1000
    row = tx.one(
        """
        SELECT current_setting('server_version') AS version,
               pg_is_in_recovery() AS is_standby,
               -- The transaction of this query is read-only itself.
               (SELECT reset_val FROM pg_settings WHERE name = 'default_transaction_read_only') AS read_only,
               current_setting('fsync') AS fsync,
               current_setting('full_page_writes') AS full_page_writes,
               CAST(current_setting('max_connections') AS integer) AS connections_max,
               CAST(current_setting('superuser_reserved_connections') AS integer)
                   + CAST(coalesce(current_setting('reserved_connections', true), '0') AS integer) AS reserved,
               (SELECT rolconnlimit FROM pg_roles WHERE rolname = current_user) AS role_limit,
               (SELECT datconnlimit FROM pg_database WHERE datname = current_database()) AS database_limit,
               (SELECT count(*) FROM pg_stat_activity
                WHERE backend_type = 'client backend' AND application_name NOT LIKE 'hookmill%') AS others
        """
    )
    assert row is not None
    replaced_settings = tx.scalars(
        """
        SELECT name || ' = ' || reset_val || CASE WHEN unit IS NULL THEN '' ELSE ' ' || unit END AS text
        FROM pg_settings
        WHERE source = 'session' AND (
            name IN ('default_transaction_isolation', 'synchronous_commit', 'standard_conforming_strings')
                AND reset_val <> setting
            OR name IN (
                'statement_timeout', 'transaction_timeout', 'idle_session_timeout',
                'idle_in_transaction_session_timeout'
            ) AND reset_val <> '0'
        )
        ORDER BY name
        """
    )
    limits = [row["connections_max"] - row["reserved"], row["role_limit"], row["database_limit"]]
    return PostgresState(
        version=row["version"],
        is_standby=row["is_standby"],
        is_read_only=row["read_only"] == "on",
        replaced_settings=replaced_settings,
        fsync=row["fsync"] == "on",
        full_page_writes=row["full_page_writes"] == "on",
        # -1 means that there is no limit.
        connections_max=min(limit for limit in limits if limit >= 0),
        connections_of_others=row["others"],
        clock_ahead_us=server_us - (now_us + query_us // 2),
        query_us=query_us,
    )
