"""Removes directories of commands, whatever the commands did to their content, depth and modes."""

import os
import secrets
import stat
from itertools import count
from pathlib import Path
from typing import Final

PROBE_PREFIX: Final = ".probe-"
"""The prefix of a worker's probe files in the directory of the packages."""

UNREMOVABLE_PREFIX: Final = ".left-"
"""The prefix of directories that could not be removed, and were renamed to free their names."""


def remove_or_set_aside(path: Path) -> None:
    """Remove the directory. If that fails, rename it within its parent directory. Raises `OSError` if both fail."""
    try:
        remove_directory(path)
    except OSError:
        # A command with more rights than the service may have created files that the service can't remove.
        path.rename(path.with_name(f"{UNREMOVABLE_PREFIX}{secrets.token_hex(4)}-{path.name.lstrip('.')}"))


def remove_directory(path: Path) -> None:
    """Remove the directory with its content. Links are removed but never followed, even if `path` itself is a link.

    At most two directories are open at a time, whatever the depth. Raises `OSError` if a part can't be removed, such as
    a mounted file system.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(mode):
        path.unlink()
        return
    _make_writable(path)
    top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _remove_content(top)
    finally:
        os.close(top)
    path.rmdir()


def _remove_content(top: int) -> None:
    """Remove the content, one level in each round: the content of each subdirectory moves up to `top`.

    Each directory is renamed before its content is removed. A mount point can't be renamed, so the content of a file
    system that a command mounted in its package is never removed.
    """
    names = (f".{secrets.token_hex(8)}-{number}" for number in count())
    for name in _remove_files(top):
        os.rename(name, next(names), src_dir_fd=top, dst_dir_fd=top)
    while directories := _remove_files(top):
        for name in directories:
            below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
            try:
                for inner in _remove_files(below):
                    os.rename(inner, next(names), src_dir_fd=below, dst_dir_fd=top)
            finally:
                os.close(below)
            os.rmdir(name, dir_fd=top)


def _remove_files(directory: int) -> list[str]:
    """Remove the files in the directory. Returns the names of its subdirectories, after making them writable."""
    directories = []
    with os.scandir(directory) as scan:
        entries = list(scan)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            _make_writable(entry.name, directory)
            directories.append(entry.name)
        else:
            os.unlink(entry.name, dir_fd=directory)
    return directories


def _make_writable(name: Path | str, directory: int | None = None) -> None:
    """Make a directory writable, because commands may leave read-only ones, such as Go's module cache."""
    # Root needs no permission, and must not change modes: another account could replace the directory by a link.
    if os.geteuid() != 0:
        os.chmod(name, 0o700, dir_fd=directory)
