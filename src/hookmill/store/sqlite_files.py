"""Detects that the files of a SQLite database were removed, replaced or overwritten while they are open.

The operating system keeps a removed file until it is closed. SQLite does not notice it in WAL mode: commits succeed,
and are lost. So each transaction compares the files at the paths with those that the connections have open.

A process never changes to other files. It works again when the same files are back, and a restart uses what is there
then. What a service reads at its start, such as the master keys, belongs to one database.

`cp` of another database to the path overwrites the open file. The writer process detects it by `Mark`, and renames the
file, which all processes notice.
"""

import fcntl
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from hookmill.domain.errors import DatabaseUnreachable

OPEN_TRIES: Final = 3
_REPLACED: Final = (
    "The database {} was replaced while it was in use. Put the same file back, or restart the service to use the new "
    "one."
)
_Identity = tuple[int, int]
"""The device and the inode of a file."""
_pinned: Final[dict[Path, _Identity]] = {}
"""By path, the database that this service and its forked processes use."""


def pin(path: Path) -> None:
    """Let this process and those that it forks open no other file at `path`.

    The descriptor stays open, so no other file gets the same inode. Call it in a process without connections: SQLite's
    locks end with any descriptor of the file.
    """
    path = path.absolute()
    status = os.fstat(os.open(path, os.O_RDONLY))
    _pinned[path] = (status.st_dev, status.st_ino)


