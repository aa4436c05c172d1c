"""Rotates the master key of what the environment names, and dies at a step of it.

A step is something that can be told apart afterwards: each sync to the disk, each rename, and the beginning, the COMMIT
and the end of each transaction that writes. Orders come on a line: the number of the fatal step. The answer is its
name, once the process is dead, or `done` when there was no such step.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from hookmill import app
from hookmill.settings import read_settings
from hookmill.store.database import Database, Transaction
from hookmill.store.keys import rotation


class Steps:
    def __init__(self, fatal: int, told: int) -> None:
        """The name of the fatal step is written to the descriptor `told`."""
        self._left = fatal
        self._told = told

    def take(self, name: str) -> None:
        self._left -= 1
        if not self._left:
            os.write(self._told, name.encode())
            os.kill(os.getpid(), signal.SIGKILL)

    def before(self, name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*arguments: Any) -> Any:
            self.take(name)
            return act(*arguments)

        return stepping


def rotate(steps: Steps) -> None:
    settings = read_settings()
    store = app.open_store(settings)
    management = app.build_management(settings, store)
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
        settings, store.database, management, confirm_new_key=lambda: None, report_progress=lambda _rows, _total: None
    )


def rotate_when_told(line: "Connection[str, int]") -> None:
    rotation.PAGE_ROWS = 2  # type: ignore[misc]
    with suppress(EOFError):
        while True:
            fatal = line.recv()
            read, told = os.pipe()
            child = os.fork()
            if not child:
                rotate(Steps(fatal, told))
                os._exit(0)
            os.close(told)
            _, status = os.waitpid(child, 0)
            line.send(os.read(read, 100).decode() or ("done" if not status else "failed"))
            os.close(read)
