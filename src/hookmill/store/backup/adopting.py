"""Makes a restored copy an installation of its own.

The original installation may still exist, or it may have gone on after the backup. So the copy takes over none of its
workers, removes none of its objects, and sends none of its messages about alarms and results.
"""

from dataclasses import dataclass
from typing import Final

from hookmill.domain.ids import RunKey
from hookmill.store import notices, results
from hookmill.store.database import Transaction
from hookmill.store.runs import attempts, files
from hookmill.store.runs.executors import ExecutorId
from hookmill.store.runs.parts import CLAIMED

RUNS_PER_QUERY: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedWork:
    """The numbers of unfinished runs and of unsent messages in a backup, by what the restore did with them."""

    requeued_runs: int
    """Runs that were in progress. The attempt does not count, and is made again."""
    ended_runs: int
    """Runs in progress whose cancellation was requested."""
    unfinished_runs: int
    """All runs that will start, including the requeued ones."""
    unsent_messages: int
    """Messages about alarms that waited, and are not sent."""
    unsent_results: int
    """Messages about results of runs that waited, and are not sent."""


def adopt(tx: Transaction, now: int) -> AdoptedWork:
    """Requeue the runs in progress, discard the messages that wait, and leave the objects of the backup's runs to the
    original. `now` is in µs since 1970."""
    requeued = ended = 0
    last = b""
    while rows := tx.all(
        f"SELECT id, executor, attempt FROM runs WHERE {CLAIMED} AND id > :last ORDER BY id LIMIT {RUNS_PER_QUERY}",
        last=last,
    ):
        for row in rows:
            last = bytes(row["id"])
            executor, attempt = ExecutorId(row["executor"]), row["attempt"]
            attempts.release(tx, RunKey(last), executor=executor, attempt=attempt, counts_as_attempt=False, now=now)
            unfinished = tx.one("SELECT 1 AS one FROM runs WHERE id = :id AND finished_at IS NULL", id=last)
            requeued += unfinished is not None
            ended += unfinished is None
    files.disown_objects(tx)
    waiting = tx.one("SELECT COUNT(*) AS number FROM runs WHERE finished_at IS NULL")
    assert waiting is not None
    return AdoptedWork(
        requeued_runs=requeued,
        ended_runs=ended,
        unfinished_runs=int(waiting["number"]),
        unsent_messages=notices.discard_waiting(tx, now),
        unsent_results=results.discard_waiting(tx, now),
    )
