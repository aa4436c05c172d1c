"""Opens and creates files that only their owner may access."""

import errno
import fcntl
import glob
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

OWNER_ONLY: Final = stat.S_IRUSR | stat.S_IWUSR


def open_lock_file(path: Path) -> IO[bytes]:
    """Open the file, or create it. Only its owner may open it, whatever the umask: a user who can open a lock file can
    hold its lock."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, OWNER_ONLY), "ab")


@contextmanager
def locked_directory(directory: Path) -> Iterator[None]:
    """Hold an exclusive lock of the directory itself, which nobody can remove like a lock file.

    Processes that are forked in the block hold it, too. Raises `BlockingIOError` while another process holds it.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def new_private_file(path: Path, *, replaces: bool) -> Iterator[IO[bytes]]:
    """A new file that only its owner may access. It gets the name `path` when the block ends, synced to disk.

    If the block raises, or the process is killed, there is no such file, or still the old one. Raises `OSError`; unless
    `replaces`, also if a file has the name: `FileExistsError`.
    """
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
        _remove_unless_locked(leftover)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, OWNER_ONLY)
    try:
        with os.fdopen(descriptor, "wb") as file:
            # The lock shows that the process that writes the file is alive.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield file
            file.flush()
            os.fsync(file.fileno())
            _give_name(partial, path, replaces=replaces)
    finally:
        partial.unlink(missing_ok=True)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make new names in the directory survive a power failure."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _give_name(partial: Path, path: Path, *, replaces: bool) -> None:
    if replaces:
        partial.rename(path)
        return
    try:
        # Unlike renaming, linking never replaces a file.
        os.link(partial, path)
    except FileExistsError:
        raise
    except OSError:
        # Some file systems have no links.
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        partial.rename(path)


def _remove_unless_locked(path: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
