"""`hookmill move` with small batches, which stops at a step of it.

A step is the beginning, the COMMIT or the end of a transaction that writes. The main function runs in a process of its
own.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from hookmill.cli import main
from hookmill.store.database import Database, Transaction
from hookmill.store.move import steps


def move_until(step: int | str, stop: signal.Signals) -> None:
    """Move to what `HOOKMILL_TEST_TO` names. The process sends itself the signal at the step with this number, or at
    the first one with this name, such as `sqlite after COMMIT`."""
    # A test run in the background ignores SIGINT, and its processes inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    steps.BATCH_ROWS = 3  # type: ignore[misc]
    write = Database.write
    taken = 0

    def take(name: str) -> None:
        nonlocal taken
        taken += 1
        if step in (taken, name):
            os.kill(os.getpid(), stop)

    @contextmanager
    def stepping(database: Database) -> Iterator[Transaction]:
        kind = "sqlite" if database.on_sqlite else "postgres"
        take(f"{kind} BEGIN")
        with write(database) as tx:
            yield tx
            take(f"{kind} COMMIT")
        take(f"{kind} after COMMIT")

    Database.write = stepping  # type: ignore[assignment, method-assign]
    main(["move", "--to", os.environ["HOOKMILL_TEST_TO"], "--json"])
