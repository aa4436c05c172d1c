"""Rotates the master key of what the environment names, and dies at a step of it: `rotator.py STEP [ROWS_AT_ONCE]`.

Steps are what can be told apart afterwards: each sync to the disk, each rename, and the beginning, COMMIT and end of each
transaction that writes. Exit code 0 when there was no such step.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hookmill import app
from hookmill.settings import read_settings
from hookmill.store import rotation
from hookmill.store.database import Database, Transaction


class Steps:
    def __init__(self, fatal: int) -> None:
        self._left = fatal

    def take(self, name: str) -> None:
        self._left -= 1
        if not self._left:
            print(name, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    def before(self, name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*arguments: Any) -> Any:
            self.take(name)
            return act(*arguments)

        return stepping


def rotate(steps: Steps) -> None:
    settings = read_settings()
    store = app.open_store(settings)
    management = app.management(settings, store)
    os.fsync = steps.before("sync", os.fsync)
    Path.rename = steps.before("rename", Path.rename)  # type: ignore[method-assign]
    write = Database.write

    @contextmanager
    def stepping(database: Database) -> Iterator[Transaction]:
        steps.take("BEGIN")
        with write(database) as tx:
            yield tx
            steps.take("COMMIT")
        steps.take("after COMMIT")

    Database.write = stepping  # type: ignore[assignment, method-assign]
    app.keys.rotate(
        settings, store.database, management, before_a_new_key=lambda: None, seen=lambda _rows, _total: None
    )


def serve_orders() -> None:
    """A step's number in, how it ended out: `name of the step` or `done`. Each is a process that is ready made."""
    rotation.ROWS_AT_ONCE = 2  # type: ignore[misc]
    for line in sys.stdin:
        child = os.fork()
        if not child:
            rotate(Steps(int(line)))
            print("done", flush=True)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    serve_orders()
