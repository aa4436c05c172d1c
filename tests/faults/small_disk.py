"""Disks that a test can fill or break."""

import contextlib
import itertools
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from tests.support.waiting import until

CHUNK = bytes(64 * 1024)


class SmallDisk:
    """A disk that a test can fill: a small file system if one can be mounted, otherwise a limit on SQLite's pages."""

    def __init__(self, directory: Path):
        self.directory = directory / "disk"
        self.directory.mkdir()
        self._pages = directory / "pages"
        mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "hookmill-test", str(self.directory)]
        self.is_mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0
        self.faults = {} if self.is_mounted else {"PAGES": str(self._pages)}
        """For `serving_with_faults`."""

    def fill(self, *, free_bytes: int = 0):
        """Leave `free_bytes` free. Without a mounted file system, the database in `data` can't grow."""
        if not self.is_mounted:
            with contextlib.closing(sqlite3.connect(self.directory / "data" / "hookmill.db")) as connection:
                self._pages.write_text(str(connection.execute("PRAGMA page_count").fetchone()[0]))
            return
        filler = self.directory / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(CHUNK)
        os.truncate(filler, filler.stat().st_size - free_bytes)

    def free(self):
        self._pages.unlink(missing_ok=True)
        (self.directory / "filler").unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object):
        if self.is_mounted:
            # A process that has just ended may still have a file open.
            until(lambda: not subprocess.run(["umount", str(self.directory)]).returncode, "the disk is unmounted")

    def __str__(self) -> str:
        return "a small file system" if self.is_mounted else "a limit on SQLite's pages"


@contextlib.contextmanager
def ext4_disk(directory: Path, *, megabytes: int, inodes: int | None = None) -> Iterator[None]:
    """Create the directory, and mount a file system of its own there. Its image is a file beside it."""
    assert os.geteuid() == 0, "Perform this test as root: it mounts a small disk."
    image = _image_of(directory)
    with image.open("wb") as file:
        file.truncate(megabytes * 1024 * 1024)
    subprocess.run(["mkfs.ext4", "-q", *(["-N", str(inodes)] if inodes else []), image], check=True)
    directory.mkdir()
    _mount(directory)
    try:
        yield
    finally:
        _unmount(directory)


def become_read_only(directory: Path):
    """Let the kernel act as if the disk had an error. Nothing else makes a disk read-only while files are open."""
    find = ["findmnt", "--noheadings", "--output=SOURCE", str(directory)]
    device = Path(subprocess.run(find, check=True, capture_output=True, text=True).stdout.strip())
    with contextlib.suppress(OSError):
        Path("/sys/fs/ext4", device.name, "trigger_fs_error").write_text("1")


def repair(directory: Path):
    """Make the disk writable again. No process may use it."""
    _unmount(directory)
    assert subprocess.run(["e2fsck", "-p", _image_of(directory)], capture_output=True).returncode in (0, 1)
    _mount(directory)


def use_up_inodes(directory: Path):
    filler = directory / "filler"
    filler.mkdir()
    with contextlib.suppress(OSError):
        for number in itertools.count():
            (filler / str(number)).touch()


def free_inodes(directory: Path):
    shutil.rmtree(directory / "filler")


def _image_of(directory: Path) -> Path:
    return directory.with_name("image")


def _mount(directory: Path):
    subprocess.run(["mount", "-o", "loop,errors=remount-ro", _image_of(directory), directory], check=True)


def _unmount(directory: Path):
    # A process that has just ended may still have a file open.
    until(lambda: not subprocess.run(["umount", str(directory)]).returncode, "the disk is unmounted")
