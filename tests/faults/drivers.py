"""Database drivers that fail at a chosen call: they raise an error, or kill the calling process.

A call is a statement, a COMMIT or a ROLLBACK that SQLAlchemy executes through the driver. The service's own code is
unchanged.
"""

import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any, Final, TypeVar
from unittest.mock import patch

import psycopg

from tests.support.waiting import until

T = TypeVar("T")


class Failure(Enum):
    BEFORE = auto()
    """The call fails without effect."""
    AFTER = auto()
    """The call has its effect, and then fails. With PostgreSQL, its connection is lost."""
    FROM_THEN_ON = auto()
    """This call and all later ones fail without effect."""
    KILL = auto()
    """The process is killed before the call."""


class CallFault:
    """Counts the calls of the drivers in this process, and lets one of them fail."""

    def __init__(self):
        self._lock = threading.Lock()
        self._failure = Failure.BEFORE
        self._failing_number = 0
        """0 if no call fails."""
        self._calls = 0
        self._failed_call: str | None = None

    def fail_at(self, number: int, failure: Failure):
        """Let the call with this number fail. The next call has the number 1."""
        with self._lock:
            self._failure, self._failing_number, self._calls, self._failed_call = failure, number, 0, None

    def clear(self) -> str | None:
        """Let no further call fail. Returns the name of the call that failed, or None if there were fewer calls."""
        with self._lock:
            self._failing_number = 0
            return self._failed_call

    def call(
        self,
        name: str,
        act: Callable[[], T],
        *,
        error: Callable[[], Exception],
        disconnect: Callable[[], None] = lambda: None,
    ) -> T:
        """Return the result of `act`, or fail. If the call fails after its effect, `disconnect` is called, too."""
        if not self._must_fail(name):
            return act()
        if self._failure is Failure.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._failure is Failure.AFTER:
            act()
            disconnect()
        raise error()

    def _must_fail(self, name: str) -> bool:
        with self._lock:
            self._calls += 1
            if not self._failing_number or self._calls < self._failing_number:
                return False
            if self._calls == self._failing_number:
                self._failed_call = name
                return True
            return self._failure is Failure.FROM_THEN_ON


@contextmanager
def failing_drivers() -> Iterator[CallFault]:
    """While the block runs, a call of `sqlite3` or psycopg can be made to fail. Open the database inside the block."""
    fault = CallFault()

    class Cursor(sqlite3.Cursor):
        def execute(self, sql: str, *values: Any) -> "Cursor":
            name = " ".join(sql.split()[:3])
            fault.call(name, lambda: sqlite3.Cursor.execute(self, sql, *values), error=_disk_error)
            return self

    class Connection(sqlite3.Connection):
        def cursor(self, *_: Any) -> Cursor:  # type: ignore[override]
            return super().cursor(Cursor)

        def commit(self):
            fault.call("COMMIT", lambda: sqlite3.Connection.commit(self), error=_disk_error)

        def rollback(self):
            fault.call("ROLLBACK", lambda: sqlite3.Connection.rollback(self), error=_disk_error)

    connect, wait = sqlite3.dbapi2.connect, psycopg.Connection.wait

    def connect_failing(*arguments: Any, **options: Any) -> sqlite3.Connection:
        return connect(*arguments, **options, factory=Connection)

    def wait_failing(connection: Any, generator: Any, *more: Any) -> Any:
        name = _CALLS.get(generator.__name__)
        if name is None:
            return wait(connection, generator, *more)
        return fault.call(
            name, lambda: wait(connection, generator, *more), error=_lost_answer, disconnect=connection.close
        )

    with (
        patch.object(sqlite3, "connect", connect_failing),
        patch.object(psycopg.Connection, "wait", wait_failing),
    ):
        yield fault


_CALLS: Final = {"_execute_gen": "a statement", "_commit_gen": "COMMIT", "_rollback_gen": "ROLLBACK"}
"""The calls by the name of psycopg's generator. A statement may include a BEGIN."""


def _disk_error() -> Exception:
    return sqlite3.OperationalError("disk I/O error")


def _lost_answer() -> Exception:
    return psycopg.OperationalError("the answer was lost")


def deliver_until_killed(url: str, uid: str, token: str, body: bytes, fatal_call: int):
    """Send one delivery to a service inside this process, and print the status.

    The process is killed before the call with this number. The first call is the writer's.
    """
    from tests.support.world import World

    with failing_drivers() as fault:
        world = World(url)
        until(lambda: world.snapshot.get(uid), "the webhook is in memory")
        # After this answer, its thread makes no further call for what it loaded before.
        assert world.request("POST", "/webhooks/w/wh_unknown", body=body).status == 404
        fault.fail_at(fatal_call, Failure.KILL)
        answer = world.request("POST", f"/webhooks/w/{uid}", headers={"Authorization": f"Bearer {token}"}, body=body)
        fault.clear()
        print(answer.status, flush=True)
        world.close()
