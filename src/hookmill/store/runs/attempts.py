"""Ends the attempts of a run. A claim begins them.

Only the executor that has claimed the run can end an attempt, and only the latest one. So writes of a stale worker have
no effect.
"""

from dataclasses import replace
from enum import Enum, auto
from typing import Final, NamedTuple

from hookmill.domain.ids import RunKey
from hookmill.domain.run import (
    Ended,
    Hold,
    Run,
    RunState,
)
from hookmill.store import automations, dialect
from hookmill.store.database import Transaction
from hookmill.store.notifications import notify_workers
from hookmill.store.runs import agent_reports, cancellation, held, outputs, reading
from hookmill.store.runs.executors import ExecutorId


class AttemptStatus(Enum):
    """The stored status of an attempt, for the executor that performs it."""

    CURRENT = auto()
    CANCEL_REQUESTED = auto()
    OUTDATED = auto()
    """The run has ended, another executor has claimed it, or a later attempt has begun. Writes have no effect."""


def status(tx: Transaction, key: RunKey, *, executor: ExecutorId, attempt: int) -> AttemptStatus:
    """The stored status of the attempt that this executor performs."""
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


class RunToPerform(NamedTuple):
    run: Run
    payload: bytes | None
    """None if the run has none, or if retention has pruned it."""
    has_failures_in_row: bool
    """Whether the automation has failures in a row, which a success resets."""


def run_to_perform(tx: Transaction, key: RunKey, *, executor: ExecutorId, attempt: int) -> RunToPerform | None:
    """The run of the attempt that this executor begins to perform; None if the attempt is outdated.

    A single statement reads all of it.
    """
    row = tx.one(
        f"""
        {reading.RUN_AND_PAYLOAD_QUERY}
        WHERE runs.id = :id AND runs.executor = :executor AND runs.attempt = :attempt AND runs.finished_at IS NULL
        """,
        id=key,
        executor=executor,
        attempt=attempt,
    )
    if row is None:
        return None
    return RunToPerform(
        run=reading.run_from_row(row),
        payload=row["body"],
        has_failures_in_row=bool(row["has_failures_in_row"]),
    )


def finishes_in_one_statement(run: Run, result: Ended, *, counts_failures: bool) -> bool:
    """Whether `finish` executes a single statement, so that it needs no transaction."""
    return (
        run.policy_key is None
        and result.report is None
        and not result.outputs
        and not counts_failures
        and result.state is not RunState.CANCELLED
    )


def finish(
    tx: Transaction,
    key: RunKey,
    result: Ended,
    *,
    executor: ExecutorId,
    attempt: int,
    now: int,
    policy_key: bytes | None = None,
    counts_failures: bool = True,
    package_webhook_name: str | None = None,
) -> bool:
    """Finish the run with the attempt's result. Returns False and writes nothing if the attempt is outdated.

    If the run has a `policy_key`, another run with the key that waits for this run's end can start. If
    `counts_failures`, a failure increments the automation's failures in a row, and a success resets them.
    `package_webhook_name` is the webhook's name in this attempt's envelope, because the webhook may be renamed later;
    None if the files of runs are not stored.

    A run that was cancelled because another one replaces it ends as replaced.
    """
    if policy_key is not None:
        held.lock_decisions(tx)
    if result.state is RunState.CANCELLED:
        result = _replaced_or(tx, key, result)
    updated_rows = tx.run(
        """
        UPDATE runs
        SET state = :state, finished_at = :now, exit_status = :exit_status, output_tail = :output_tail,
            reason = :reason, package_webhook_name = :package_webhook_name
        WHERE id = :id AND executor = :executor AND attempt = :attempt AND finished_at IS NULL
        """,
        id=key,
        executor=executor,
        attempt=attempt,
        now=now,
        state=result.state,
        exit_status=result.exit_status,
        output_tail=result.output_tail,
        reason=result.reason,
        package_webhook_name=package_webhook_name,
    )
    if updated_rows and result.report is not None:
        agent_reports.add(tx, key, attempt, result.report)
    if updated_rows and result.outputs:
        outputs.add(tx, key, result.outputs)
    if updated_rows and policy_key is not None:
        held.reconsider(tx, key)
    if updated_rows and counts_failures and result.state in _COUNTED_STATES:
        automations.record_result(tx, key, failed=result.state is not RunState.SUCCEEDED)
    return updated_rows == 1


