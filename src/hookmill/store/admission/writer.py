"""The writer process: it reads all waiting plans, admits them in one transaction, and reports their outcomes.

There is no artificial delay: while one batch becomes durable, the next one gathers in the socket.
"""

import fcntl
import math
import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from hookmill.domain.delivery import Accepted, Unavailable
from hookmill.domain.errors import DatabaseUnreachable, StoreUnavailable, TransactionConflict, describe_fault
from hookmill.metrics import process_usage
from hookmill.store.admission import window_counts
from hookmill.store.admission.plan import Acceptance, Plan, memory_bytes
from hookmill.store.admission.protocol import (
    DroppedCount,
    NumberedPlan,
    Report,
    Result,
    Unframer,
    decode_work,
    frame,
)
from hookmill.store.admission.transaction import LockContended, PlanOutcome, add_dropped_counts, admit
from hookmill.store.database import Database, retry, sqlite_path
from hookmill.store.identity_segments import SegmentCache
from hookmill.store.notifications import notify_workers_separately
from hookmill.store.private_file import open_lock_file
from hookmill.store.sqlite_files import SqliteFiles, clear_record

BATCH_PLANS_MAX: Final = 256
BATCH_BYTES: Final = 8 * 1024 * 1024
"""After this size, no plan is added to a batch, and no more bytes are received before it is committed."""
READ_BYTES: Final = 1 << 20
CONTENDED_SECONDS: Final = 0.002
"""Delay before the writer retries a webhook that another process has locked."""
CHECK_FILES_SECONDS: Final = 1.0
"""Interval between checks of SQLite's files while no delivery arrives."""
USAGE_SECONDS: Final = 2.0
"""The shortest time between two reports of the writer's processor time and memory."""

_UNAVAILABLE: Final = Unavailable()
_READY: Final = Report([])
"""The first message, which means that the writer is ready."""


def serve_ingress(channel: socket.socket, database: Database) -> None:
    """Admit the plans of one event loop until it closes its end of the socket."""
    _send(channel, _READY)
    segments = SegmentCache()
    has_window_counts_at = time.monotonic() + window_counts.COMPLETE_AFTER_SECONDS
    unframer = Unframer()
    waiting: deque[NumberedPlan] = deque()
    dropped_counts: list[DroppedCount] = []
    is_fully_contended = False
    """Whether other processes have locked the webhooks of all plans of the last batch."""
    usage_reported_at = -math.inf
    while True:
        wait_seconds = CHECK_FILES_SECONDS if database.on_sqlite else None
        if waiting:
            wait_seconds = CONTENDED_SECONDS if is_fully_contended else 0
        pieces = _receive(channel, wait_seconds)
        for piece in pieces:
            for message in unframer.messages(piece):
                work = decode_work(message)
                waiting.extend(work.plans)
                dropped_counts.extend(work.dropped_counts)
        is_closed = bool(pieces) and not pieces[-1]
        if is_closed and not waiting and not dropped_counts:
            return
        batch = _next_batch(waiting)
        if not batch and not dropped_counts:
            database.save_wal()
            continue
        began_at = time.monotonic()
        outcomes, failure, is_unreachable = _admit_batch(
            database,
            batch,
            dropped_counts,
            segments=segments,
            has_window_counts=began_at > has_window_counts_at,
        )
        ended_at = time.monotonic()
        # If the batch was not committed, these counts are lost.
        dropped_counts = []
        results: list[Result] = []
        retries: list[NumberedPlan] = []
        for numbered_plan, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, LockContended):
                retries.append(numbered_plan)
            else:
                results.append(Result(numbered_plan.number, outcome))
        waiting.extendleft(reversed(retries))
        is_fully_contended = bool(retries) and not results
        if results or failure:
            usage = None
            if ended_at - usage_reported_at >= USAGE_SECONDS:
                usage, usage_reported_at = process_usage(), ended_at
            _send(channel, Report(results, failure, ended_at - began_at, usage, is_unreachable=is_unreachable))
        if not database.on_sqlite and any(
            _starts_runs(numbered_plan.plan, outcome) for numbered_plan, outcome in zip(batch, outcomes, strict=True)
        ):
            _notify_workers(database)


