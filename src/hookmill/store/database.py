"""Read and write transactions on the database, SQLite or PostgreSQL. All access to the database goes through here.

SQLite allows one writer at a time. A process has one connection that writes, behind a fair lock, so that no thread
starves.
"""

import re
import sqlite3
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Self, TypeVar, cast
from urllib.parse import quote, unquote, urlsplit

from sqlalchemy import Connection, CursorResult, RowMapping, TextClause, TextualSelect, bindparam, column, text
from sqlalchemy.exc import DataError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from hookmill.domain.errors import DatabaseUnreachable, DiskFull, Invalid, StoreUnavailable, TransactionConflict
from hookmill.store import sqlite_engine, timeouts
from hookmill.store.autocommit import autocommit
from hookmill.store.sqlite_files import Mark, SqliteFiles

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")
Row = RowMapping
POSTGRES_CONNECTIONS: Final = 16
"""The maximum number of connections in a process's pool for PostgreSQL. A worker adds one for each run at a time."""
_SQLITE_PREFIX: Final = "sqlite:///"
"""Precedes a path. With an absolute path, the URL has four slashes."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """One open transaction. Statements are SQL text with `:named` parameters; rows come back as mappings.

    A value may be a list that is not empty, such as in `id IN :ids`. Other values that the statement does not name are
    ignored.
    """

    connection: Connection

    @property
    def on_sqlite(self) -> bool:
        return self.connection.dialect.name == "sqlite"

    def one(self, sql: str, **values: Any) -> Row | None:
        """The first row of the result; None if the result is empty."""
        return self._execute(sql, values).mappings().first()

    def all(self, sql: str, **values: Any) -> Sequence[Row]:
        """All rows of the result."""
        return self._execute(sql, values).mappings().all()

    def scalar(self, sql: str, **values: Any) -> Any | None:
        """The first column of the first row; None if the result is empty."""
        return self._execute(sql, values).scalar()

    def scalars(self, sql: str, **values: Any) -> list[Any]:
        """The first column of all rows."""
        return list(self._execute(sql, values).scalars())

    def integer(self, sql: str, **values: Any) -> int:
        """The first column of a result with one row, such as that of COUNT."""
        return int(self._execute(sql, values).scalar_one())

    def run(self, sql: str, **values: Any) -> int:
        """Execute the statement. Returns the number of rows that it inserted, updated or deleted."""
        return self._execute(sql, values).rowcount

    def _execute(self, sql: str, values: dict[str, Any]) -> CursorResult[Any]:
        lists = tuple(name for name, value in values.items() if type(value) is list)
        statement = _statement(sql, self.connection.dialect.name, lists)
        try:
            result = self.connection.execute(statement.executable, values)
        except (DataError, UnicodeEncodeError):
            # PostgreSQL's text can't contain a NUL, and UTF-8 can't encode half of a surrogate pair.
            flat = chain(*(value if type(value) is list else [value] for value in values.values()))
            if any(isinstance(value, str) and _UNSTORABLE.search(value) for value in flat):
                raise Invalid("A text contains NUL, or half of a surrogate pair. Remove it.") from None
            raise
        if not statement.has_final_columns:
            statement.learn_columns(result)
        return result

    def bulk(self, sql: str, values: tuple[Any, ...]) -> CursorResult[Any]:
        """Execute driver-level SQL with positional parameters, for statements with the values of many rows."""
        return self.connection.exec_driver_sql(sql, values)

    def bulk_many(self, sql: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Execute the driver-level SQL once for each row. Does nothing without rows."""
        if rows:
            self.connection.exec_driver_sql(sql, list(rows))


@dataclass(frozen=True, slots=True)
class _SingleStatement(Transaction):
    """A transaction that is over after its first statement."""

    executed: list[str] = field(default_factory=list)

    def _execute(self, sql: str, values: dict[str, Any]) -> CursorResult[Any]:
        if self.executed:
            raise RuntimeError("A transaction for a single statement can't execute a second one.")
        self.executed.append(sql)
        return Transaction._execute(self, sql, values)

    def bulk(self, sql: str, values: tuple[Any, ...]) -> CursorResult[Any]:
        raise RuntimeError("A transaction for a single statement can't execute driver-level SQL.")

    def bulk_many(self, sql: str, rows: Sequence[tuple[Any, ...]]) -> None:
        raise RuntimeError("A transaction for a single statement can't execute driver-level SQL.")


