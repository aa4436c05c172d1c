"""Refuses a connection pooler between the service and PostgreSQL that does not keep the settings of a session.

Without these settings, a statement could wait for a lock without limit, and an accepted delivery might not be on disk.
And a process would not receive the notifications that it listens for.
"""

from typing import Any, Final

import psycopg

from hookmill.domain.errors import Invalid, StoreUnavailable
from hookmill.store.database import Database
from hookmill.store.postgres_engine import POOLER_ADVICE

SETTINGS_LOST: Final = (
    "HOOKMILL_DATABASE_URL leads to a connection pooler, such as PgBouncer, that ignores the settings of a session, "
    f"such as lock_timeout. {POOLER_ADVICE}"
)
SESSIONS_SHARED: Final = (
    "HOOKMILL_DATABASE_URL leads to a connection pooler that lets several clients share a session, such as PgBouncer "
    f"with pool_mode = transaction. {POOLER_ADVICE}"
)

ROUNDS: Final = 5


def refuse_pooler(database: Database) -> None:
    """Raises `Invalid` if sessions of this PostgreSQL database lose their settings, or are shared with other clients.

    Call this when the service starts. Raises `StoreUnavailable`.
    """
    try:
        with database.dedicated_connection() as connection:
            if _value(connection, "SELECT source FROM pg_settings WHERE name = 'lock_timeout'") != "client":
                raise Invalid(SETTINGS_LOST)
            # When a client connects, PostgreSQL reports the id of the session's process. A pooler doesn't know it yet,
            # and reports a made-up one.
            session = _value(connection, "SELECT pg_backend_pid()")
            if session != connection.info.backend_pid and _is_shared(database, connection, session):
                raise Invalid(SESSIONS_SHARED)
    except psycopg.Error as error:
        raise StoreUnavailable(str(error)) from error


def _is_shared(database: Database, connection: psycopg.Connection[Any], session: int) -> bool:
    """Whether a second connection gets the session of `connection`, or `connection` gets another session while the
    second one is in a transaction. `session` is the id of the session's process."""
    with database.dedicated_connection() as other:
        # Once is enough, unless other clients of the pooler are busy, too.
        for _ in range(ROUNDS):
            other.execute("BEGIN")
            if _value(other, "SELECT pg_backend_pid()") == session:
                return True
            # The other connection has a different session. So the pooler has at least two, and this query doesn't wait
            # for the ROLLBACK.
            if _value(connection, "SELECT pg_backend_pid()") != session:
                return True
            other.execute("ROLLBACK")
    return False


def _value(connection: psycopg.Connection[Any], query: str) -> Any:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]
