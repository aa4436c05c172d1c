"""One door to the database, SQLite or PostgreSQL: transactions that read, and transactions that write.

SQLite has a single writer. Here it is a single connection behind a lock that is handed on in turn, so that neither the
deliveries nor the people who manage them starve.
"""

import sqlite3
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlsplit

import psycopg
from psycopg.abc import RV, PQGen
from sqlalchemy import Connection, CursorResult, Engine, RowMapping, create_engine, event, make_url, text
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import QueuePool

from hookmill.domain.errors import Invalid, StoreUnavailable

BUSY_SECONDS: Final = 2
"""How long a statement waits for another process's lock before it counts as unavailable."""
STATEMENT_SECONDS: Final = 5
SILENCE_SECONDS: Final = 2.0 * STATEMENT_SECONDS
"""After so long without a word PostgreSQL counts as gone. It ends a statement by itself much earlier."""
CHECKPOINT_PAGES: Final = 2_048
"""WAL pages (4 KB each) between checkpoints. Eight times as many took as many deliveries a second, with twice the
p99."""
WAL_BYTES_AHEAD: Final = 16 * 1024 * 1024
"""What the WAL is grown to before the first delivery. A sync of a file that grew waits for the file system's journal
too, several times as long as a sync of one that was only written over."""

T = TypeVar("T")
Row = RowMapping


@dataclass(frozen=True, slots=True)
class Transaction:
    """One open transaction. Statements are SQL text with `:named` parameters; rows come back as mappings."""

    connection: Connection

    @property
    def on_sqlite(self) -> bool:
        return self.connection.dialect.name == "sqlite"

    def one(self, sql: str, **values: Any) -> Row | None:
        """The first row, or None."""
        return self.connection.execute(text(sql), values).mappings().first()

    def all(self, sql: str, **values: Any) -> Sequence[Row]:
        return self.connection.execute(text(sql), values).mappings().all()

    def run(self, sql: str, **values: Any) -> int:
        """How many rows were touched."""
        result: CursorResult[Any] = self.connection.execute(text(sql), values)
        return result.rowcount

    def be_patient(self, seconds: int) -> None:
        """On PostgreSQL, let every statement of this transaction take so long, and wait so long for a lock."""
        self.run(f"SET LOCAL statement_timeout = '{seconds}s'")
        self.run(f"SET LOCAL lock_timeout = '{seconds}s'")
        driver = self.connection.connection.driver_connection
        assert isinstance(driver, _PostgresConnection)
        driver.silence_seconds = seconds + SILENCE_SECONDS

    def bulk(self, sql: str, values: tuple[Any, ...]) -> CursorResult[Any]:
        """Driver-level SQL with positional parameters, for the few statements that many deliveries share."""
        return self.connection.exec_driver_sql(sql, values)


class Database:
    """A store that is open. Close it when done; it may be shared by threads."""

    def __init__(self, url: str, *, checkpoints: bool = False, syncs: bool = True) -> None:
        """`url` is `sqlite:///path` or `postgresql://…`. The rest is about SQLite.

        `checkpoints` is for the one writing process alone: two connections that checkpoint at once can corrupt a WAL in
        SQLite 3.7.0 to 3.51.2. Without `syncs` a commit is safe from a crash of the process, and from a power cut only
        once a later commit has synced: for those who can do their work again, and should not hold the writer's place
        while a disk turns.
        """
        self.url = url
        self.on_sqlite = url.startswith("sqlite:")
        self._turn = _Turnstile() if self.on_sqlite else None
        if self.on_sqlite:
            self.path: Path | None = Path(make_url(url).database or "")
            self._writing = _sqlite_engine(url, writes=True, checkpoints=checkpoints, syncs=syncs)
            self._reading = _sqlite_engine(url, writes=False)
            if checkpoints:
                self._grow_wal()
        else:
            self.path = None
            self._writing = _postgres_engine(url)
            # A reading of several tables must be of one moment, or a webhook could be paired with last second's
            # automations.
            self._reading = self._writing.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """A consistent view that changes nothing. Raises `StoreUnavailable` when the database does not answer."""
        with _as_unavailable(), self._reading.connect() as connection, connection.begin():
            yield Transaction(connection)

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """All of it is kept, or nothing. Raises `StoreUnavailable`: then it may have been kept, if COMMIT itself
        failed."""
        with _as_unavailable():
            if self._turn is None:
                with self._writing.begin() as connection:
                    yield Transaction(connection)
                return
            with self._turn, self._writing.begin() as connection:
                yield Transaction(connection)

    def _grow_wal(self) -> None:
        """A transaction too large for the cache spills into the WAL; rolled back, it leaves the file grown and
        nothing else."""
        with _as_unavailable(), self._writing.connect() as connection:
            driver = connection.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            driver.execute("PRAGMA cache_size = 100")
            driver.execute("BEGIN IMMEDIATE")
            driver.execute("CREATE TABLE wal_ahead (filling BLOB)")
            driver.execute("INSERT INTO wal_ahead VALUES (zeroblob(?))", (WAL_BYTES_AHEAD,))
            driver.execute("ROLLBACK")
            driver.execute(_WRITER_CACHE)

    def forget_connections(self) -> None:
        """Reopen from here on: what a broken connection believes of the disk can't be trusted."""
        self._writing.dispose()
        self._reading.dispose()

    def close(self) -> None:
        self.forget_connections()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def sqlite_url(path: Path) -> str:
    return f"sqlite:///{path}"