class Mark:
    """A random number in the header of the database file, by which the writer process recognizes older content.

    Only this process copies pages from the WAL into the file. After each such checkpoint, the next transaction changes
    the number. So the file has the newest number or the one before.
    """

    _OFFSET: Final = 60
    """The place of `user_version`, which SQLite itself does not use."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        # Never closed: SQLite's locks end with any descriptor of the file.
        self._descriptor = os.open(path, os.O_RDONLY)
        [newest] = connection.execute("PRAGMA user_version").fetchone()
        self._in_file = self._number_in_file()
        # An earlier writer may have committed a number that is not in the file yet.
        self._valid: tuple[int, ...] = (self._in_file, newest, secrets.randbits(31))
        self._is_committed = False

    def is_valid(self) -> bool:
        try:
            self._in_file = self._number_in_file()
        except OSError:
            # SQLite reports the fault of the disk.
            return True
        return self._in_file in self._valid

    def renew(self, connection: sqlite3.Connection) -> None:
        """Change the number if the file had the newest one. Call it in each transaction that writes, after
        `is_valid`."""
        if self._in_file == self._valid[-1]:
            self._valid = (self._valid[-1], secrets.randbits(31))
            self._is_committed = False
        if not self._is_committed:
            connection.execute(f"PRAGMA user_version = {self._valid[-1]}")

    def committed(self) -> None:
        self._is_committed = True

    def _number_in_file(self) -> int:
        return int.from_bytes(os.pread(self._descriptor, 4, self._OFFSET), "big")


class SqliteFiles:
    """The files of one database: itself, its WAL, and the index of the WAL, which contains the locks."""

    def __init__(self, path: Path, *, is_writer: bool) -> None:
        path = path.absolute()
        self._paths = (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm"))
        self._names = [str(path) for path in self._paths]
        self._record = path.with_name(f"{path.name}.writer")
        self._overwritten = path.with_name(f"{path.name}.overwritten")
        self.mark: Mark | None = None
        """Set in the writer process."""
        self._is_writer = is_writer
        self._main: _Identity | None = None
        """The database that this process uses; None before the first connection."""
        self._open: tuple[_Identity, ...] | None = None
        """The files that the connections have open; None while there is no connection."""
        self._connections = 0
        self._connections_lock = threading.Lock()

    def connect(self, connect: Callable[[], sqlite3.Connection]) -> sqlite3.Connection:
        """A connection to the same files as the earlier ones. Raises `DatabaseUnreachable`.

        `connect` must open all three files.
        """
        for _ in range(OPEN_TRIES):
            self.verify()
            self._refuse_other_files()
            before = _identity(self._paths[0])
            connection = connect()
            current = self._current()
            if current is not None and current[0] == before and self._open in (None, current):
                with self._connections_lock:
                    self._main, self._open = current[0], current
                    self._connections += 1
                return connection
            # Another file was put at the path meanwhile.
            connection.close()
        self.verify()
        raise DatabaseUnreachable(f"{self._paths[0]} is replaced all the time. End the program that does so.")

    def verify(self) -> None:
        """Raises `DatabaseUnreachable` unless the files at the paths are those that the connections have open."""
        opened = self._open
        if self.are_replaced() and opened is not None:
            raise DatabaseUnreachable(self._problem(opened))

    def connection_closed(self) -> None:
        """Call it for each connection. The last process that closes the database removes the WAL and its index."""
        with self._connections_lock:
            self._connections -= 1
            if not self._connections:
                self._open = None

    def are_replaced(self) -> bool:
        """Whether the files at the paths are others. A file with older content is renamed, so that it is missing."""
        opened = self._open
        if opened is None:
            return False
        if self.mark is not None and not self.mark.is_valid() and _identity(self._paths[0]) == opened[0]:
            with suppress(OSError):
                self._paths[0].rename(self._overwritten)
            return True
        return self._current() != opened and self._open == opened

    def record(self, lock: IO[bytes]) -> None:
        """Write into the writer's lock file which files it uses, for processes that open the database later."""
        if (opened := self._open) is not None:
            clear_record(lock)
            os.write(lock.fileno(), b"%d %d\n" % (opened[0][1], opened[1][1]))

    def _current(self) -> tuple[_Identity, ...] | None:
        """None if a file is missing, or the database is empty."""
        try:
            main, wal, index = map(os.stat, self._names)
        except OSError:
            return None
        if not main.st_size:
            return None
        return (main.st_dev, main.st_ino), (wal.st_dev, wal.st_ino), (index.st_dev, index.st_ino)

    def _problem(self, opened: tuple[_Identity, ...]) -> str:
        main = self._paths[0]
        if (current := _identity(main)) is None and _identity(self._overwritten) == opened[0]:
            return (
                f"The database {main} was overwritten while it was in use, for example by cp. It was renamed to "
                f"{self._overwritten.name}. Stop the service and restore a backup."
            )
        if current is None:
            return (
                f"The database {main} was removed or moved while it was in use. Put the same file back, or stop the "
                "service and restore a backup."
            )
        if current != opened[0]:
            return _REPLACED.format(main)
        changed = [str(path) for path, identity in zip(self._paths, opened, strict=True) if _identity(path) != identity]
        if not changed:
            return f"The database {main} was emptied while it was in use. Stop the service and restore a backup."
        return (
            f"{' and '.join(changed)} of the database {main} was removed or replaced while it was in use. Restart the "
            "service."
        )

    def _refuse_other_files(self) -> None:
        """Raises `DatabaseUnreachable` if the database is missing, or not that of this service; or if its WAL is that
        of another file, which SQLite would not notice."""
        main = self._paths[0]
        if (current := _identity(main)) is None:
            raise DatabaseUnreachable(f"The database {main} is missing. Restore it, or start `hookmill serve`.")
        if (self._main or _pinned.get(main, current)) != current:
            raise DatabaseUnreachable(_REPLACED.format(main))
        if self._open is None:
            self.refuse_foreign_wal()
            if not self._is_writer:
                self._refuse_removed_wal()

    def refuse_foreign_wal(self) -> None:
        """Raises `DatabaseUnreachable` if the WAL beside the database has transactions of a replaced file."""
        main, wal, index = self._paths
        recorded_main, recorded_wal = self._read_record()
        try:
            wal_status = wal.stat()
            has_transactions = bool(wal_status.st_size) and wal_status.st_ino == recorded_wal
            is_replaced = has_transactions and main.stat().st_ino != recorded_main
        except OSError:
            return
        if is_replaced:
            raise DatabaseUnreachable(
                f"The database {main} was replaced, and {wal} belongs to the replaced file. Stop the service, and move "
                f"{wal} and {index} away. Nothing was changed."
            )

    def _refuse_removed_wal(self) -> None:
        """Raises `DatabaseUnreachable` if the running service still has a removed WAL open. A new one would destroy the
        database."""
        if all(path.exists() for path in self._paths[1:]) or self._read_record() == (0, 0):
            return
        try:
            with self._record.open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DatabaseUnreachable(
                f"{self._paths[1]} or {self._paths[2]} was removed while the service uses it. Restart the service. "
                "Nothing was changed."
            ) from None
        except OSError:
            return

    def _read_record(self) -> tuple[int, int]:
        """The inodes of the database and of its WAL that the writer uses, or used before it was killed."""
        try:
            with self._record.open("rb") as file:
                main, wal = file.read(64).split()
                return int(main), int(wal)
        except (OSError, ValueError):
            return 0, 0


def clear_record(lock: IO[bytes]) -> None:
    os.ftruncate(lock.fileno(), 0)


def _identity(path: Path) -> _Identity | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
