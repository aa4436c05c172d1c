"""Lets one process at a time do something with an installation. The lock ends with the process, even a killed one."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from hookmill.store.database import Database
from hookmill.store.private_file import open_lock_file


@contextmanager
def excluding_others(database: Database, *, number: int, file_name: str) -> Iterator[bool]:
    """Whether this process got the lock, which it holds until the block ends. Raises `StoreUnavailable`.

    On PostgreSQL it is an advisory lock with this number, on SQLite a lock file beside the database.
    """
    if database.path is None:
        with database.dedicated_connection() as connection:
            row = connection.execute("SELECT pg_try_advisory_lock(%s)", [number]).fetchone()
            yield row is not None and bool(row[0])
        return
    with open_lock_file(database.path.with_name(file_name)) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_ours = True
        except BlockingIOError:
            is_ours = False
        yield is_ours
