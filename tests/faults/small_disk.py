"""A disk that a test can fill."""

import contextlib
import os
import sqlite3
import subprocess
from pathlib import Path
from typing import Self

from tests.support.waiting import until

CHUNK = bytes(64 * 1024)


class SmallDisk:
    """A disk that a test can fill: a small file system if one can be mounted, otherwise a limit on SQLite's pages."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "disk"
        self.directory.mkdir()
        self._pages = directory / "pages"
        mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "hookmill-test", str(self.directory)]
        self.is_mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0
        self.faults = {} if self.is_mounted else {"PAGES": str(self._pages)}
        """For `serving_with_faults`."""

    def fill(self, *, free_bytes: int = 0) -> None:
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

    def free(self) -> None:
        self._pages.unlink(missing_ok=True)
        (self.directory / "filler").unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_mounted:
            # A process that has just ended may still have a file open.
            until(lambda: not subprocess.run(["umount", str(self.directory)]).returncode, "the disk is unmounted")

    def __str__(self) -> str:
        return "a small file system" if self.is_mounted else "a limit on SQLite's pages"
