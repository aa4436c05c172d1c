"""The processes that perform runs: their heartbeats, and the runs of dead processes.

An executor is one such process. Its id is new after each restart. A run's row names the executor that has claimed it.
"""

from collections.abc import Sequence
from typing import Final, NewType

from hookmill.domain.ids import RunKey
from hookmill.domain.run import RunState
from hookmill.store import automations, dialect
from hookmill.store.database import Transaction
from hookmill.store.notifications import notify_workers
from hookmill.store.runs import cancellation, held, platform_attempts

ExecutorId = NewType("ExecutorId", str)
"""Identifies a process that performs runs. A restarted process has a new id."""


def heartbeat(tx: Transaction, executor: ExecutorId, now: int) -> None:
    """Register the executor, or record that it is alive. `now` is in µs since 1970."""
    tx.run(
        """
        INSERT INTO executors (id, started_at, last_seen_at)
        VALUES (:id, :now, :now)
        ON CONFLICT (id) DO UPDATE SET last_seen_at = :now
        """,
        id=executor,
        now=now,
    )


def last_heartbeats(tx: Transaction) -> dict[ExecutorId, int]:
    """The last heartbeat of each executor, in µs since 1970 by the executor's clock."""
    return {row["id"]: row["last_seen_at"] for row in tx.all("SELECT * FROM executors")}


def deregister(tx: Transaction, executor: ExecutorId, *, last_beat: int | None = None) -> bool:
    """Deregister the executor, so that its runs can be requeued. Returns False if it was not registered.

    With `last_beat`, returns False and changes nothing if the executor has sent a later heartbeat.
    """
    return tx.run(
        """
        DELETE FROM executors
        WHERE id = :id AND (last_seen_at = :last_beat OR :any_beat)
        """,
        id=executor,
        last_beat=last_beat if last_beat is not None else 0,
        any_beat=last_beat is None,
    ) == 1  # fmt: skip


_OF_DEAD_EXECUTOR: Final = """
    finished_at IS NULL AND executor IS NOT NULL AND executor NOT IN (SELECT id FROM executors)
"""


def have_left_runs(tx: Transaction) -> bool:
    """Whether deregistered executors have left unfinished runs. Locks nothing."""
    return tx.one(f"SELECT 1 FROM runs WHERE {_OF_DEAD_EXECUTOR} LIMIT 1") is not None


def runs_of_dead_executors(tx: Transaction) -> list[RunKey]:
    """Unfinished runs of deregistered executors. They stay locked until the transaction ends.

    Runs that another transaction has locked are omitted.
    """
    # Decisions about held runs acquire this lock before row locks, too. Another order could cause a deadlock.
    held.lock_decisions(tx)
    return tx.scalars(
        f"""
        SELECT id
        FROM runs
        WHERE {_OF_DEAD_EXECUTOR}
        ORDER BY id
        {dialect.lock_clause(tx, "FOR UPDATE", skip_locked=True)}
        """
    )


def runs_claimed_by(tx: Transaction, executor: ExecutorId, *, locks: bool = False) -> list[RunKey]:
    """Unfinished runs that the executor has claimed. With `locks`, they stay locked until the transaction ends."""
    if locks:
        # In the order of `runs_of_dead_executors`.
        held.lock_decisions(tx)
    lock = dialect.lock_clause(tx, "FOR UPDATE") if locks else ""
    return tx.scalars(
        f"SELECT id FROM runs WHERE finished_at IS NULL AND executor = :executor ORDER BY id {lock}", executor=executor
    )


def requeue(tx: Transaction, keys: Sequence[RunKey], *, attempts_max: int | None, now: int) -> list[RunKey]:
    """Requeue runs, which the transaction has locked. But cancel runs with a requested cancellation, and interrupt runs
    with too many attempts.

    Returns the runs that ended, so that the caller can kill their commands. `attempts_max` applies to runs whose
    worker died. It is None if the worker was stopped, or the run was lost (`Dispatcher._requeue_lost`). A stop or a
    lost run must not end a run, so these attempts never count.
    """
    held.lock_decisions(tx)
    notify_workers(tx)
    ended_runs = []
    for key in keys:
        row = tx.one(
            f"""
            SELECT state, cancel_requested_at, replaced_by, attempt - failures - stopped_attempts AS counted_attempts
            FROM runs
            WHERE id = :id AND finished_at IS NULL
            {dialect.lock_clause(tx, "FOR NO KEY UPDATE")}
            """,
            id=key,
        )
        if row is None:
            continue
        if row["cancel_requested_at"] is not None:
            cancellation.end_unperformed(tx, key, replaced_by=row["replaced_by"], now=now)
            ended_runs.append(key)
        elif (
            attempts_max is not None
            and row["state"] == RunState.RUNNING
            and row["counted_attempts"] >= attempts_max
            # The next attempt only reads this report, and ends with it.
            and platform_attempts.accepted_report(tx, key) is None
        ):
            _interrupt(tx, key, attempts_max, now)
            ended_runs.append(key)
        else:
            tx.run(
                """
                UPDATE runs
                SET state = 'queued', claimed_at = NULL, executor = NULL,
                    stopped_attempts = stopped_attempts + CASE WHEN :is_stopped AND state = 'running' THEN 1 ELSE 0 END
                WHERE id = :id
                """,
                id=key,
                is_stopped=attempts_max is None,
            )
    return ended_runs


def _interrupt(tx: Transaction, key: RunKey, attempts_max: int, now: int) -> None:
    tx.run(
        "UPDATE runs SET state = 'interrupted', finished_at = :now, reason = :reason WHERE id = :id",
        id=key,
        now=now,
        reason="Its worker died while it ran. It is not started again, because a dead worker or a fault of the host "
        f"ended {attempts_max} attempts.",
    )
    automations.record_result(tx, key, failed=True)
    held.reconsider(tx, key)