def from_row(kind: type[T], row: Row, /, **others: Any) -> T:
    """An object of this dataclass or struct. Except for `others`, its fields have the values of the columns with their
    names.

    Booleans and enums are among the others: SQLite returns numbers, and both databases return an enum's value.
    """
    names: Iterable[str] = getattr(kind, "__dataclass_fields__", None) or kind.__struct_fields__  # type: ignore[attr-defined]
    return kind(**{name: row[name] for name in names if name not in others}, **others)


_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


_EVERY_COLUMN: Final = re.compile(r"(?<!\()\*")
"""The `*` of `SELECT *`, but not that of `count(*)`."""


class _Statement:
    """A parsed statement. The first result tells the names of its columns.

    While SQLAlchemy does not know the names, it describes the columns of each result anew. For a run and its payload,
    this took a third of the processor time on SQLite, and a fifth on PostgreSQL.
    """

    __slots__ = ("executable", "has_final_columns")

    def __init__(self, sql: str, lists: Iterable[str]) -> None:
        clause = text(sql).bindparams(*[bindparam(name, expanding=True) for name in lists])
        self.executable: TextClause | TextualSelect = clause
        # A migration may change what `SELECT *` returns.
        self.has_final_columns = _EVERY_COLUMN.search(sql) is not None

    def learn_columns(self, result: CursorResult[Any]) -> None:
        """Any thread may call this: all threads learn the same."""
        if isinstance(self.executable, TextClause) and result.returns_rows:
            names = tuple(result.keys())
            if len(names) == len(set(names)):
                self.executable = self.executable.columns(*map(column, names))
        self.has_final_columns = True


@lru_cache(512)
def _statement(sql: str, _dialect: str, lists: tuple[str, ...]) -> _Statement:
    """The parsed statement. Parsing each statement again would take a quarter of the time to create a webhook.

    The databases name columns without an alias differently. `lists` are the parameters whose values are lists.
    """
    return _Statement(sql, lists)


