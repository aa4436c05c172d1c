"""Opens connections to PostgreSQL, rejects unsuitable servers, and closes connections to unresponsive servers."""

import re
import select
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import unquote

import psycopg
from psycopg.abc import RV, PQGen
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DisconnectionError

from hookmill.domain.errors import Invalid, StoreUnavailable
from hookmill.store import autocommit, timeouts

OLDEST_VERSION: Final = 15
_TRANSACTION_TIMEOUT_VERSION: Final = 170_000
_DRIVER: Final = "postgresql+psycopg://"
PING_AFTER_SECONDS: Final = 10.0
"""After this time without use, a connection is tried before it is used: a server, a pooler or a firewall may have
ended it."""
PING_SECONDS: Final = 2.0
SESSION_SETTINGS: Final = {
    "default_transaction_isolation": "read committed",
    "default_transaction_deferrable": "off",
    "idle_session_timeout": "0",
    "row_security": "off",
    "synchronous_commit": "on",
    "client_encoding": "UTF8",
    "standard_conforming_strings": "on",
    "bytea_output": "hex",
    "timezone": "UTC",
    "datestyle": "ISO, MDY",
    "intervalstyle": "postgres",
}
"""The settings of each session, whatever the role, the database, the URL or variables such as PGTZ set.

Not among them: `search_path` and `role`, with which an operator chooses the schema and the owner of the tables; and
`default_transaction_read_only`, with which an operator stops all writes.
"""
POOLER_ADVICE: Final = "Connect to PostgreSQL directly: each process of Hookmill has a connection pool of its own."


class PostgresConnection(psycopg.Connection[Any]):
    """A connection that closes if the server does not respond within `response_seconds`.

    A proxy or a frozen machine can acknowledge packets without ever responding, so TCP timeouts are not enough.
    """

    response_seconds = timeouts.RESPONSE_SECONDS
    used_at = 0.0
    """When it was returned to the pool, in monotonic seconds."""

    def is_usable(self) -> bool:
        """Whether the server still has the session. Asks it only if there may be a reason why not. Call it outside of
        transactions."""
        if self.closed:
            return False
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        # A server that ends a session sends a message before.
        if not poll.poll(0) and time.monotonic() - self.used_at < PING_AFTER_SECONDS:
            return True
        self.response_seconds = PING_SECONDS
        try:
            self.autocommit = True
            self.execute("SELECT 1", prepare=False)
            self.autocommit = False
        except psycopg.Error:
            self.close()
            return False
        finally:
            self.response_seconds = timeouts.RESPONSE_SECONDS
        return True

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
    parameters = _parameters(url)
    settings = {
        **SESSION_SETTINGS,
        "statement_timeout": f"{timeouts.STATEMENT_SECONDS}s",
        "idle_in_transaction_session_timeout": f"{idle_seconds}s",
    }
    engine = create_engine(
        # `_parameters` has the rest.
        _DRIVER,
        pool_size=connections,
        # An overflow connection would be opened and closed for each use.
        max_overflow=0,
        # The most recently used connection is used first, so those that the load does not need stay idle.
        pool_use_lifo=True,
        pool_timeout=timeouts.STATEMENT_SECONDS,
        pool_pre_ping=False,
    )

    has_connected = False

    @event.listens_for(engine, "do_connect")
    def _connect(
        _dialect: object, _record: object, _arguments: object, options: Mapping[str, Any]
    ) -> PostgresConnection:
        nonlocal has_connected
        try:
            # SQLAlchemy adds its adapters for types.
            connection = _suitable_connection({**options, **parameters}, settings)
        except Invalid as error:
            if has_connected:
                # The settings were valid before, so another server answers temporarily.
                raise StoreUnavailable(str(error)) from None
            raise
        has_connected = True
        return connection

    event.listen(engine, "checkout", _take_from_pool)
    event.listen(engine, "checkin", _return_to_pool)
    return engine