def _replaced_or(tx: Transaction, key: RunKey, cancelled: Ended) -> Ended:
    """The result of a run that was stopped: replaced if another run replaces it, otherwise `cancelled`."""
    replaced_by = tx.scalar("SELECT replaced_by FROM runs WHERE id = :id", id=key)
    if replaced_by is None:
        return cancelled
    reason = held.reason_for(RunState.REPLACED, replaced_by)
    return replace(cancelled, state=RunState.REPLACED, reason=reason)


_COUNTED_STATES: Final = (RunState.SUCCEEDED, RunState.FAILED, RunState.INTERRUPTED)
"""The states that count as an automation's success or failure. A cancelled or replaced run is neither."""


def retry(
    tx: Transaction,
    run: Run,
    result: Ended,
    *,
    executor: ExecutorId,
    now: int,
    due_at: int,
    rule_attempts: int,
    package_webhook_name: str | None = None,
) -> bool:
    """Store the failed attempt, and let the next attempt start at `due_at`.

    The stored reason counts failed attempts only, so its number can be lower than `run.attempt`. `rule_attempts` is the
    number that the retry rule allows.

    Returns False and writes nothing if the attempt is outdated, or if a cancellation of the run was requested.
    """
    updated_rows = tx.run(
        f"""
        UPDATE runs
        SET state = 'queued', hold = {Hold.RETRY:d}, due_at = :due_at, failures = failures + 1, claimed_at = NULL,
            executor = NULL, exit_status = :exit_status, output_tail = :output_tail, reason = :reason,
            package_webhook_name = :package_webhook_name
        WHERE id = :id AND executor = :executor AND attempt = :attempt AND finished_at IS NULL
            AND cancel_requested_at IS NULL
        """,
        id=run.id,
        executor=executor,
        attempt=run.attempt,
        due_at=due_at,
        exit_status=result.exit_status,
        output_tail=result.output_tail,
        reason=f"Attempt {run.failures + 1} of {rule_attempts} failed. {result.reason or ''}".strip(),
        package_webhook_name=package_webhook_name,
    )
    if not updated_rows:
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
        exit_status=result.exit_status,
        output_tail=result.output_tail,
        reason=result.reason,
    )
    if result.report is not None:
        agent_reports.add(tx, run.id, run.attempt, result.report)
    notify_workers(tx)
    return True


def release(
    tx: Transaction, key: RunKey, *, executor: ExecutorId, attempt: int, counts_as_attempt: bool, now: int
) -> RunState | None:
    """Requeue a run that the executor's host can't perform, or end it if a cancellation was requested.

    Unless `counts_as_attempt`, the next attempt gets the same number. The old executor can't write any more, because
    it loses its claim. Returns the run's state; None, and writes nothing, if the attempt is outdated.
    """
    held.lock_decisions(tx)
    row = tx.one(
        f"""
        SELECT cancel_requested_at, replaced_by
        FROM runs
        WHERE id = :id AND executor = :executor AND attempt = :attempt AND state = 'running' AND finished_at IS NULL
        {dialect.lock_clause(tx, "FOR NO KEY UPDATE")}
        """,
        id=key,
        executor=executor,
        attempt=attempt,
    )
    if row is None:
        return None
    tx.run(
        """
        UPDATE runs
        SET state = 'queued',
            attempt = CASE WHEN :counts_as_attempt THEN attempt ELSE attempt - 1 END,
            started_at = CASE WHEN :counts_as_attempt OR attempt > 1 THEN started_at END,
            claimed_at = NULL,
            executor = NULL
        WHERE id = :id
        """,
        id=key,
        counts_as_attempt=counts_as_attempt,
    )
    notify_workers(tx)
    if row["cancel_requested_at"] is not None:
        return cancellation.end_unperformed(tx, key, replaced_by=row["replaced_by"], now=now)
    # The requeued run is still active, so no waiting run is reconsidered.
    return RunState.QUEUED