def _receive(channel: socket.socket, wait_seconds: float | None) -> list[bytes]:
    """All bytes that can be read, after waiting for them up to `wait_seconds` (None: without limit).

    If the ingress process has closed its end, the last piece is b"".
    """
    pieces: list[bytes] = []
    size = 0
    if not select.select([channel], [], [], wait_seconds)[0]:
        return pieces
    while size < BATCH_BYTES:
        try:
            piece = channel.recv(READ_BYTES, socket.MSG_DONTWAIT)
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
    """The plans for one transaction. Overdue plans, whose senders already got a 503, are discarded."""
    batch: list[NumberedPlan] = []
    size = 0
    now = time.monotonic()
    while waiting and len(batch) < BATCH_PLANS_MAX and size < BATCH_BYTES:
        numbered_plan = waiting.popleft()
        if numbered_plan.begin_by > now:
            batch.append(numbered_plan)
            size += memory_bytes(numbered_plan.plan)
    return batch


def _admit_batch(
    database: Database,
    batch: list[NumberedPlan],
    dropped_counts: list[DroppedCount],
    *,
    segments: SegmentCache,
    has_window_counts: bool,
) -> tuple[Sequence[PlanOutcome], str, bool]:
    """Admit the plans, and add the counts, in one transaction; after an unexpected fault, each in its own.

    Returns the outcome of each plan; the reason why a plan or a count was not committed, "" if all were; and whether
    that is because the database's server can't be reached.
    """

    def admit_once() -> Sequence[PlanOutcome]:
        with database.write() as tx:
            plans = [numbered_plan.plan for numbered_plan in batch]
            outcomes = admit(tx, plans, segments=segments, has_window_counts=has_window_counts)
            add_dropped_counts(tx, dropped_counts)
        return outcomes

    try:
        outcomes = retry(admit_once, after=TransactionConflict)
    except StoreUnavailable as error:
        if not database.save_wal():
            database.discard_connections()
        return [_UNAVAILABLE] * len(batch), str(error), isinstance(error, DatabaseUnreachable)
    except Exception as error:
        # A defect must not end the process, because the next batch may succeed.
        if len(batch) + len(dropped_counts) <= 1:
            return [_UNAVAILABLE] * len(batch), describe_fault(error), False
    else:
        return outcomes, "", False
    # One plan must not fail the others of its batch: senders such as GitHub never retry.
    parts = [
        _admit_batch(database, [numbered_plan], [], segments=segments, has_window_counts=has_window_counts)
        for numbered_plan in batch
    ]
    parts += [
        _admit_batch(database, [], [count], segments=segments, has_window_counts=False) for count in dropped_counts
    ]
    return (
        [outcome for part_outcomes, _, _ in parts for outcome in part_outcomes],
        next((failure for _, failure, _ in parts if failure), ""),
        any(is_unreachable for _, _, is_unreachable in parts),
    )


def _starts_runs(plan: Plan, outcome: PlanOutcome) -> bool:
    return isinstance(plan, Acceptance) and bool(plan.runs) and isinstance(outcome, Accepted)


def _notify_workers(database: Database) -> None:
    # This needs a separate transaction: PostgreSQL lets only one transaction with a notification commit at a time, and
    # an admission holds that lock while it waits for the disk. If the notification is lost, workers poll.
    with suppress(StoreUnavailable):
        notify_workers_separately(database)


def _send(channel: socket.socket, report: Report) -> None:
    try:
        channel.sendall(frame(report))
    except OSError:
        # The ingress process has closed its end. Committed plans stay committed, and the next read ends this process.
        return


def main(channel: socket.socket, url: str) -> None:
    """Run the writer process for the database at `url`.

    It ends when the ingress process has closed its end of the channel and every plan has an outcome.
    """
    if not url.startswith("sqlite:"):
        with Database(url) as database:
            serve_ingress(channel, database)
        return
    path = sqlite_path(url)
    # After a crash, the lock is free once the previous writer has ended.
    with open_lock_file(path.with_name(f"{path.name}.writer")) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        SqliteFiles(path, is_writer=True).refuse_foreign_wal()
        clear_record(lock)
        with Database(url, checkpoints=True) as database:
            database.record_files(lock)
            serve_ingress(channel, database)
            if not database.save_wal():
                clear_record(lock)
