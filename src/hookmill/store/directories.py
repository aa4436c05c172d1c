"""Removes the directories in which commands ran, whatever content, depth and modes the commands gave them."""

import os
import secrets
import stat
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
    """Remove the content of the open directory, one level in each round.

    In a round, the subdirectories' own subdirectories move up to the open directory.

    Each directory is renamed before its content is removed. A mount point can't be renamed, so this raises `OSError`
    before it removes the content of a file system that a command mounted in its package.
    """
    new_names = (f".{secrets.token_hex(8)}-{number}" for number in count())
    for name in _remove_files(top_fd):
        os.rename(name, next(new_names), src_dir_fd=top_fd, dst_dir_fd=top_fd)
    while subdirectories := _remove_files(top_fd):
        for name in subdirectories:
            subdirectory_fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top_fd)
            try:
                for inner in _remove_files(subdirectory_fd):
                    os.rename(inner, next(new_names), src_dir_fd=subdirectory_fd, dst_dir_fd=top_fd)
            finally:
                os.close(subdirectory_fd)
            os.rmdir(name, dir_fd=top_fd)


def _remove_files(directory_fd: int) -> list[str]:
    """Remove the files in the directory. Makes its subdirectories writable, and returns their names."""
    subdirectories = []
    with os.scandir(directory_fd) as scan:
        entries = list(scan)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            _make_writable(entry.name, directory_fd)
            subdirectories.append(entry.name)
        else:
            os.unlink(entry.name, dir_fd=directory_fd)
    return subdirectories


def _make_writable(path: str, parent_fd: int | None) -> None:
    """Make a directory writable, because commands may leave read-only ones, such as Go's module cache."""
    # Root needs no permission, and must not change modes: another account could replace the directory by a link.
    if os.geteuid() != 0:
        os.chmod(path, 0o700, dir_fd=parent_fd)
