"""How a connection to PostgreSQL is made, and when it is given up."""

import time
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.abc import RV, PQGen
from sqlalchemy import Engine, create_engine, event, make_url

from hookmill.store import waiting


class PostgresConnection(psycopg.Connection[Any]):
    """Ends when the server falls silent. A proxy or a frozen machine may go on acknowledging what it never answers, and
    whoever waited for that would wait for ever."""

    silence_seconds = waiting.SILENCE_SECONDS

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        since = time.monotonic()
        try:
            return super().wait(gen, interval, self.silence_seconds)
        except psycopg.OperationalError as error:
            if time.monotonic() - since < self.silence_seconds:
                raise
            self.close()
            raise psycopg.OperationalError(f"the server has said nothing for {self.silence_seconds:g} s") from error


def postgres_engine(url: str) -> Engine:
    engine = create_engine(
        make_url(url).set(drivername="postgresql+psycopg"),
        pool_size=8,
        max_overflow=8,
        pool_timeout=waiting.STATEMENT_SECONDS,
        pool_pre_ping=False,
        connect_args={
            "connect_timeout": waiting.STATEMENT_SECONDS,
            "options": (
                f"-c lock_timeout={waiting.BUSY_SECONDS * 1000} -c statement_timeout={waiting.STATEMENT_SECONDS * 1000}"
                " -c idle_in_transaction_session_timeout=15000 -c synchronous_commit=on -c timezone=UTC"
            ),
            # A server that vanished without a word is noticed by the kernel, not waited for.
            "tcp_user_timeout": waiting.STATEMENT_SECONDS * 1000,
            "keepalives_idle": waiting.STATEMENT_SECONDS,
            "application_name": "hookmill",
        },
    )

    @event.listens_for(engine, "do_connect")
    def _connect(_dialect: object, _record: object, given: Sequence[Any], named: dict[str, Any]) -> PostgresConnection:
        return PostgresConnection.connect(*given, **named)

    @event.listens_for(engine, "checkin")
    def _end_patience(connection: PostgresConnection | None, _record: object) -> None:
        if connection is not None:
            connection.silence_seconds = waiting.SILENCE_SECONDS

    return engine
