"""The writing process: reads every plan that is waiting, admits them in one transaction, reports, and begins again.

There is no artificial delay: while one batch becomes durable, the next one gathers in the socket.
"""

import fcntl
import select
import socket
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hookmill.domain.delivery import Unavailable
from hookmill.domain.errors import StoreUnavailable
from hookmill.store.admission.plan import held_bytes
from hookmill.store.admission.protocol import (
    DroppedCount,
    NumberedPlan,
    Report,
    Result,
    Unframer,
    decode_work,
    frame,
)
from hookmill.store.admission.transaction import LockContended, Tried, add_dropped, admit
from hookmill.store.database import Database
from hookmill.store.private_file import open_lock_file

BATCH_PLANS: Final = 256
BATCH_BYTES: Final = 8 * 1024 * 1024
READ_BYTES: Final = 1 << 20
CONTENDED_SECONDS: Final = 0.002
"""How soon a webhook that another process has locked is tried again."""

_UNAVAILABLE: Final = Unavailable()


def write(line: socket.socket, database: Database) -> None:
    """Serve one event loop until it closes its end of the socket."""
    _send(line, Report([]))
    unframer = Unframer()
    waiting: deque[NumberedPlan] = deque()
    dropped: list[DroppedCount] = []
    is_contended = False
    while True:
        pieces = _received(line, wait=None if not waiting else CONTENDED_SECONDS if is_contended else 0)
        for piece in pieces:
            for message in unframer.messages(piece):
                work = decode_work(message)
                waiting.extend(work.plans)
                dropped.extend(work.dropped)
        if pieces and not pieces[-1] and not waiting and not dropped:
            return
        batch = _next_batch(waiting)
        if not batch and not dropped:
            continue
        outcomes, failure = _commit(database, batch, dropped)
        dropped = []
        results: list[Result] = []
        again: list[NumberedPlan] = []
        for item, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, LockContended):
                again.append(item)
            else:
                results.append(Result(item.number, outcome))
        waiting.extendleft(reversed(again))
        is_contended = bool(again) and not results
        if results or failure:
            _send(line, Report(results, failure))


def _received(line: socket.socket, wait: float | None) -> list[bytes]:
    """All that can be read now, after waiting up to `wait` seconds for it (None: as long as it takes).

    The last piece is b"" when the other end is closed.
    """
    pieces: list[bytes] = []
    size = 0
    if not select.select([line], [], [], wait)[0]:
        return pieces
    while size < BATCH_BYTES:
        try:
            piece = line.recv(READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            break
        except OSError:
            piece = b""
        pieces.append(piece)
        size += len(piece)
        if not piece:
            break
    return pieces


def _next_batch(waiting: deque[NumberedPlan]) -> list[NumberedPlan]:
    """The plans for one transaction. A plan whose sender was answered already is not begun."""
    batch: list[NumberedPlan] = []
    size = 0
    now = time.monotonic()
    while waiting and len(batch) < BATCH_PLANS and size < BATCH_BYTES:
        item = waiting.popleft()
        if item.begin_by > now:
            batch.append(item)
            size += held_bytes(item.plan)
    return batch


def _commit(database: Database, batch: list[NumberedPlan], dropped: list[DroppedCount]) -> tuple[Sequence[Tried], str]:
    """The outcome of each plan, and why the batch was not kept, if it wasn't."""
    try:
        with database.write() as tx:
            outcomes = admit(tx, [item.plan for item in batch])
            add_dropped(tx, dropped)
    except StoreUnavailable as error:
        database.forget_connections()
        return [_UNAVAILABLE] * len(batch), str(error)
    except Exception as error:
        # A defect fails this batch, never the process: the next one may succeed. Its text may hold a body.
        return [_UNAVAILABLE] * len(batch), f"a fault of type {type(error).__name__}"
    return outcomes, ""


def _send(line: socket.socket, report: Report) -> None:
    try:
        line.sendall(frame(report))
    except OSError:
        # The other end is gone. What was committed stays, and the next read ends this process.
        return


def main(line: socket.socket, url: str) -> None:
    """The writing process, for the store at `url`. It ends after the process that started it: once every plan has been
    answered, the socket is closed."""
    with _alone(url), Database(url, checkpoints=True) as database:
        write(line, database)


@contextmanager
def _alone(url: str) -> Iterator[None]:
    """On SQLite there is one writer: after a crash, the next one waits here until the last one's batch has ended."""
    if not url.startswith("sqlite:"):
        yield
        return
    with open_lock_file(Path(url.removeprefix("sqlite:///") + ".writer")) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
