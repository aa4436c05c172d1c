"""Runs `hookmill move` with small batches, and sends it a signal at a chosen step.

A step is the BEGIN of a write transaction, its COMMIT, or the moment after its COMMIT. `move_until` runs in a process
of its own.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from hookmill.cli import main
from hookmill.store.database import Database, Transaction
from hookmill.store.rows import tables


def move_until(step: str, stop_signal: signal.Signals):
    """Move to the database of `HOOKMILL_TEST_TO`.

    The process sends itself the signal at each step with this name, such as `sqlite after COMMIT`.
    """
    # Tests that run in the background ignore SIGINT, and their processes inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    tables.BATCH_ROWS = 3  # type: ignore[misc]
    write = Database.write

    def reach(name: str):
        if step == name:
            os.kill(os.getpid(), stop_signal)

    @contextmanager
    def write_in_steps(database: Database) -> Iterator[Transaction]:
        kind = "sqlite" if database.on_sqlite else "postgres"
        reach(f"{kind} BEGIN")
        with write(database) as tx:
            yield tx
            reach(f"{kind} COMMIT")
        reach(f"{kind} after COMMIT")

    Database.write = write_in_steps  # type: ignore[assignment, method-assign]
    main(["move", "--to", os.environ["HOOKMILL_TEST_TO"], "--json"])