class Database:
    """An open database. Threads may share it. The caller closes it."""

    def __init__(
        self,
        url: str,
        *,
        checkpoints: bool = False,
        syncs: bool = True,
        is_draft: bool = False,
        connections: int = POSTGRES_CONNECTIONS,
        idle_seconds: int = timeouts.IDLE_SECONDS,
    ) -> None:
        """`url` is `sqlite:///path` or `postgresql://…`. `connections` is the maximum size of PostgreSQL's pool.

        PostgreSQL rolls a transaction back if it waits `idle_seconds` for the next statement.

        The other parameters are for SQLite. Only the writer process sets `checkpoints`: in SQLite 3.7.0 to 3.51.2, two
        connections that checkpoint at the same time can corrupt the WAL. Without `syncs`, a commit survives a crash of
        the process, but survives a power failure only after a later commit has synced. Pass `syncs=False` for work that
        can be repeated, so that its commits don't hold the write lock while the disk syncs. `is_draft`: no other
        process opens the file, and a failed write makes it useless. Such a file has no WAL.
        """
        self.url = url
        self.on_sqlite = url.startswith("sqlite:")
        self._write_lock = _FairLock() if self.on_sqlite else None
        if self.on_sqlite:
            self.path: Path | None = sqlite_path(url)
            """The SQLite file; None on PostgreSQL."""
            self._has_sqlite_file = self._has_saved_wal = False
            self._files = None if is_draft else SqliteFiles(self.path, is_writer=checkpoints)
            self._write_engine, self._read_engine = (
                sqlite_engine.sqlite_engine(
                    self.path, self._files, writes=writes, checkpoints=checkpoints and writes, syncs=syncs
                )
                for writes in (True, False)
            )
            if checkpoints and self._files is not None:
                self._grow_wal()
                with raising_unavailable(), self._write_engine.connect() as connection:
                    self._files.mark = Mark(self.path, sqlite_engine.driver_connection(connection))
        else:
            self.path = self._files = None
            # Loading the driver takes 0.2 s, and SQLite does not need it.
            from hookmill.store.postgres_engine import postgres_engine

            self._write_engine = postgres_engine(url, connections=connections, idle_seconds=idle_seconds)
            # All queries of a read transaction need the same snapshot. Otherwise a new webhook could be combined with
            # old automations.
            self._read_engine = self._write_engine.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )

    def has_sqlite_file(self) -> bool:
        """Whether the file at `path` exists and is a SQLite database. Call it before the first transaction.

        Once the answer is yes, the file is not opened again. When a process closes any descriptor of a file, Linux
        releases all locks that the process holds on it, also those of its connections. Another process could then
        remove the WAL while this process still uses it.
        """
        assert self.path is not None
        self._has_sqlite_file = self._has_sqlite_file or is_sqlite_file(self.path)
        return self._has_sqlite_file

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """A read-only transaction with a consistent snapshot. Raises `StoreUnavailable`."""
        with raising_unavailable(), self._read_engine.connect() as connection, connection.begin():
            self.verify_files()
            yield Transaction(connection)

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """A transaction that commits when the block ends, and rolls back if the block raises.

        Raises `StoreUnavailable`. If COMMIT itself failed, the transaction may have been committed.
        """
        with raising_unavailable():
            if self._write_lock is None:
                with self._write_engine.begin() as connection:
                    yield Transaction(connection)
                return
            mark = self._files.mark if self._files is not None else None
            with self._write_lock, self._write_engine.begin() as connection:
                self.verify_files()
                if mark is not None:
                    mark.renew(sqlite_engine.driver_connection(connection))
                yield Transaction(connection)
            if mark is not None:
                mark.committed()
            # Files that were replaced before the COMMIT don't have the transaction.
            self.verify_files()

    def read_statement(self) -> AbstractContextManager[Transaction]:
        """A transaction for a single query. Raises `StoreUnavailable`.

        On PostgreSQL, it saves the messages for BEGIN and COMMIT. A second statement raises `RuntimeError`.
        """
        return self._single_statement(self.read)

    def write_statement(self) -> AbstractContextManager[Transaction]:
        """A transaction for a single statement. Raises `StoreUnavailable`.

        On PostgreSQL, the statement commits by itself, even if the block then raises. That saves the messages for BEGIN
        and COMMIT. A second statement raises `RuntimeError`.
        """
        return self._single_statement(self.write)

    @contextmanager
    def _single_statement(
        self, sqlite_transaction: Callable[[], AbstractContextManager[Transaction]]
    ) -> Iterator[Transaction]:
        if self.on_sqlite:
            with sqlite_transaction() as tx:
                yield _SingleStatement(tx.connection)
            return
        with raising_unavailable(), self._autocommitting_connection() as connection:
            yield _SingleStatement(connection)

    def _autocommitting_connection(self) -> Connection:
        with autocommit():
            return self._write_engine.connect()

    def _grow_wal(self) -> None:
        """Enlarge the WAL with a transaction that is larger than the cache, and roll it back. The file keeps its
        size."""
        with raising_unavailable(), self._write_engine.connect() as connection:
            driver = sqlite_engine.driver_connection(connection)
            driver.execute("PRAGMA cache_size = 100")
            driver.execute("BEGIN IMMEDIATE")
            driver.execute("CREATE TABLE preallocated_wal (filler BLOB)")
            driver.execute("INSERT INTO preallocated_wal VALUES (zeroblob(?))", (sqlite_engine.PREALLOCATED_WAL_BYTES,))
            driver.execute("ROLLBACK")
            driver.execute(sqlite_engine.SET_WRITER_CACHE_SIZE)

    def connection_for_commit_watch(self) -> sqlite3.Connection:
        """A SQLite connection outside the pool, for `CommitWatch`, which closes it.

        Raises `sqlite3.Error` and `StoreUnavailable`.
        """
        with raising_unavailable():
            connection = self._read_engine.raw_connection()
        driver = connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        connection.detach()
        return driver

    @contextmanager
    def dedicated_connection(self) -> Iterator["psycopg.Connection[Any]"]:
        """A connection to PostgreSQL outside the pool, in autocommit mode. Raises `StoreUnavailable`."""
        with raising_unavailable():
            pooled = self._write_engine.raw_connection()
            connection = cast("psycopg.Connection[Any]", pooled.driver_connection)
            pooled.detach()
        try:
            connection.autocommit = True
            yield connection
        finally:
            connection.close()

    def verify_files(self) -> None:
        """Raises `DatabaseUnreachable` if SQLite's files were removed or replaced since they were opened."""
        if self._files is not None:
            self._files.verify()

    def save_wal(self) -> bool:
        """If SQLite's files were replaced, move the transactions from the WAL into the database that is open.

        Then they are not lost if only the WAL was removed. And the WAL can't destroy another database that was put at
        the path, unless that was copied into the open file: its content is lost anyway, and the file renamed. For the
        writer process only. Returns whether the files were replaced.
        """
        if self._files is None or not self._files.are_replaced():
            self._has_saved_wal = False
            return False
        if not self._has_saved_wal:
            with suppress(sqlite3.Error, StoreUnavailable), raising_unavailable():
                connection = self._write_engine.raw_connection()
                try:
                    is_busy, _, _ = connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                    self._has_saved_wal = not is_busy
                finally:
                    connection.close()
        return True

    def record_files(self, lock: IO[bytes]) -> None:
        """Write into the writer's lock file which files it uses."""
        if self._files is not None:
            self._files.record(lock)

    def discard_connections(self) -> None:
        """Close idle connections, so that later transactions open new ones.

        Call it after an error: the page cache of a broken connection may be stale.
        """
        self._write_engine.dispose()
        self._read_engine.dispose()

    def close(self) -> None:
        self.discard_connections()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def sqlite_url(path: Path) -> str:
    """The URL of a SQLite file. Its path may have any character, so some are escaped."""
    return _SQLITE_PREFIX + quote(str(path))


