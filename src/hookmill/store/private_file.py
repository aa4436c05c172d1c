"""Opens files in the data directory that only their owner may access."""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

OWNER_ONLY: Final = stat.S_IRUSR | stat.S_IWUSR


def open_lock_file(path: Path) -> IO[bytes]:
    """Open the file, or create it. Only its owner may open it, whatever the umask: a user who can open a lock file can
    hold its lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, OWNER_ONLY)
    # Earlier versions created the file with the umask's mode. Another user's file keeps its mode.
    with suppress(PermissionError):
        os.fchmod(descriptor, OWNER_ONLY)
    return os.fdopen(descriptor, "ab")
