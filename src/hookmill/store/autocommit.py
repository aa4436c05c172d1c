"""Single statements that commit by themselves, which saves the messages for BEGIN and COMMIT. For PostgreSQL only.

SQLAlchemy's isolation level AUTOCOMMIT does the same, but sets up the connection again before and after each use. That
takes an eighth of the processor time of reading a run.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final


class _Thread(threading.local):
    takes_autocommitting = False


_thread: Final = _Thread()


@contextmanager
def autocommit() -> Iterator[None]:
    """In this block, statements commit by themselves on each connection that this thread takes out of a pool."""
    _thread.takes_autocommitting = True
    try:
        yield
    finally:
        _thread.takes_autocommitting = False


def prepare_connection(connection: Any, _record: object, _proxy: object) -> None:
    """The listener for the event `checkout` of a pool. It sends nothing to the server."""
    if connection.autocommit != _thread.takes_autocommitting and not connection.closed:
        connection.autocommit = _thread.takes_autocommitting