def open_database(url: str, *, checkpoints: bool = False, syncs: bool = True) -> Database:
    """Open what `url` names. Raises `Invalid` for a URL of another kind, without repeating its password."""
    if url.startswith(("sqlite:///", "postgresql://", "postgres://")):
        return Database(url, checkpoints=checkpoints, syncs=syncs)
    kind = urlsplit(url).scheme or "nothing"
    raise Invalid(f"The database URL starts with {kind!r}. Use sqlite:///PATH or postgresql://USER:PASSWORD@HOST/NAME.")


class _Turnstile:
    """A lock that is handed on in the order of asking. `threading.Lock` lets a busy thread take it again and again."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._taken = False

    def __enter__(self) -> None:
        with self._guard:
            if not self._taken:
                self._taken = True
                return
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        mine.acquire()

    def __exit__(self, *_: object) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._taken = False


@contextmanager
def _as_unavailable() -> Iterator[None]:
    try:
        yield
    except (OperationalError, InterfaceError, PoolTimeout) as error:
        raise StoreUnavailable(_plain(error)) from error
    except DBAPIError as error:
        if error.connection_invalidated or type(error.orig).__name__ in _PASSING | _UNUSABLE:
            raise StoreUnavailable(_plain(error)) from error
        raise


_PASSING: Final = {"LockNotAvailable", "QueryCanceled", "DeadlockDetected", "AdminShutdown", "ReadOnlySqlTransaction"}

_UNUSABLE: Final = {"DatabaseError", "UndefinedTable", "UndefinedColumn"}
"""A file that is damaged or no database, or a database that this version has not set up."""


def _plain(error: SQLAlchemyError) -> str:
    """The driver's own words, without the statement and its parameters: those may hold a body."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    said = str(cause).strip().split("\n")[0][:200]
    if type(cause).__name__.startswith("Undefined") or said.startswith(("no such table", "no such column")):
        return f"{said}. It is not at this version's schema: run `hookmill migrate`."
    return said


_WRITER_CACHE: Final = "PRAGMA cache_size = -65536"


def _sqlite_engine(url: str, *, writes: bool, checkpoints: bool = False, syncs: bool = True) -> Engine:
    engine = create_engine(
        url,
        poolclass=QueuePool,
        pool_size=1 if writes else 4,
        max_overflow=0,
        connect_args={
            "isolation_level": None,
            "check_same_thread": False,
            "cached_statements": 256,
            "timeout": BUSY_SECONDS,
        },
    )

    @event.listens_for(engine, "connect")
    def _prepare(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if syncs else 'NORMAL'}")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES if checkpoints else 0}")
        connection.execute("PRAGMA journal_size_limit = 134217728")
        connection.execute(_WRITER_CACHE if writes else "PRAGMA cache_size = -16384")
        connection.execute("PRAGMA temp_store = MEMORY")
        if not writes:
            connection.execute("PRAGMA query_only = ON")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # IMMEDIATE takes the writer's place at once: a read that later wants to write could only fail.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


class _PostgresConnection(psycopg.Connection[Any]):
    """Ends when the server falls silent. A proxy or a frozen machine may go on acknowledging what it never answers, and
    whoever waited for that would wait for ever."""

    silence_seconds = SILENCE_SECONDS

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


def _postgres_engine(url: str) -> Engine:
    engine = create_engine(
        make_url(url).set(drivername="postgresql+psycopg"),
        pool_size=8,
        max_overflow=8,
        pool_timeout=STATEMENT_SECONDS,
        pool_pre_ping=False,
        connect_args={
            "connect_timeout": STATEMENT_SECONDS,
            "options": (
                f"-c lock_timeout={BUSY_SECONDS * 1000} -c statement_timeout={STATEMENT_SECONDS * 1000}"
                " -c idle_in_transaction_session_timeout=15000 -c synchronous_commit=on -c timezone=UTC"
            ),
            # A server that vanished without a word is noticed by the kernel, not waited for.
            "tcp_user_timeout": STATEMENT_SECONDS * 1000,
            "keepalives_idle": STATEMENT_SECONDS,
            "application_name": "hookmill",
        },
    )

    @event.listens_for(engine, "do_connect")
    def _connect(_dialect: object, _record: object, given: Sequence[Any], named: dict[str, Any]) -> _PostgresConnection:
        return _PostgresConnection.connect(*given, **named)

    @event.listens_for(engine, "checkin")
    def _end_patience(connection: _PostgresConnection | None, _record: object) -> None:
        if connection is not None:
            connection.silence_seconds = SILENCE_SECONDS

    return engine


def close_to_strangers(path: Path) -> None:
    """The database holds customers' data: its owner alone reads it."""
    with suppress(OSError):
        path.chmod(stat.S_IRUSR | stat.S_IWUSR)


def retried(work: Callable[[], T], *, times: int = 3) -> T:
    """Do `work` again when the store was unavailable. For work that is safe to repeat."""
    for _ in range(times - 1):
        with suppress(StoreUnavailable):
            return work()
    return work()
