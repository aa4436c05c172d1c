"""Begins and ends the attempts of a run.

Only the executor that has claimed a run can begin an attempt, and only the latest attempt can finish the run. So writes
of a stale worker have no effect.
"""

from enum import Enum, auto
from typing import Final

from hookmill.domain.ids import RunKey
from hookmill.domain.run import (
    Ended,
    Hold,
    Run,
    RunState,
)
from hookmill.store import automations
from hookmill.store.database import Transaction
from hookmill.store.notifications import notify_workers
from hookmill.store.runs import held
from hookmill.store.runs.executors import ExecutorId


class AttemptStatus(Enum):
    """The stored status of an attempt, for the executor that performs it."""

    CURRENT = auto()
    CANCEL_REQUESTED = auto()
    OUTDATED = auto()
    """The run has ended, another executor has claimed it, or a later attempt has begun. Writes have no effect."""


def begin(tx: Transaction, key: RunKey, *, executor: ExecutorId, now: int) -> int | None:
    """Begin the next attempt, and return its number; None if the run is not queued and claimed by this executor."""
    row = tx.one(
        """
        UPDATE runs
        SET state = 'running', attempt = attempt + 1, started_at = :now, reason = NULL
        WHERE id = :id AND executor = :executor AND state = 'queued' AND finished_at IS NULL
        RETURNING attempt
        """,
        id=key,
        executor=executor,
        now=now,
    )
    return None if row is None else int(row["attempt"])


def status(tx: Transaction, key: RunKey, *, executor: ExecutorId, attempt: int) -> AttemptStatus:
    row = tx.one(
        """
        SELECT cancel_requested_at
        FROM runs
        WHERE id = :id AND executor = :executor AND attempt = :attempt AND finished_at IS NULL
        """,
        id=key,
        executor=executor,
        attempt=attempt,
    )
    if row is None:
        return AttemptStatus.OUTDATED
    return AttemptStatus.CURRENT if row["cancel_requested_at"] is None else AttemptStatus.CANCEL_REQUESTED


def finish(
    tx: Transaction,
    key: RunKey,
    ended: Ended,
    *,
    executor: ExecutorId,
    attempt: int,
    now: int,
    policy_key: bytes | None = None,
    counts_failures: bool = False,
) -> bool:
    """Finish the run with the attempt's result. Returns False and writes nothing if the attempt is outdated.

    If `policy_key` is given, a run that waits for this run's end may start. If `counts_failures`, a failure adds to the
    automation's failures in a row, and a success resets them.
    """
    if policy_key is not None:
        held.lock_decisions(tx)
    updated = tx.run(
        """
        UPDATE runs
        SET state = CASE WHEN replaced_by IS NOT NULL AND :state = 'cancelled' THEN 'replaced' ELSE :state END,
            finished_at = :now, exit_status = :exit_status, output_tail = :output_tail,
            reason = :reason
        WHERE id = :id AND executor = :executor AND attempt = :attempt AND finished_at IS NULL
        """,
        id=key,
        executor=executor,
        attempt=attempt,
        now=now,
        state=ended.state,
        exit_status=ended.exit_status,
        output_tail=ended.output_tail,
        reason=ended.reason,
    )
    if updated and policy_key is not None:
        held.reconsider(tx, key)
    if updated and counts_failures and ended.state in _RESULTS:
        automations.record_result(tx, key, failed=ended.state is not RunState.SUCCEEDED)
    return updated == 1


_RESULTS: Final = (RunState.SUCCEEDED, RunState.FAILED, RunState.INTERRUPTED)
"""The states that count as an automation's success or failure. A cancelled or replaced run is neither."""


def retry(
    tx: Transaction, run: Run, ended: Ended, *, executor: ExecutorId, now: int, due_at: int, attempts: int
) -> bool:
    """Store the failed attempt, and let the next one start at `due_at`.

    Returns False and writes nothing if the attempt is outdated, or the run shall be cancelled.
    """
    updated = tx.run(
        f"""
        UPDATE runs
        SET state = 'queued', hold = {Hold.RETRY:d}, due_at = :due_at, failures = failures + 1, claimed_at = NULL,
            executor = NULL, exit_status = :exit_status, output_tail = :output_tail, reason = :reason
        WHERE id = :id AND executor = :executor AND attempt = :attempt AND finished_at IS NULL
            AND cancel_requested_at IS NULL
        """,
        id=run.id,
        executor=executor,
        attempt=run.attempt,
        due_at=due_at,
        exit_status=ended.exit_status,
        output_tail=ended.output_tail,
        reason=f"Attempt {run.failures + 1} of {attempts} failed. {ended.reason or ''}".strip(),
    )
    if not updated:
        return False
    tx.run(
        """
        INSERT INTO failed_attempts (run_id, attempt, started_at, finished_at, exit_status, output_tail, reason)
        VALUES (:run, :attempt, :started_at, :now, :exit_status, :output_tail, :reason)
        """,
        run=run.id,
        attempt=run.attempt,
        started_at=run.started_at,
        now=now,
        exit_status=ended.exit_status,
        output_tail=ended.output_tail,
        reason=ended.reason,
    )
    notify_workers(tx)
    return True


def release(
    tx: Transaction, key: RunKey, *, executor: ExecutorId, attempt: int, attempt_counts: bool, now: int
) -> bool:
    """Requeue a run that the executor's host can't perform, or cancel it if that was requested.

    If the attempt does not count, the next attempt has the same number. The old executor can't write any more, because
    it loses its claim in the same statement. Returns False and writes nothing if the attempt is outdated.
    """
    held.lock_decisions(tx)
    notify_workers(tx)
    updated = tx.run(
        """
        UPDATE runs
        SET state = CASE
                WHEN cancel_requested_at IS NULL THEN 'queued'
                WHEN replaced_by IS NULL THEN 'cancelled'
                ELSE 'replaced'
            END,
            finished_at = CASE WHEN cancel_requested_at IS NULL THEN NULL ELSE :now END,
            reason = CASE
                WHEN cancel_requested_at IS NULL THEN NULL ELSE 'It was cancelled while no worker performed it.'
            END,
            attempt = CASE WHEN :attempt_counts THEN attempt ELSE attempt - 1 END,
            started_at = CASE WHEN :attempt_counts OR attempt > 1 THEN started_at END,
            claimed_at = NULL,
            executor = NULL
        WHERE id = :id AND executor = :executor AND attempt = :attempt AND state = 'running' AND finished_at IS NULL
        """,
        id=key,
        executor=executor,
        attempt=attempt,
        attempt_counts=attempt_counts,
        now=now,
    )
    held.reconsider(tx, key)
    return updated == 1
