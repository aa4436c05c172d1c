"""Operations that SQLite and PostgreSQL do differently.

On SQLite, a write transaction locks the whole database. On PostgreSQL, it locks rows and advisory locks.
"""

import os
from typing import Literal

from hookmill.store import timeouts
from hookmill.store.database import Database, Transaction

LockStrength = Literal["FOR UPDATE", "FOR NO KEY UPDATE", "FOR SHARE", "FOR KEY SHARE"]


def has_row_locks(tx: Transaction) -> bool:
    """Whether transactions lock rows, instead of the whole database."""
    return not tx.on_sqlite


def lock_clause(tx: Transaction, strength: LockStrength, *, of: str = "", skip_locked: bool = False) -> str:
    """The locking clause of a SELECT. The selected rows stay locked until the transaction ends. In a join, `of` is the
    table to lock."""
    if tx.on_sqlite:
        return ""
    return f"{strength}{f' OF {of}' if of else ''}{' SKIP LOCKED' if skip_locked else ''}"


def lock_row(tx: Transaction, table: str, row_id: str | bytes, strength: LockStrength) -> None:
    """Keep the row with this `id` locked until the transaction ends."""
    if not tx.on_sqlite:
        tx.one(f"SELECT id FROM {table} WHERE id = :id {strength}", id=row_id)


def lock(tx: Transaction, number: int) -> None:
    """Wait for an advisory lock, and hold it until the transaction ends. Use it where there is no row to lock."""
    if not tx.on_sqlite:
        tx.run("SELECT pg_advisory_xact_lock(:number)", number=number)


def try_lock(tx: Transaction, number: int) -> bool:
    """Acquire an advisory lock until the transaction ends. Returns False if another transaction has the lock."""
    return tx.on_sqlite or bool(tx.scalar("SELECT pg_try_advisory_xact_lock(:number)", number=number))


def transaction_number(tx: Transaction) -> int:
    """The number of this transaction, which writes. Every transaction that began to write before this call has a lower
    one. On SQLite, no other transaction writes."""
    if tx.on_sqlite:
        return 0
    # The `xmax` of a snapshot is not enough: transactions with higher numbers than the last one that ended may be open.
    return tx.integer("SELECT CAST(CAST(pg_current_xact_id() AS text) AS bigint)")


def last_ended_transaction(tx: Transaction) -> int:
    """The highest number of a transaction that wrote and has ended; 0 on SQLite."""
    if tx.on_sqlite:
        return 0
    return tx.integer("SELECT CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS bigint) - 1")


def has_ended_before(tx: Transaction, number: int) -> bool:
    """Whether all transactions that write, and whose number is lower, have ended."""
    oldest_open = "SELECT CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint)"
    return tx.on_sqlite or tx.integer(oldest_open) >= number


def force_custom_query_plans(tx: Transaction) -> None:
    """Make PostgreSQL plan this transaction's statements for their parameter values. A generic plan assumes that a
    range contains half of the rows, and can be 100 times as slow."""
    if not tx.on_sqlite:
        tx.run("SET LOCAL plan_cache_mode = force_custom_plan")


def allow_long_statements(tx: Transaction, seconds: int, *, response_seconds: int | None = None) -> None:
    """Let statements and lock waits of this transaction take up to `seconds`. SQLite doesn't limit statements.

    `response_seconds`: the longest time without any response, for statements that return rows all the time.
    """
    if tx.on_sqlite:
        return
    from hookmill.store.postgres_engine import driver_connection

    tx.run(f"SET LOCAL statement_timeout = '{seconds}s'")
    tx.run(f"SET LOCAL lock_timeout = '{seconds}s'")
    driver_connection(tx.connection).response_seconds = (response_seconds or seconds) + timeouts.RESPONSE_SECONDS


def commit_without_sync(tx: Transaction) -> None:
    """Let this transaction commit without waiting for the disk. A power failure can lose it. On SQLite, the connection
    decides."""
    if not tx.on_sqlite:
        tx.run("SET LOCAL synchronous_commit = off")


def server_time(tx: Transaction) -> int | None:
    """The time of the database server, in µs since 1970. None on SQLite, which has no clock of its own."""
    if tx.on_sqlite:
        return None
    return tx.integer("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)")


def database_bytes(tx: Transaction) -> int:
    """The size of the database in bytes. For PostgreSQL only; SQLite's database is a file."""
    return tx.integer("SELECT pg_database_size(current_database())")


def bytes_type(tx: Transaction) -> str:
    return "BLOB" if tx.on_sqlite else "BYTEA"


def has_table(tx: Transaction, name: str) -> bool:
    if tx.on_sqlite:
        return tx.one("SELECT 1 AS one FROM sqlite_master WHERE type = 'table' AND name = :name", name=name) is not None
    return bool(tx.scalar("SELECT to_regclass(:name) IS NOT NULL", name=name))


def accepts_writes(database: Database) -> bool:
    """Whether the database accepts writes, as far as a query can determine it. A PostgreSQL server that is a standby
    or read-only does not, nor does a SQLite file on a read-only disk. Raises `StoreUnavailable`."""
    if database.path is not None:
        with database.read() as tx:
            return tx.one("SELECT 1 AS one") is not None and os.access(database.path, os.W_OK)
    with database.read() as tx:
        is_read_only = tx.scalar(
            "SELECT pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean"
        )
    if not is_read_only:
        return True
    # A connection keeps the setting of the time when it was opened.
    database.discard_connections()
    return False


def index_range(tx: Transaction, prefix: dict[str, str], last_column: str, before: str) -> tuple[str, str]:
    """The WHERE condition and the ORDER BY of an index scan, in descending order.

    `prefix` has the values of the index's leading columns, by column. The scan returns the rows whose value of
    `last_column` is below `before`. All values are SQL text. If PostgreSQL compared column by column, it might scan the
    primary key instead. Comparing whole rows makes it scan this index.
    """
    if tx.on_sqlite:
        conditions = [*(f"{column} = {value}" for column, value in prefix.items()), f"{last_column} < {before}"]
        return " AND ".join(conditions), f"{last_column} DESC"
    columns = ", ".join([*prefix, last_column])
    values = ", ".join(prefix.values())
    return (
        f"({columns}) > ({values}, ''::bytea) AND ({columns}) < ({values}, {before})",
        ", ".join(f"{column} DESC" for column in (*prefix, last_column)),
    )
