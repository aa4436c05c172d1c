"""Where SQLite and PostgreSQL differ, as operations with a name.

SQLite has one writer, so whoever writes has everything locked; PostgreSQL locks what it is told to.
"""

from typing import Literal

from hookmill.store.database import Database, Transaction

LockStrength = Literal["FOR UPDATE", "FOR NO KEY UPDATE", "FOR SHARE", "FOR KEY SHARE"]


def has_roles(tx: Transaction) -> bool:
    """Whether the database knows who may do what."""
    return not tx.on_sqlite


def has_row_locks(tx: Transaction) -> bool:
    """False where the only writer has everything locked."""
    return not tx.on_sqlite


def lock_clause(tx: Transaction, strength: LockStrength, *, of: str = "", skip_locked: bool = False) -> str:
    """The end of a SELECT whose rows stay locked until the transaction ends. `of`: the table, of several."""
    if tx.on_sqlite:
        return ""
    return f"{strength}{f' OF {of}' if of else ''}{' SKIP LOCKED' if skip_locked else ''}"


def lock_row(tx: Transaction, table: str, row_id: str | bytes, strength: LockStrength) -> None:
    """Keep the row with this `id` locked until the transaction ends."""
    if not tx.on_sqlite:
        tx.one(f"SELECT id FROM {table} WHERE id = :id {strength}", id=row_id)


def lock(tx: Transaction, number: int) -> None:
    """Wait for an advisory lock, for what has no row yet, and keep it until the transaction ends."""
    if not tx.on_sqlite:
        tx.run("SELECT pg_advisory_xact_lock(:number)", number=number)


def try_lock(tx: Transaction, number: int) -> bool:
    """Take an advisory lock until the transaction ends. False when another transaction has it."""
    if tx.on_sqlite:
        return True
    row = tx.one("SELECT pg_try_advisory_xact_lock(:number) AS is_ours", number=number)
    return bool(row and row["is_ours"])


def plan_for_values(tx: Transaction) -> None:
    """Plan the statements of this transaction for their values. PostgreSQL expects any value to match half of the rows
    of a range otherwise, which can be 100 times as slow."""
    if not tx.on_sqlite:
        tx.run("SET LOCAL plan_cache_mode = force_custom_plan")


def allow_long_statements(tx: Transaction, seconds: int) -> None:
    """Let every statement of this transaction take so long, and wait so long for a lock."""
    if not tx.on_sqlite:
        tx.set_timeouts(seconds)


def commit_without_sync(tx: Transaction) -> None:
    """Let this transaction commit without waiting for the disk. On SQLite, the database's `syncs` decides."""
    if not tx.on_sqlite:
        tx.run("SET LOCAL synchronous_commit = off")


def has_table(tx: Transaction, name: str) -> bool:
    if tx.on_sqlite:
        return tx.one("SELECT 1 AS one FROM sqlite_master WHERE type = 'table' AND name = :name", name=name) is not None
    row = tx.one("SELECT to_regclass(:name) IS NOT NULL AS is_there", name=name)
    return row is not None and bool(row["is_there"])


def takes_writes(database: Database) -> bool:
    """Whether a write would be accepted, as far as can be told without one: a PostgreSQL may be a standby, or set to
    read only. Raises `StoreUnavailable` when it does not answer."""
    if database.on_sqlite:
        with database.read() as tx:
            return tx.one("SELECT 1 AS one") is not None
    with database.read() as tx:
        row = tx.one(
            "SELECT pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean AS refuses"
        )
    if row is not None and not row["refuses"]:
        return True
    # A connection keeps the setting that it was made with.
    database.forget_connections()
    return False


def index_range(tx: Transaction, prefix: dict[str, str], last: str, before: str) -> tuple[str, str]:
    """A condition for the entries of an index with these leading columns and a `last` one below `before`, and their
    order, descending. Keys and values are SQL.

    Asked column by column, PostgreSQL may scan the primary key instead, in the hope of matching rows; asked for whole
    entries in their order, it has no other plan.
    """
    if tx.on_sqlite:
        return " AND ".join([*(f"{column} = {value}" for column, value in prefix.items()), f"{last} < {before}"]), (
            f"{last} DESC"
        )
    columns = ", ".join([*prefix, last])
    values = ", ".join(prefix.values())
    return (
        f"({columns}) > ({values}, ''::bytea) AND ({columns}) < ({values}, {before})",
        ", ".join(f"{column} DESC" for column in (*prefix, last)),
    )
