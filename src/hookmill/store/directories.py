"""Directories in which commands have worked, and how they are removed, whatever the commands made of them."""

import os
import secrets
import stat
from itertools import count
from pathlib import Path
from typing import Final

PROBE_PREFIX: Final = ".probe-"
"""How the name of a worker's test write among the packages begins."""


SET_ASIDE_PREFIX: Final = ".left-"
"""How the name of what could not be removed, and is in nobody's way any more, begins."""


def clear_place(place: Path) -> None:
    """Have nothing there: what can't be removed is set aside in the same directory. Raises `OSError`."""
    try:
        remove_directory(place)
    except OSError:
        # A command that had more rights than the service may have left what only those can remove.
        place.rename(place.with_name(f"{SET_ASIDE_PREFIX}{secrets.token_hex(4)}-{place.name.lstrip('.')}"))


def remove_directory(place: Path) -> None:
    """Remove the directory with all that is in it. Links are removed, never followed, the one in its own place too.

    However deep it is, two directories are open at a time. Raises `OSError` when something of it stays, as what is
    mounted in it does.
    """
    try:
        mode = place.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(mode):
        place.unlink()
        return
    _make_writable(place)
    top = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _empty(top)
    finally:
        os.close(top)
    place.rmdir()


def _empty(top: int) -> None:
    """Each round takes one level away: what is in the directories below moves up and is gone through next.

    Each directory is renamed before anything in it is removed, which no system allows for a mount point: what a command
    mounted in its package is not in the package.
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
    """Remove all but the directories in it, which are returned, ready to be emptied."""
    directories = []
    with os.scandir(directory) as entries:
        found = list(entries)
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            _make_writable(entry.name, directory)
            directories.append(entry.name)
        else:
            os.unlink(entry.name, dir_fd=directory)
    return directories


def _make_writable(name: Path | str, directory: int | None = None) -> None:
    """A command may have made it read-only, as Go's module cache is."""
    # Nothing hinders root, who must not change modes where another account can put a link in the name's place.
    if os.geteuid() != 0:
        os.chmod(name, 0o700, dir_fd=directory)
