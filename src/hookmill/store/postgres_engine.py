"""Opens connections to PostgreSQL, rejects unsuitable servers, and closes connections to unresponsive servers."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import psycopg
from psycopg.abc import RV, PQGen
from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from hookmill.domain.errors import Invalid, StoreUnavailable
from hookmill.store import timeouts
from hookmill.store.autocommit import prepare_connection
from hookmill.store.revision import application_name

OLDEST_VERSION: Final = 15
POOLER_ADVICE: Final = "Connect to PostgreSQL directly: each process of Hookmill has a connection pool of its own."


class PostgresConnection(psycopg.Connection[Any]):
    """A connection that closes if the server does not respond within `response_seconds`.

    A proxy or a frozen machine can acknowledge packets without ever responding, so TCP timeouts are not enough.
    """

    response_seconds = timeouts.RESPONSE_SECONDS

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        start = time.monotonic()
        try:
            return super().wait(gen, interval, self.response_seconds)
        except psycopg.OperationalError as error:
            if time.monotonic() - start < self.response_seconds:
                # The error is not the timeout.
                raise
            self.close()
            raise psycopg.OperationalError(f"the server has not responded for {self.response_seconds:g} s") from error


def postgres_engine(url: str, *, connections: int, idle_seconds: int) -> Engine:
    """An engine with up to `connections` pooled connections.

    PostgreSQL rolls back a transaction that waits `idle_seconds` for its next statement. Raises `Invalid` for a URL
    that can't be used. The first connection raises `Invalid` for an unsuitable server.
    """
    engine = create_engine(
        _parse_url(url).set(drivername="postgresql+psycopg"),
        pool_size=connections,
        # An overflow connection would be opened and closed for each use.
        max_overflow=0,
        # The most recently used connection is used first, so those that the load does not need stay idle.
        pool_use_lifo=True,
        pool_timeout=timeouts.STATEMENT_SECONDS,
        pool_pre_ping=False,
        connect_args={
            "connect_timeout": timeouts.STATEMENT_SECONDS,
            "options": (
                f"-c lock_timeout={timeouts.BUSY_SECONDS * 1000}"
                f" -c statement_timeout={timeouts.STATEMENT_SECONDS * 1000}"
                f" -c idle_in_transaction_session_timeout={idle_seconds * 1000}"
                " -c synchronous_commit=on -c timezone=UTC"
            ),
            # The kernel closes connections to a server that vanished without closing them.
            "tcp_user_timeout": timeouts.STATEMENT_SECONDS * 1000,
            "keepalives_idle": timeouts.STATEMENT_SECONDS,
            "application_name": application_name(),
        },
    )

    has_connected = False

    @event.listens_for(engine, "do_connect")
    def _connect(
        _dialect: object, _record: object, arguments: Sequence[Any], options: dict[str, Any]
    ) -> PostgresConnection:
        nonlocal has_connected
        try:
            connection = _suitable_connection(arguments, options)
        except Invalid as error:
            if has_connected:
                # The settings were valid before, so another server answers temporarily.
                raise StoreUnavailable(str(error)) from None
            raise
        has_connected = True
        return connection

    event.listen(engine, "checkout", prepare_connection)

    @event.listens_for(engine, "checkin")
    def _reset_timeout(connection: PostgresConnection | None, _record: object) -> None:
        if connection is not None:
            connection.response_seconds = timeouts.RESPONSE_SECONDS

    return engine


def connector_for_durable_engine(url: str, options: str) -> Callable[[], PostgresConnection]:
    """Opens connections for the durable engine, which has a connection pool of its own. `options`: of the server."""
    parsed = _parse_url(url).set(drivername="postgresql+psycopg")
    _, parameters = create_engine(parsed).dialect.create_connect_args(parsed)

    def connect() -> PostgresConnection:
        connection = PostgresConnection.connect(
            **parameters,
            connect_timeout=timeouts.STATEMENT_SECONDS,
            application_name=f"{application_name()} runs",
            options=options,
        )
        connection.response_seconds = timeouts.ENGINE_RESPONSE_SECONDS
        return connection

    return connect


def contains_password(url: str) -> bool:
    """Whether the URL contains a password. Raises `Invalid` for a URL that can't be read."""
    parsed = _parse_url(url)
    return parsed.password is not None or not parsed.query.keys().isdisjoint(_PASSWORD_PARAMETERS)


def without_password(url: str) -> str:
    """The URL for messages: without the password, and without parameters other than the host and the port.

    Raises `Invalid` for a URL that can't be read.
    """
    parsed = _parse_url(url)
    return URL.create(
        parsed.drivername,
        username=parsed.username,
        host=parsed.host,
        port=parsed.port,
        database=parsed.database,
        query={name: value for name, value in parsed.query.items() if name in ("host", "port")},
    ).render_as_string(hide_password=False)


_PASSWORD_PARAMETERS: Final = frozenset({"password", "sslpassword"})


def _parse_url(url: str) -> URL:
    with suppress(ArgumentError, ValueError):
        parsed = make_url(url)
        # If a password contains an unescaped @, its end is parsed as part of the host, which error messages contain.
        if "@" not in (parsed.host or ""):
            return parsed
    raise Invalid(
        "HOOKMILL_DATABASE_URL can't be read. Use postgresql://USER:PASSWORD@HOST:PORT/NAME, with the characters "
        "@ : / ? # % of the user and the password as %40 %3A %2F %3F %23 %25."
    )


def _suitable_connection(arguments: Sequence[Any], options: dict[str, Any]) -> PostgresConnection:
    try:
        connection = PostgresConnection.connect(*arguments, **options)
    except psycopg.OperationalError as error:
        # The first text is of PgBouncer, the second of Amazon's RDS Proxy.
        if "unsupported startup parameter" in str(error) or "support command-line options" in str(error):
            raise Invalid(
                "HOOKMILL_DATABASE_URL leads to a connection pooler, such as PgBouncer, that refuses the settings of a "
                f"session, such as lock_timeout. {POOLER_ADVICE}"
            ) from None
        raise
    except psycopg.ProgrammingError as error:
        raise Invalid(f"HOOKMILL_DATABASE_URL can't be used: {str(error).strip()}.") from None
    try:
        _refuse_unsuitable_server(connection)
    except Invalid:
        connection.close()
        raise
    return connection


def _refuse_unsuitable_server(connection: PostgresConnection) -> None:
    """Raises `Invalid` if the server is too old, or reports an encoding of the database other than UTF8.

    The server reports its version and the encoding when it accepts a connection, so this needs no query.
    """
    info = connection.info
    if info.server_version < OLDEST_VERSION * 10_000:
        raise Invalid(
            f"This is PostgreSQL {info.server_version // 10_000}, and Hookmill needs {OLDEST_VERSION} or newer. "
            "Upgrade the server, or set HOOKMILL_DATABASE_URL to another one."
        )
    encoding = info.parameter_status("server_encoding")
    if encoding not in (None, "UTF8"):
        raise Invalid(
            f"The encoding of the database {info.dbname!r} is {encoding}, and Hookmill needs UTF8. Create another "
            "database with CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0, and set HOOKMILL_DATABASE_URL."
        )