def sqlite_path(url: str) -> Path:
    """The file of a URL that begins with `sqlite:///`, as SQLAlchemy reads it."""
    return Path(unquote(url.removeprefix(_SQLITE_PREFIX)))


def is_sqlite_file(path: Path) -> bool:
    """Whether the file exists and is a SQLite database.

    Use it only for a file that this process has not opened as a database: see `Database.has_sqlite_file`.
    """
    with suppress(FileNotFoundError), path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\x00"
    return False


def open_database(
    url: str,
    *,
    checkpoints: bool = False,
    syncs: bool = True,
    connections: int = POSTGRES_CONNECTIONS,
    idle_seconds: int = timeouts.IDLE_SECONDS,
) -> Database:
    """Open the database at `url`. Raises `Invalid` for an unknown kind of URL, without its password."""
    if url.startswith(("sqlite:///", "postgresql://", "postgres://")):
        return Database(url, checkpoints=checkpoints, syncs=syncs, connections=connections, idle_seconds=idle_seconds)
    scheme = urlsplit(url).scheme
    kind = f"has the scheme {scheme!r}" if scheme else "has no scheme"
    raise Invalid(f"The database URL {kind}. Use sqlite:///PATH or postgresql://USER:PASSWORD@HOST/NAME.")


class _FairLock:
    """A lock that threads acquire in the order in which they requested it. With `threading.Lock`, a busy thread can
    acquire it repeatedly while others wait."""

    def __init__(self) -> None:
        self._state_lock = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._is_held = False

    def __enter__(self) -> None:
        with self._state_lock:
            if not self._is_held:
                self._is_held = True
                return
            # This lock is acquired twice. The second time, the thread waits until `__exit__` of another thread releases
            # the lock.
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        turn.acquire()

    def __exit__(self, *_: object) -> None:
        with self._state_lock:
            if self._waiting:
                # `_is_held` stays True: the lock passes to the next thread.
                self._waiting.popleft().release()
            else:
                self._is_held = False


