"""Moves an installation from SQLite to PostgreSQL, while no other process can change it."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from hookmill.app import keys, now_us
from hookmill.app.exclusive import lock_out_services
from hookmill.app.restore import NOTHING_CHANGED, collect_statistics, empty_database
from hookmill.domain.errors import Conflict, Invalid, StoreUnavailable
from hookmill.settings import Settings
from hookmill.store import factories, moved
from hookmill.store.backup import restoring
from hookmill.store.backup.container import GET_ANOTHER, UnusableBackup
from hookmill.store.backup.restoring import LoadedBackup
from hookmill.store.backup.taking import snapshot_records
from hookmill.store.database import Database, Transaction, is_sqlite_file, open_database, sqlite_path
from hookmill.store.migrate import refuse_other_revision
from hookmill.store.moved import AlreadyMoved, Successor
from hookmill.store.postgres_engine import contains_password, without_password
from hookmill.store.rows import ReportRows
from hookmill.store.rows.tables import TABLES

INTERRUPTED: Final = "The move was interrupted, and nothing is lost. Start the same command again."


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveResult:
    """The result of a move. `successor` is the new database, and `path` the old one."""

    successor: Successor
    path: Path
    loaded: LoadedBackup
    unfinished_runs: int
    seconds: float


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

    It is a backup that is restored as the same installation: with sessions and workers, and without changes to runs and
    messages. Everything is copied, or nothing. Raises

    - `Invalid` for a database or a row that can't be moved, and `WrongKey` without the master key;
    - `Conflict` if another process uses the SQLite database, if it has another version's schema or was moved before, or
      if the PostgreSQL database is not empty;
    - `StoreUnavailable`. The next start of the same move then copies everything, unless this one is complete.
    """
    began_at = time.monotonic()
    path = _sqlite_path(settings)
    if not url.startswith(("postgresql://", "postgres://")):
        raise Invalid("--to is not the URL of a PostgreSQL database. Use postgresql://USER@HOST:PORT/NAME.")
    with _naming_option():
        successor = Successor(url=without_password(url), moved_at=now_us())
    try:
        with ExitStack() as resources:
            lock_out_services(settings, path, resources)
            sqlite = resources.enter_context(open_database(settings.store_url()))
            keys.load_checked_ring(settings, sqlite)
            with _naming_option():
                postgres_settings = settings.model_copy(update={"database_url": SecretStr(url)})
                target = resources.enter_context(empty_database(postgres_settings))
            # The transactions end in reverse order: SQLite is marked before PostgreSQL's COMMIT. So at no time can both
            # databases be used. If this process dies in between, the next start of the move copies everything again.
            tx = resources.enter_context(_locked(sqlite))
            _refuse_unsuitable(tx, target, successor)
            restoring.create_tables(target)
            records = snapshot_records(tx, TABLES, successor.moved_at)
            loaded = restoring.load(target, records, add_package_file=lambda _: None, report=report)
            unfinished_runs = tx.one("SELECT COUNT(*) AS number FROM runs WHERE finished_at IS NULL")
            moved.set_successor(tx, successor)
    except UnusableBackup as error:
        problem = str(error).replace("The backup", "The SQLite database").replace(GET_ANOTHER, NOTHING_CHANGED)
        raise Invalid(problem) from error
    except StoreUnavailable as error:
        raise StoreUnavailable(f"{str(error).rstrip('.')}. {INTERRUPTED}") from error
    collect_statistics(postgres_settings)
    assert unfinished_runs is not None
    return MoveResult(
        successor=successor,
        path=path,
        loaded=loaded,
        unfinished_runs=int(unfinished_runs["number"]),
        seconds=time.monotonic() - began_at,
    )


def _refuse_unsuitable(tx: Transaction, target: Transaction, successor: Successor) -> None:
    """Raises `Conflict` for a SQLite database (`tx`) of another version, or one that was moved; and `Invalid` for one
    without data."""
    refuse_other_revision(tx)
    if factories.only_team(tx) is None:
        raise Invalid("The SQLite database has no data, because the service was never started. Nothing was moved.")
    previous = moved.successor(tx)
    if previous is None:
        return
    # If the same database is still empty, that move ended before PostgreSQL's COMMIT.
    with suppress(Conflict):
        if previous.url == successor.url:
            restoring.require_empty(target)
            return
    raise AlreadyMoved(previous)


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
