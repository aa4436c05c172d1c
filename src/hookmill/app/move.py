"""Moves an installation from SQLite to PostgreSQL, while no other process can change it."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hookmill.app import keys, now_us
from hookmill.app.exclusive import lock_out_services
from hookmill.domain.errors import Conflict, HookmillError, Invalid, StoreUnavailable
from hookmill.domain.ids import TeamId
from hookmill.settings import Settings
from hookmill.store import factories, moved
from hookmill.store.database import Database, Transaction, is_sqlite_file, open_database, sqlite_path
from hookmill.store.migrate import refuse_other_revision
from hookmill.store.move import source, steps, target
from hookmill.store.move.steps import ReportRows
from hookmill.store.move.target import MovePosition
from hookmill.store.moved import AlreadyMoved, Successor
from hookmill.store.postgres_engine import contains_password, without_password
from hookmill.store.rows.digest import TableDigest

CONNECTIONS: Final = 2
"""The size of the pool of connections to PostgreSQL."""


class MoveInterrupted(HookmillError):
    """A database became unavailable during the move. The next start of the same move continues it."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(
            f"The move was interrupted{reason.rstrip('.')}.\n"
            "Nothing is lost. To continue where it stopped, start the same command again."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveResult:
    """The result of a move. `successor` is the new database, and `path` the old one."""

    successor: Successor
    path: Path
    tables: Sequence[TableDigest]
    unfinished_runs: int
    is_resumed: bool
    seconds: float
    """How long this start of the move took, without earlier ones that were interrupted."""

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables)


def refuse_password(url: str) -> None:
    """Raises `Invalid` for a URL with a password, or one that can't be read."""
    with _naming_option():
        if contains_password(url):
            raise Invalid(
                "The URL contains a password, and other users of this machine can read a command's arguments. Write "
                "--to - and pass the URL on standard input. Or leave the password out, and put it into the variable "
                "PGPASSWORD or the file ~/.pgpass."
            )


def move(settings: Settings, url: str, report: ReportRows) -> MoveResult:
    """Copy everything from the SQLite database to the empty PostgreSQL database at `url`, and mark the former as moved.

    If an earlier call was interrupted, this call continues the copy. Raises

    - `Invalid` for a database or a row that can't be moved, and `WrongKey` without the master key;
    - `Conflict` if another process uses the SQLite database, if a database has another version's schema, or if the
      PostgreSQL database is not empty;
    - `StoreUnavailable` before the move has begun, and `MoveInterrupted` after that.
    """
    began_at = time.monotonic()
    path = _sqlite_path(settings)
    with ExitStack() as resources:
        if not url.startswith(("postgresql://", "postgres://")):
            raise Invalid("--to is not the URL of a PostgreSQL database. Use postgresql://USER@HOST:PORT/NAME.")
        with _naming_option():
            successor_url = without_password(url)
            database = resources.enter_context(open_database(url, connections=CONNECTIONS))
            # The first connection finds out whether the server is suitable. No lock is held yet.
            with database.read():
                pass
        lock_out_services(settings, path, resources)
        sqlite = resources.enter_context(open_database(settings.store_url()))
        keys.load_checked_ring(settings, sqlite)
        with _interruptible():
            with _locked(sqlite) as tx:
                copied = _copy(tx, database, settings, report)
                successor = Successor(url=successor_url, moved_at=now_us())
                moved.set_successor(tx, successor)
            # At no time can both databases be used. If this process dies here, the next start of the move finishes it.
            target.finish(database, copied.position)
    return MoveResult(
        successor=successor,
        path=path,
        tables=copied.digests,
        unfinished_runs=copied.unfinished_runs,
        is_resumed=copied.is_resumed,
        seconds=time.monotonic() - began_at,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copied:
    """Both databases have the same rows."""

    position: MovePosition
    digests: Sequence[TableDigest]
    unfinished_runs: int
    is_resumed: bool


def _copy(tx: Transaction, database: Database, settings: Settings, report: ReportRows) -> _Copied:
    """Check, copy and compare all rows. SQLite (`tx`) is only read."""
    with source.read_only(tx):
        refuse_other_revision(tx)
        team = _team(tx)
        previous = moved.successor(tx)
        if previous is not None and not _is_unfinished(database, team):
            raise AlreadyMoved(previous)
        total = steps.check(tx, report)
        position, is_resumed = target.begin_or_resume(database, team)
        position = steps.copy(tx, database, position, total, report)
        return _Copied(
            position=position,
            digests=steps.compare(tx, database, total, report),
            unfinished_runs=steps.count_unfinished_runs(tx),
            is_resumed=is_resumed,
        )


def _team(tx: Transaction) -> TeamId:
    team = factories.only_team(tx)
    if team is None:
        raise Invalid("The SQLite database has no data, because the service was never started. Nothing was moved.")
    return team


def _is_unfinished(database: Database, team: TeamId) -> bool:
    """Whether the PostgreSQL database is the target of a move of this installation that must still be finished."""
    try:
        return target.unfinished_move(database, team) is not None
    except Conflict:
        return False


def successor_of(settings: Settings) -> Successor:
    """The database to which the SQLite database was moved. Raises `Conflict` if it was not moved."""
    _sqlite_path(settings)
    with open_database(settings.store_url()) as sqlite, sqlite.read() as tx:
        return _required_successor(tx)


def undo(settings: Settings) -> Successor:
    """Let services use the SQLite database again. Returns the database to which it was moved.

    PostgreSQL is not changed. Raises `Conflict` if the SQLite database was not moved.
    """
    _sqlite_path(settings)
    with open_database(settings.store_url()) as sqlite, sqlite.write() as tx:
        successor = _required_successor(tx)
        moved.remove_successor(tx)
    return successor


def _required_successor(tx: Transaction) -> Successor:
    successor = moved.successor(tx)
    if successor is None:
        raise Conflict("The SQLite database is not marked as moved. Nothing was changed.")
    return successor


def _sqlite_path(settings: Settings) -> Path:
    """The file of the SQLite database. Raises `Conflict` for PostgreSQL, and `Invalid` for a missing file."""
    if settings.on_postgres:
        raise Conflict(
            "The setting database_url names a PostgreSQL database, and this command needs the SQLite database. Unset "
            "HOOKMILL_DATABASE_URL, or database_url in the file, for this command."
        )
    path = sqlite_path(settings.store_url())
    if not is_sqlite_file(path):
        raise Invalid(
            f"There is no SQLite database {path}. Set HOOKMILL_DATA_DIR to the data directory of the service."
        )
    return path


@contextmanager
def _interruptible() -> Iterator[None]:
    try:
        yield
    except StoreUnavailable as error:
        raise MoveInterrupted(f": {error}") from error


@contextmanager
def _naming_option() -> Iterator[None]:
    """Let errors about the URL name the option instead of the setting."""
    try:
        yield
    except Invalid as error:
        raise Invalid(str(error).replace("HOOKMILL_DATABASE_URL", "--to")) from None


@contextmanager
def _locked(sqlite: Database) -> Iterator[Transaction]:
    """A transaction that keeps every other process from writing, such as commands. Raises `Conflict`."""
    with ExitStack() as transaction:
        try:
            tx = transaction.enter_context(sqlite.write())
        except StoreUnavailable as error:
            raise Conflict(
                f"The SQLite database can't be locked: {error}. Another command may be changing it. Wait until it has "
                "ended, then start the move again. Nothing was changed."
            ) from error
        yield tx
