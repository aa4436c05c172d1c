"""PostgreSQL notifications: they tell workers in other processes that runs or schedules may have become due.

SQLite needs no notifications, because `CommitWatch` sees each commit. A notification may be lost, for example with a
broken connection, so workers also poll.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from hookmill.store.database import Database, Transaction, raising_unavailable

_CHANNEL: Final = "hookmill_backlog"


def notify_workers(tx: Transaction) -> None:
    """Notify all workers when this transaction commits."""
    if not tx.on_sqlite:
        tx.run(f"NOTIFY {_CHANNEL}")


def notify_workers_separately(database: Database) -> None:
    """Notify all workers in a transaction of its own, which does not wait for the disk. For PostgreSQL only.

    Raises `StoreUnavailable`.
    """
    # A transaction with a notification writes a commit record, and would wait until it is on disk.
    with database.write_statement() as tx:
        tx.one(f"SELECT set_config('synchronous_commit', 'off', true), pg_notify('{_CHANNEL}', '')")


@contextmanager
def listening(database: Database) -> Iterator[Callable[[float], bool]]:
    """Listen for notifications on a separate connection.

    Yields a function that waits up to a number of seconds, and returns whether a notification arrived. Entering the
    context and calling the function raise `StoreUnavailable` if the connection fails.
    """
    with database.dedicated_connection() as connection, raising_unavailable():
        connection.execute(f"LISTEN {_CHANNEL}")

        def wait(seconds: float) -> bool:
            with raising_unavailable():
                return any(list(connection.notifies(timeout=seconds, stop_after=1)))

        yield wait
