"""Removes the directories in which commands ran, whatever content, depth and modes the commands gave them."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

PROBE_PREFIX: Final = ".probe-"
"""The prefix of the directory with a worker's probe, that is, its test write in the directory of the packages."""

UNREMOVABLE_PREFIX: Final = ".left-"
"""The prefix of directories that could not be removed, and were renamed to free their names."""


def remove_or_set_aside(path: Path) -> None:
    """Remove the directory. If that fails, rename it within its parent directory. Raises `OSError` if both fail."""
    try:
        remove_directory(path)
    except OSError:
        # A command with more permissions than the service may have created files that the service can't remove.
        path.rename(path.with_name(f"{UNREMOVABLE_PREFIX}{secrets.token_hex(4)}-{path.name.lstrip('.')}"))


def remove_directory(path: Path) -> None:
    """Remove the directory with its content. Links are removed but never followed, even if `path` itself is a link.

    At most two directories are open at a time, whatever the depth. Raises `OSError` if a part can't be removed, such as
    a mounted file system.
    """
    with suppress(FileNotFoundError):
        remove_entry(str(path))


def remove_entry(name: str, parent_fd: int | None = None) -> None:
    """Remove a file, a link, or a directory with its content, as `remove_directory` does. Raises `OSError`."""
    if not stat.S_ISDIR(os.stat(name, dir_fd=parent_fd, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=parent_fd)
        return
    _make_writable(name, parent_fd)
    top_fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent_fd)
    try:
        _remove_content(top_fd)
    finally:
        os.close(top_fd)
    os.rmdir(name, dir_fd=parent_fd)


def _remove_content(top_fd: int) -> None:
    """Remove the content of the open directory. The subdirectories of each subdirectory move up to it first.

    Each directory is renamed before its content is removed. A mount point can't be renamed, so this raises `OSError`
    before it removes the content of a file system that a command mounted in its package.
    """
    prefix, numbers = f".{secrets.token_hex(8)}-", count()

    def move_up(name: str, directory_fd: int) -> str:
        new_name = f"{prefix}{next(numbers)}"
        os.rename(name, new_name, src_dir_fd=directory_fd, dst_dir_fd=top_fd)
        return new_name

    for name in _remaining_directories(top_fd):
        renamed = name if name.startswith(prefix) else move_up(name, top_fd)
        subdirectory_fd = os.open(renamed, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top_fd)
        try:
            for inner in _remaining_directories(subdirectory_fd):
                move_up(inner, subdirectory_fd)
        finally:
            os.close(subdirectory_fd)
        os.rmdir(renamed, dir_fd=top_fd)


def _remaining_directories(directory_fd: int) -> Iterator[str]:
    """Remove the files in the directory, and yield the names of its subdirectories, made writable, until it is empty.

    The caller must move or remove each of them before it takes the next one. No list of them is made, because a
    directory may have millions of entries.
    """
    has_entries = True
    while has_entries:
        # A scan may miss entries if others are removed meanwhile. So it is repeated until it finds nothing.
        has_entries = False
        with os.scandir(directory_fd) as entries:
            for entry in entries:
                has_entries = True
                if entry.is_dir(follow_symlinks=False):
                    _make_writable(entry.name, directory_fd)
                    yield entry.name
                else:
                    os.unlink(entry.name, dir_fd=directory_fd)


def _make_writable(path: str, parent_fd: int | None) -> None:
    """Make a directory writable, because commands may leave read-only ones, such as Go's module cache."""
    # Root needs no permission, and must not change modes: another account could replace the directory by a link.
    if os.geteuid() != 0:
        os.chmod(path, 0o700, dir_fd=parent_fd)
