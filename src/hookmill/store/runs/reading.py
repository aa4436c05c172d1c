"""Reads runs, their payloads and their failed attempts."""

from collections.abc import Collection, Sequence
from typing import Final

from hookmill.domain.agent_report import AgentReport
from hookmill.domain.event import EventType
from hookmill.domain.ids import AutomationId, DeliveryKey, FactoryId, RunKey, WebhookUid
from hookmill.domain.run import (
    ByDelivery,
    ByPerson,
    BySchedule,
    FailedAttempt,
    Hold,
    Run,
    RunState,
    StartedBy,
)
from hookmill.domain.run_options import options_from_stored
from hookmill.store.database import Row, Transaction, from_row

_RUN_COLUMNS: Final = """
        runs.id, runs.delivery_id, runs.factory_id, runs.automation_id, runs.automation_version, runs.state,
        runs.attempt, runs.created_at, runs.claimed_at, runs.started_at, runs.finished_at,
        runs.executor, runs.cancel_requested_at, runs.exit_status, runs.output_tail, runs.reason, runs.replay,
        runs.policy_key, runs.hold, runs.due_at, runs.replaced_by, runs.failures,
        runs.stopped_attempts,
        runs.schedule, runs.schedule_timezone, runs.scheduled_at, runs.started_by,
        CASE WHEN runs.started_by IS NULL THEN 0 ELSE (
            SELECT COUNT(*) FROM payloads WHERE payloads.delivery_id = runs.delivery_id
        ) END AS own_payloads,
        webhooks.uid AS webhook_uid, webhooks.name AS webhook_name, deliveries.event, deliveries.event_signed,
        deliveries.traceparent,
        automation_versions.name AS automation_name, automation_versions.prompt, automation_versions.runner,
        automation_versions.policy, automation_versions.options
"""
_RUN_TABLES: Final = """
    FROM runs
    LEFT JOIN webhooks ON webhooks.no = runs.webhook_no
    JOIN automation_versions
        ON automation_versions.automation_id = runs.automation_id
        AND automation_versions.version = runs.automation_version
    LEFT JOIN deliveries ON deliveries.id = runs.delivery_id
"""
RUN_QUERY: Final = f"SELECT {_RUN_COLUMNS} {_RUN_TABLES}"
# A run without a delivery has its own id in place of the delivery's.
RUN_AND_PAYLOAD_QUERY: Final = f"""
    SELECT {_RUN_COLUMNS}, payloads.body,
        (SELECT failures_in_row > 0 FROM automations WHERE id = runs.automation_id) AS has_failures_in_row
    {_RUN_TABLES}
    LEFT JOIN payloads ON payloads.delivery_id = runs.delivery_id
"""
"""Like `RUN_QUERY`, with the payload as `body`. `body` is NULL without a payload, or if retention has pruned it."""


def run_by_key(tx: Transaction, key: RunKey, *, factory: FactoryId | None = None) -> Run | None:
    """The run; None if there is none, or if it belongs to another factory than `factory`."""
    row = tx.one(RUN_QUERY + "WHERE runs.id = :id", id=key)
    if row is None or (factory is not None and row["factory_id"] != factory):
        return None
    return run_from_row(row)


def runs_by_keys(tx: Transaction, keys: Sequence[RunKey]) -> list[Run]:
    """These runs, oldest first. Keys that no run has are omitted."""
    if not keys:
        return []
    rows = tx.all(f"{RUN_QUERY} WHERE runs.id IN :keys ORDER BY runs.id", keys=list(keys))
    return [run_from_row(row) for row in rows]


def newest_by_automation(tx: Transaction, factory: FactoryId) -> dict[AutomationId, Run]:
    """The newest run of each of the factory's automations that has one."""
    # A loose index scan: for each automation, it skips from one webhook to the next, and reads the last entry of each.
    rows = tx.all(
        """
        WITH RECURSIVE pairs (automation_id, webhook_no) AS (
            SELECT a.id, (SELECT MIN(r.webhook_no) FROM runs r WHERE r.automation_id = a.id)
            FROM automations a
            WHERE a.factory_id = :factory AND a.deleted_at IS NULL
            UNION ALL
            SELECT p.automation_id, (
                SELECT MIN(r.webhook_no) FROM runs r
                WHERE r.automation_id = p.automation_id AND r.webhook_no > p.webhook_no
            )
            FROM pairs p
            WHERE p.webhook_no IS NOT NULL
        )
        SELECT p.automation_id, (
            SELECT r.id FROM runs r
            WHERE (r.automation_id, r.webhook_no) <= (p.automation_id, p.webhook_no)
            ORDER BY r.automation_id DESC, r.webhook_no DESC, r.id DESC
            LIMIT 1
        ) AS id
        FROM pairs p
        WHERE p.webhook_no IS NOT NULL
        """,
        factory=factory,
    )
    newest_keys: dict[str, bytes] = {}
    for row in rows:
        newest_keys[row["automation_id"]] = max(row["id"], newest_keys.get(row["automation_id"], b""))
    return {run.automation_id: run for run in runs_by_keys(tx, [RunKey(key) for key in newest_keys.values()])}