def driver_connection(connection: Connection) -> PostgresConnection:
    driver = connection.connection.driver_connection
    assert isinstance(driver, PostgresConnection)
    return driver


def _take_from_pool(connection: PostgresConnection, _record: object, _proxy: object) -> None:
    if not connection.is_usable():
        # The pool opens another connection.
        raise DisconnectionError
    autocommit.prepare_connection(connection, _record, _proxy)


def _return_to_pool(connection: PostgresConnection | None, _record: object) -> None:
    if connection is not None:
        connection.used_at = time.monotonic()
        connection.response_seconds = timeouts.RESPONSE_SECONDS


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


_HOSTS: Final = re.compile(r"^(?P<before>postgres(?:ql)?://(?:[^/?#]*@)?)(?P<hosts>[^/?#@]*)(?P<after>.*)$", re.DOTALL)


def _parse_url(url: str) -> URL:
    with suppress(ArgumentError, ValueError):
        if (match := _HOSTS.match(url)) is not None and ("," in match["hosts"] or "%" in match["hosts"]):
            # Several hosts, or the encoded path of a directory with a socket. SQLAlchemy reads them as parameters.
            parsed = make_url(match["before"] + match["after"])
            return parsed.update_query_dict({"host": [unquote(host) for host in match["hosts"].split(",")]})
        parsed = make_url(url)
        # If a password contains an unescaped @, its end is parsed as part of the host, which error messages contain.
        if "@" not in (parsed.host or ""):
            return parsed
    raise Invalid(
        "HOOKMILL_DATABASE_URL can't be read. Use postgresql://USER:PASSWORD@HOST:PORT/NAME, with the characters "
        "@ : / ? # % of the user and the password as %40 %3A %2F %3F %23 %25. Several hosts are separated by commas, "
        "and %2Frun%2Fpostgresql is the directory of a socket."
    )


def _parameters(url: str) -> dict[str, Any]:
    """The parameters of a connection for libpq: those of the URL and ours, which take precedence."""
    # They include SQLAlchemy's adapters for types.
    _, parameters = create_engine(_DRIVER).dialect.create_connect_args(_parse_url(url))
    options = parameters.get("options", "")
    # `refuse_pooler` verifies that this setting arrives. The later one of two options counts.
    ours = f"-c lock_timeout={timeouts.BUSY_SECONDS * 1000}"
    return {
        **parameters,
        "options": " ".join([*([options] if isinstance(options, str) else options), ours]).strip(),
        "connect_timeout": timeouts.STATEMENT_SECONDS,
        # The kernel closes connections to a server that vanished without closing them.
        "tcp_user_timeout": timeouts.STATEMENT_SECONDS * 1000,
        "keepalives_idle": timeouts.STATEMENT_SECONDS,
        "application_name": "hookmill",
    }


def _suitable_connection(parameters: Mapping[str, Any], settings: Mapping[str, str]) -> PostgresConnection:
    try:
        connection = PostgresConnection.connect(**parameters)
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
        _set_up_session(connection, settings)
    except BaseException:
        connection.close()
        raise
    connection.used_at = time.monotonic()
    return connection


def _set_up_session(connection: PostgresConnection, settings: Mapping[str, str]) -> None:
    """Replace what the session has inherited. Raises `Invalid` if it does not verify foreign keys."""
    if connection.info.server_version >= _TRANSACTION_TIMEOUT_VERSION:
        settings = {**settings, "transaction_timeout": "0"}
    calls = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in settings.items())
    connection.autocommit = True
    row = connection.execute(f"SELECT current_setting('session_replication_role'), {calls}".encode()).fetchone()
    connection.autocommit = False
    if row is None or row[0] != "origin":
        raise Invalid(
            "Sessions of this role have the setting session_replication_role, with which PostgreSQL does not verify "
            "foreign keys. Run ALTER ROLE … RESET session_replication_role, and check ALTER DATABASE … SET."
        )


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
