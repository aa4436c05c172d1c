"""The only access to the database, SQLite or PostgreSQL: transactions that read, and transactions that write.

SQLite has a single writer. Here it is a single connection behind a lock that is handed on in turn, so that neither the
deliveries nor the people who manage them starve.
"""

import re
import sqlite3
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast
from urllib.parse import urlsplit

from sqlalchemy import Connection, CursorResult, RowMapping, TextClause, make_url, text
from sqlalchemy.exc import DataError, DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from hookmill.domain.errors import Invalid, StoreUnavailable
from hookmill.store import sqlite_engine, timeouts

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")
Row = RowMapping
POSTGRES_CONNECTIONS: Final = 16
"""The most connections that one process opens to PostgreSQL, unless it performs more runs at once."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """One open transaction. Statements are SQL text with `:named` parameters; rows come back as mappings."""

    connection: Connection

    @property
    def on_sqlite(self) -> bool:
        return self.connection.dialect.name == "sqlite"

    def one(self, sql: str, **values: Any) -> Row | None:
        """The first row, or None."""
        return self._execute(sql, values).mappings().first()

    def all(self, sql: str, **values: Any) -> Sequence[Row]:
        return self._execute(sql, values).mappings().all()

    def run(self, sql: str, **values: Any) -> int:
        """How many rows were touched."""
        return self._execute(sql, values).rowcount

    def _execute(self, sql: str, values: dict[str, Any]) -> CursorResult[Any]:
        try:
            return self.connection.execute(_statement(sql), values)
        except (DataError, UnicodeEncodeError):
            # PostgreSQL has no NUL in text, and UTF-8 has no half of a surrogate pair. Nothing can have such a name.
            if any(isinstance(value, str) and _NO_TEXT.search(value) for value in values.values()):
                raise Invalid("A text contains NUL, or half of a surrogate pair. Remove it.") from None
            raise

    def set_timeouts(self, seconds: int) -> None:
        """Of PostgreSQL: let every statement of this transaction take so long, and wait so long for a lock."""
        self.run(f"SET LOCAL statement_timeout = '{seconds}s'")
        self.run(f"SET LOCAL lock_timeout = '{seconds}s'")
        from hookmill.store.postgres_engine import PostgresConnection

        driver = self.connection.connection.driver_connection
        assert isinstance(driver, PostgresConnection)
        driver.silence_seconds = seconds + timeouts.SILENCE_SECONDS

    def bulk(self, sql: str, values: tuple[Any, ...]) -> CursorResult[Any]:
        """Driver-level SQL with positional parameters, for the few statements that many deliveries share."""
        return self.connection.exec_driver_sql(sql, values)


_NO_TEXT: Final = re.compile("[\x00\ud800-\udfff]")


@lru_cache(512)
def _statement(sql: str) -> TextClause:
    """Looking for the parameters of every statement anew is a quarter of the time that creating a webhook takes."""
    return text(sql)


class Database:
    """A store that is open. Close it when done; it may be shared by threads."""

    def __init__(
        self, url: str, *, checkpoints: bool = False, syncs: bool = True, connections: int = POSTGRES_CONNECTIONS
    ) -> None:
        """`url` is `sqlite:///path` or `postgresql://…`. `connections` is the most that PostgreSQL's pool opens.

        The others apply to SQLite.
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
            self._writing = sqlite_engine.sqlite_engine(url, writes=True, checkpoints=checkpoints, syncs=syncs)
            self._reading = sqlite_engine.sqlite_engine(url, writes=False)
            if checkpoints:
                self._grow_wal()
        else:
            self.path = None
            # Its driver takes a fifth of a second to load, and SQLite needs nothing of it.
            from hookmill.store.postgres_engine import postgres_engine

            self._writing = postgres_engine(url, connections=connections)
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
            driver.execute("INSERT INTO wal_ahead VALUES (zeroblob(?))", (sqlite_engine.WAL_BYTES_AHEAD,))
            driver.execute("ROLLBACK")
            driver.execute(sqlite_engine.WRITER_CACHE)

    def connection_for_watching(self) -> sqlite3.Connection:
        """SQLite's own, which the caller closes. Raises `sqlite3.Error`, `StoreUnavailable`."""
        with _as_unavailable():
            connection = self._reading.raw_connection()
        driver = connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        connection.detach()
        return driver

    @contextmanager
    def dedicated_connection(self) -> Iterator["psycopg.Connection[Any]"]:
        """A connection to PostgreSQL outside the pool, in autocommit mode. Raises `StoreUnavailable`."""
        with _as_unavailable():
            pooled = self._writing.raw_connection()
            connection = cast("psycopg.Connection[Any]", pooled.driver_connection)
            pooled.detach()
        try:
            connection.autocommit = True
            yield connection
        finally:
            connection.close()

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


def is_sqlite_file(path: Path) -> bool:
    with suppress(FileNotFoundError), path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\x00"
    return False


def open_database(
    url: str, *, checkpoints: bool = False, syncs: bool = True, connections: int = POSTGRES_CONNECTIONS
) -> Database:
    """Open what `url` names. Raises `Invalid` for a URL of another kind, without repeating its password."""
    if url.startswith(("sqlite:///", "postgresql://", "postgres://")):
        return Database(url, checkpoints=checkpoints, syncs=syncs, connections=connections)
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

_UNUSABLE: Final = {"DatabaseError", "UndefinedTable", "UndefinedColumn", "InsufficientPrivilege"}
"""A file that is damaged or no database, or a database that this version has not set up or may not use."""


def _plain(error: SQLAlchemyError) -> str:
    """The driver's own words, without the statement and its parameters: those may hold a body."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    said = str(cause).strip().split("\n")[0][:200]
    if type(cause).__name__.startswith("Undefined") or said.startswith(("no such table", "no such column")):
        return f"{said}. It is not at this version's schema: run `hookmill migrate`."
    if type(cause).__name__ == "InsufficientPrivilege":
        return f"{said}. Grant that right to the role in HOOKMILL_DATABASE_URL, or use the role that owns the database."
    return said


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