def oldest_runs(
    tx: Transaction,
    *,
    factory: FactoryId,
    webhook: WebhookUid | None = None,
    after: RunKey | None = None,
    limit: int = 1000,
) -> list[Run]:
    """A page of a factory's runs, or of one webhook's, oldest first. `after` is the last run of the previous page."""
    rows = tx.all(
        RUN_QUERY
        + f"""
        WHERE runs.factory_id = :factory AND runs.id > :after
            {"AND webhooks.uid = :webhook" if webhook is not None else ""}
        ORDER BY runs.id
        LIMIT :limit
        """,
        factory=factory,
        after=after or b"",
        limit=limit,
        webhook=webhook,
    )
    return [run_from_row(row) for row in rows]


def counts_by_delivery(
    tx: Transaction, deliveries: Collection[DeliveryKey], *, factory: FactoryId
) -> dict[DeliveryKey, int]:
    """The number of runs of each delivery, including replays. Deliveries without runs are omitted."""
    if not deliveries:
        return {}
    rows = tx.all(
        """
        SELECT delivery_id, COUNT(*) AS runs
        FROM runs
        WHERE delivery_id IN :deliveries AND factory_id = :factory
        GROUP BY delivery_id
        """,
        factory=factory,
        deliveries=list(deliveries),
    )
    return {row["delivery_id"]: row["runs"] for row in rows}


def payload_of(tx: Transaction, run: Run) -> bytes | None:
    """The run's payload, byte for byte; None if it has none, or if retention has pruned it."""
    # A run without a delivery has its own id in place of the delivery's.
    return tx.scalar("SELECT body FROM payloads WHERE delivery_id = :delivery", delivery=run.delivery_key or run.id)


def payload_size(tx: Transaction, run: Run) -> int | None:
    """The size of the run's payload in bytes; None if it has none, or if retention has pruned it."""
    query = "SELECT length(body) FROM payloads WHERE delivery_id = :delivery"
    return tx.scalar(query, delivery=run.delivery_key or run.id)


def _started_by(row: Row) -> StartedBy:
    if row["schedule"] is not None:
        return BySchedule(name=row["schedule"], scheduled_at=row["scheduled_at"], timezone=row["schedule_timezone"])
    if row["started_by"] is not None:
        return ByPerson(name=row["started_by"], has_payload=row["own_payloads"] > 0)
    return from_row(
        ByDelivery,
        row,
        delivery_key=row["delivery_id"],
        event=EventType(row["event"], bool(row["event_signed"])) if row["event"] is not None else None,
    )


def run_from_row(row: Row) -> Run:
    return from_row(
        Run,
        row,
        started_by=_started_by(row),
        state=RunState(row["state"]),
        replay_number=row["replay"],
        options=options_from_stored(row["policy"], row["options"]),
        hold=Hold(row["hold"]) if row["hold"] is not None else None,
    )


def failed_attempts(tx: Transaction, key: RunKey) -> list[FailedAttempt]:
    """The run's failed attempts after which another attempt was scheduled, oldest first."""
    rows = tx.all("SELECT * FROM failed_attempts WHERE run_id = :run ORDER BY attempt", run=key)
    return [from_row(FailedAttempt, row) for row in rows]


def attempt_reports(tx: Transaction, key: RunKey) -> dict[int, AgentReport]:
    """The reports of agents about the ended attempts of the run, by the attempt's number."""
    rows = tx.all("SELECT * FROM attempt_reports WHERE run_id = :run ORDER BY attempt", run=key)
    return {row["attempt"]: from_row(AgentReport, row, is_result_cut=bool(row["is_result_cut"])) for row in rows}
