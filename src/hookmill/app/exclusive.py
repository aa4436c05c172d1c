"""Keeps services from using a data directory while a command replaces what is in it."""

import fcntl
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from hookmill.domain.errors import Conflict
from hookmill.settings import Settings
from hookmill.store.private_file import locked_directory, open_lock_file


def lock_out_services(settings: Settings, database: Path, resources: ExitStack, *, only_existing: bool = False) -> None:
    """Hold the locks of a service until `resources` is closed. Raises `Conflict` while a process holds one.

    `database` is the path of the SQLite file. `only_existing`: create no lock files. A directory without them was never
    used by a service.
    """
    locks: Sequence[tuple[Path, Callable[[IO[Any], int], object]]] = (
        (settings.data_dir / "serve.lock", fcntl.flock),
        (database.with_name(f"{database.name}.writer"), fcntl.flock),
        (settings.data_dir / "worker.lock", fcntl.lockf),
    )
    held = ""
    try:
        for path, acquire in locks:
            if only_existing and not path.exists():
                continue
            held = path.name
            acquire(resources.enter_context(open_lock_file(path)), fcntl.LOCK_EX | fcntl.LOCK_NB)
        held = "a lock of the directory"
        # The lock files may have been removed.
        resources.enter_context(locked_directory(settings.data_dir))
    except BlockingIOError:
        raise Conflict(
            f"A `hookmill serve`, `move` or `restore` uses the data directory {settings.data_dir.absolute()}: it "
            f"holds {held}. Stop it, and wait until it has ended. Nothing was changed."
        ) from None
