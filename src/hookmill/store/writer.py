"""The writing process: takes every plan that is waiting, admits them in one transaction, reports, and begins again.

There is no artificial delay: while one batch is being made durable, the next one gathers in the socket.
"""

import fcntl
import select
import socket
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from hookmill.domain.delivery import Unavailable
from hookmill.domain.errors import StoreUnavailable
from hookmill.store.admission import Admission, Held, add_refusals, admit
from hookmill.store.database import Database
from hookmill.store.group_commit import (
    Became,
    Numbered,
    RefusalCount,
    Report,
    Unframer,
    Work,
    became,
    frame,
    held_bytes,
)
from hookmill.store.private_file import open_lock_file

BATCH_PLANS: Final = 256
BATCH_BYTES: Final = 8 * 1024 * 1024
READ_BYTES: Final = 1 << 20
HELD_SECONDS: Final = 0.002
"""How soon a webhook that another process is writing at is tried again."""

_decode: Final = msgspec.msgpack.Decoder(Work).decode
_UNAVAILABLE: Final = Unavailable()


def write(line: socket.socket, database: Database) -> None:
    """Serve one event loop until it closes its end of the line."""
    _say(line, Report([]))
    unframer = Unframer()
    waiting: deque[Numbered] = deque()
    refusals: list[RefusalCount] = []
    held = False
    while True:
        pieces = _arrived(line, wait=None if not waiting else HELD_SECONDS if held else 0)
        for piece in pieces:
            for content in unframer.frames(piece):
                work = _decode(content)
                waiting.extend(work.plans)
                refusals.extend(work.refusals)
        if pieces and not pieces[-1] and not waiting and not refusals:
            return
        batch = _next_batch(waiting)
        if not batch and not refusals:
            continue
        outcomes, failure = _commit(database, batch, refusals)
        refusals = []
        told = [became(item.number, o) for item, o in zip(batch, outcomes, strict=True) if not isinstance(o, Held)]
        again = [item for item, o in zip(batch, outcomes, strict=True) if isinstance(o, Held)]
        waiting.extendleft(reversed(again))
        held = bool(again) and not told
        _report(line, told, failure)


def _arrived(line: socket.socket, wait: float | None) -> list[bytes]:
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


def _next_batch(waiting: deque[Numbered]) -> list[Numbered]:
    """What one transaction takes. A plan whose sender has been answered already is not begun."""
    batch: list[Numbered] = []
    size = 0
    now = time.monotonic()
    while waiting and len(batch) < BATCH_PLANS and size < BATCH_BYTES:
        item = waiting.popleft()
        if item.begin_by > now:
            batch.append(item)
            size += held_bytes(item.plan)
    return batch


def _commit(
    database: Database, batch: list[Numbered], refusals: list[RefusalCount]
) -> tuple[list[Admission | Held], str]:
    try:
        with database.write() as tx:
            outcomes = admit(tx, [item.plan for item in batch])
            add_refusals(tx, refusals)
    except StoreUnavailable as error:
        database.forget_connections()
        return [_UNAVAILABLE] * len(batch), str(error)
    except Exception as error:
        # A fault of ours fails this batch, never the process: the next one may be whole. Its text may hold a body.
        return [_UNAVAILABLE] * len(batch), f"a fault of type {type(error).__name__}"
    return outcomes, ""


def _report(line: socket.socket, told: list[Became], failure: str) -> None:
    if told or failure:
        _say(line, Report(told, failure))


def _say(line: socket.socket, report: Report) -> None:
    try:
        line.sendall(frame(report))
    except OSError:
        # Nobody is left to be told. What was committed stays, and the next read ends this.
        return


def main(line: socket.socket, url: str) -> None:
    """The writing process, for the store at `url`. It ends with its starter, however that ended: when everybody has
    been answered, the line is closed."""
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