@contextmanager
def raising_unavailable() -> Iterator[None]:
    """Convert errors of SQLAlchemy, of its pool and of the driver to `StoreUnavailable`."""
    try:
        yield
    except Exception as error:
        if (unavailable := unavailable_error(error)) is not None:
            raise unavailable from error
        raise


def unavailable_error(error: BaseException) -> StoreUnavailable | None:
    """`StoreUnavailable` for an error of SQLAlchemy or of a driver; None if the cause is not the database's state."""
    if isinstance(error, PoolTimeout):
        return StoreUnavailable(_driver_message(error))
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    if not isinstance(error, DBAPIError) and type(error).__module__.partition(".")[0] not in _DRIVERS:
        return None
    is_operational = isinstance(error, (OperationalError, InterfaceError)) or any(
        base.__name__ in {"OperationalError", "InterfaceError"} for base in type(cause).__mro__
    )
    is_invalidated = isinstance(error, DBAPIError) and error.connection_invalidated
    name = type(cause).__name__
    if not is_operational and not is_invalidated and name not in _TEMPORARY_ERRORS | _UNUSABLE_DATABASE_ERRORS:
        return None
    if getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL or name == "DiskFull":
        return disk_full()
    if name in _CONFLICTS:
        return TransactionConflict(_driver_message(error))
    # psycopg has no SQLSTATE if it can't connect, or if the connection was lost without a message from the server.
    is_of_connection = name in _CONNECTION_ERRORS or (
        type(cause).__module__.startswith("psycopg") and getattr(cause, "sqlstate", None) is None and is_operational
    )
    if is_invalidated or is_of_connection:
        return DatabaseUnreachable(_driver_message(error))
    return StoreUnavailable(_driver_message(error))


def disk_full() -> DiskFull:
    return DiskFull("The database can't be changed, because its disk is full. Free disk space, and then retry.")


_DRIVERS: Final = {"sqlite3", "psycopg"}

_CONFLICTS: Final = {"SerializationFailure", "DeadlockDetected"}
"""Class names of the errors with which PostgreSQL rolls a transaction back because of a concurrent one."""

_CONNECTION_ERRORS: Final = {"AdminShutdown", "CrashShutdown", "CannotConnectNow", "ReadOnlySqlTransaction"}
"""Class names of the errors of a server that stops, starts, or has become a standby."""

_TEMPORARY_ERRORS: Final = {
    "LockNotAvailable",
    "QueryCanceled",
    "AdminShutdown",
    "ReadOnlySqlTransaction",
}
"""Class names of the drivers' errors after which a later transaction can succeed."""

_UNUSABLE_DATABASE_ERRORS: Final = {"DatabaseError", "UndefinedTable", "UndefinedColumn", "InsufficientPrivilege"}
"""Class names of errors for a damaged or foreign file, for another version's schema, and for missing privileges."""


def _driver_message(error: BaseException) -> str:
    """The driver's message. It excludes the statement and its parameters, which may contain a body."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    message = str(cause).strip().split("\n")[0][:200]
    if type(cause).__name__.startswith("Undefined") or message.startswith(("no such table", "no such column")):
        return f"{message}. The database is not at this version's schema: run `hookmill migrate`."
    if type(cause).__name__ == "InsufficientPrivilege":
        return f"{message}. Grant it to the role in HOOKMILL_DATABASE_URL, or use the role that owns the database."
    return message


def restrict_to_owner(path: Path) -> None:
    """Let only the file's owner read and write it, if this account may: the database contains customers' data."""
    with suppress(OSError):
        path.chmod(stat.S_IRUSR | stat.S_IWUSR)


def retry(work: Callable[[], T], *, attempts: int = 3, after: type[StoreUnavailable] = StoreUnavailable) -> T:
    """Call `work` up to `attempts` times, without pauses, until it does not raise `after`.

    After most errors, a transaction may have been committed, so `work` must be idempotent.
    """
    for _ in range(attempts - 1):
        with suppress(after):
            return work()
    return work()
