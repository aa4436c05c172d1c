"""Attempts that an agent platform performs: the digest of each attempt's token, and the report that has arrived.

A report is accepted only for the run's latest attempt, and only until this attempt ends. An accepted report is never
lost: if the worker dies before it reads the report, the next attempt ends with it. If the run is to be cancelled before
that, it ends with the report instead.
"""

from collections.abc import Sequence
from enum import Enum, auto
from typing import Any, Final

from hookmill.domain.ids import RunKey
from hookmill.domain.platform_report import PlatformReport, report_from_stored
from hookmill.domain.run import Hold, RunState
from hookmill.store import automations, dialect
from hookmill.store.database import Transaction
from hookmill.store.runs import agent_reports

CLOSED: Final = bytes(32)
"""The digest of an attempt that has ended. No token has it."""
_HAS_NOT_FAILED: Final = """
    NOT EXISTS (SELECT 1 FROM failed_attempts f WHERE f.run_id = p.run_id AND f.attempt = p.attempt)
"""
"""An attempt that failed and is followed by another one has ended, although its run has not."""


class Reception(Enum):
    """The result of receiving a report."""

    ACCEPTED = auto()
    """The report is stored now, or the same report was stored before."""
    OUTDATED = auto()
    """The attempt has ended, a later one has begun, or the token belongs to no attempt."""
    CONTRADICTED = auto()
    """Another report was accepted before."""


def begin(tx: Transaction, run: RunKey, attempt: int, token_digest: bytes, *, now: int) -> None:
    """Store the digest of the attempt's token. If the attempt has an earlier token, that one stops working."""
    tx.run(
        """
        INSERT INTO platform_attempts (run_id, attempt, token_digest, created_at)
        VALUES (:run, :attempt, :token_digest, :now)
        ON CONFLICT (run_id, attempt) DO UPDATE SET token_digest = :token_digest, created_at = :now
        """,
        run=run,
        attempt=attempt,
        token_digest=token_digest,
        now=now,
    )


def token_digest(tx: Transaction, run: RunKey, attempt: int) -> bytes | None:
    """The digest of the attempt's token; None if the attempt has none."""
    query = "SELECT token_digest FROM platform_attempts WHERE run_id = :run AND attempt = :attempt"
    return tx.scalar(query, run=run, attempt=attempt)


def receive(tx: Transaction, run: RunKey, attempt: int, token_digest: bytes, report: PlatformReport) -> Reception:
    """Store a report about an attempt, if the attempt is the run's latest one and has not ended."""
    # Locked, so that no later attempt can begin, and no other report can arrive, before this transaction ends. After a
    # wait for the lock, PostgreSQL reads only the locked row again. So `_HAS_NOT_FAILED` can miss a failure that was
    # recorded meanwhile, and the condition on `hold` detects it.
    row = tx.one(
        f"""
        SELECT p.report
        FROM runs r
        JOIN platform_attempts p ON p.run_id = r.id AND p.attempt = r.attempt
        WHERE r.id = :run AND r.attempt = :attempt AND r.finished_at IS NULL AND p.token_digest = :token_digest
            AND COALESCE(r.hold, 0) <> {Hold.RETRY:d} AND {_HAS_NOT_FAILED}
        {dialect.lock_clause(tx, "FOR NO KEY UPDATE", of="r")}
        """,
        run=run,
        attempt=attempt,
        token_digest=token_digest,
    )
    if row is None:
        return Reception.OUTDATED
    text = report.stored()
    keys: dict[str, Any] = {"run": run, "attempt": attempt, "token_digest": token_digest}
    is_stored = row["report"] is None and tx.run(
        """
        UPDATE platform_attempts
        SET report = :report
        WHERE run_id = :run AND attempt = :attempt AND token_digest = :token_digest AND report IS NULL
        """,
        report=text,
        **keys,
    )
    if is_stored:
        return Reception.ACCEPTED
    # Another report may also have been stored while this transaction waited for the lock.
    stored = tx.scalar(
        """
        SELECT report FROM platform_attempts
        WHERE run_id = :run AND attempt = :attempt AND token_digest = :token_digest
        """,
        **keys,
    )
    if stored is None:
        return Reception.OUTDATED
    return Reception.ACCEPTED if stored == text else Reception.CONTRADICTED


def close(tx: Transaction, run: RunKey, attempt: int) -> PlatformReport | None:
    """Let the attempt's token stop working, unless a report was accepted. Returns this report."""
    updated_rows = tx.run(
        """
        UPDATE platform_attempts
        SET token_digest = :closed
        WHERE run_id = :run AND attempt = :attempt AND report IS NULL
        """,
        run=run,
        attempt=attempt,
        closed=CLOSED,
    )
    return None if updated_rows else accepted_report(tx, run)


def accepted_report(tx: Transaction, run: RunKey) -> PlatformReport | None:
    """The report about an attempt of this unfinished run whose end is not recorded yet; None if there is none."""
    stored = tx.scalar(
        f"""
        SELECT p.report
        FROM platform_attempts p
        WHERE p.run_id = :run AND p.report IS NOT NULL AND {_HAS_NOT_FAILED}
        ORDER BY p.attempt DESC
        LIMIT 1
        """,
        run=run,
    )
    return None if stored is None else report_from_stored(stored)


def runs_with_accepted_report(tx: Transaction, runs: Sequence[RunKey]) -> list[RunKey]:
    """Those of these unfinished runs about which `accepted_report` has a report."""
    return tx.scalars(
        f"""
        SELECT DISTINCT p.run_id
        FROM platform_attempts p
        WHERE p.run_id IN :runs AND p.report IS NOT NULL AND {_HAS_NOT_FAILED}
        """,
        runs=list(runs),
    )


def end_with_report(tx: Transaction, run: RunKey, *, now: int) -> RunState | None:
    """Let a run that no worker performs end with the result of its accepted report. Returns its state; None, and writes
    nothing, if the run has no report.

    The caller has locked the run's row, so that no report can be accepted after this look. The caller must then call
    `held.reconsider`.
    """
    report = accepted_report(tx, run)
    if report is None:
        return None
    result = report.ended
    [row] = tx.all(
        """
        UPDATE runs
        SET state = :state, finished_at = :now, reason = :reason
        WHERE id = :id AND finished_at IS NULL
        RETURNING attempt
        """,
        id=run,
        state=result.state,
        now=now,
        reason=result.reason,
    )
    if result.report is not None:
        agent_reports.add(tx, run, row["attempt"], result.report)
    automations.record_result(tx, run, failed=result.state is not RunState.SUCCEEDED)
    return result.state


def attempts_without_report(tx: Transaction, run: RunKey, *, before: int) -> list[int]:
    """The attempts before this one that the platform may still perform."""
    return tx.scalars(
        f"""
        SELECT p.attempt
        FROM platform_attempts p
        WHERE p.run_id = :run AND p.attempt < :before AND p.report IS NULL AND {_HAS_NOT_FAILED}
        ORDER BY p.attempt
        """,
        run=run,
        before=before,
    )
