"""The limits that end a long read of the whole database before it fills the disk or prevents a vacuum."""

import time
from pathlib import Path
from typing import Final

from hookmill.domain.errors import HookmillError
from hookmill.store.database import Database

SECONDS_MAX: Final = 6 * 3600.0
"""The longest time. On PostgreSQL, nothing that was deleted since the beginning can be vacuumed before the end."""
WAL_BYTES_MAX: Final = 4 * 1024 * 1024 * 1024
"""On SQLite, the WAL can't be reset during the read. If the WAL grows above this size, the read ends."""
MEGABYTE: Final = 1024 * 1024


class SnapshotStopped(HookmillError):
    """The read of the snapshot was stopped: by a limit, an interruption, or an output that can't be written."""


class SnapshotLimits:
    """The limits of one read. In errors, `act` names the read, such as `backup`, and `result` says what it has done."""

    def __init__(self, database: Database, act: str, result: str) -> None:
        self._act = act
        self._result = result
        self._deadline = time.monotonic() + SECONDS_MAX
        path = database.path
        self._wal: Path | None = path.with_name(f"{path.name}-wal") if path is not None else None

    def check(self) -> None:
        """Raises `SnapshotStopped` if the read must end."""
        if time.monotonic() > self._deadline:
            raise SnapshotStopped(
                f"The {self._act} was stopped, because it has taken {SECONDS_MAX / 3600:g} hours. {self._result} Start "
                "it when the machine has less to do."
            )
        if self._wal is not None and self._wal.exists() and self._wal.stat().st_size > WAL_BYTES_MAX:
            raise SnapshotStopped(
                f"The {self._act} was stopped, because SQLite's WAL has grown to {WAL_BYTES_MAX // MEGABYTE:,} MB: it "
                f"can't be reset during a {self._act}. {self._result} Start it when fewer deliveries arrive."
            )
