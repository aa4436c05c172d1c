"""Rotates the master key in a process that is killed at a chosen step. The environment has the settings.

A step is a sync to the disk, a rename, the BEGIN of a write transaction, its COMMIT, or the moment after its COMMIT.
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


class FatalStep:
    """Kills this process with SIGKILL at the step with this number."""

    def __init__(self, number: int, descriptor: int):
        """Before, the name of the step is written to `descriptor`."""
        self._steps_left = number
        self._descriptor = descriptor

    def reach(self, name: str):
        self._steps_left -= 1
        if not self._steps_left:
            os.write(self._descriptor, name.encode())
            os.kill(os.getpid(), signal.SIGKILL)

    def before(self, name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def act_in_step(*arguments: Any) -> Any:
            self.reach(name)
            return act(*arguments)

        return act_in_step


def rotate(fatal_step: FatalStep):
    settings = read_settings()
    store = app.open_store(settings)
    management = app.build_management(settings, store)
    os.fsync = fatal_step.before("sync", os.fsync)
    Path.rename = fatal_step.before("rename", Path.rename)  # type: ignore[method-assign]
    write = Database.write

    @contextmanager
    def write_in_steps(database: Database) -> Iterator[Transaction]:
        fatal_step.reach("BEGIN")
        with write(database) as tx:
            yield tx
            fatal_step.reach("COMMIT")
        fatal_step.reach("after COMMIT")

    Database.write = write_in_steps  # type: ignore[assignment, method-assign]
    app.keys.rotate(
        settings, store.database, management, confirm_new_key=lambda: None, report_progress=lambda _rows, _total: None
    )


def serve_rotations(pipe: "Connection[str, int]"):
    """Start a rotation for each number of a fatal step that comes through the pipe.

    The answer is the name of this step, `done` if the rotation had fewer steps, or `failed`.
    """
    rotation.PAGE_ROWS = 2  # type: ignore[misc]
    with suppress(EOFError):
        while True:
            number = pipe.recv()
            reading, writing = os.pipe()
            child = os.fork()
            if not child:
                rotate(FatalStep(number, writing))
                os._exit(0)
            os.close(writing)
            _, status = os.waitpid(child, 0)
            pipe.send(os.read(reading, 100).decode() or ("done" if not status else "failed"))
            os.close(reading)
