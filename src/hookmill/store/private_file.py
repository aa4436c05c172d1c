"""Files in the data directory that only their owner may open."""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

OWNER_ONLY: Final = stat.S_IRUSR | stat.S_IWUSR


def open_lock_file(path: Path) -> IO[bytes]:
    """The file, created if it is missing. Only its owner may open it, whatever the umask: who can open a lock file can
    hold its lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, OWNER_ONLY)
    # An earlier version created it with the umask's mode. A file of another user stays as it is.
    with suppress(PermissionError):
        os.fchmod(descriptor, OWNER_ONLY)
    return os.fdopen(descriptor, "ab")
