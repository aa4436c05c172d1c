"""Adds the runs that schedules and people start, and replays. `store.admission` adds the runs of new deliveries."""

from typing import Any

from hookmill.domain.automation import Automation
from hookmill.domain.ids import DeliveryKey, FactoryId, RunKey
from hookmill.domain.payload import Parsed
from hookmill.domain.run import (
    ByPerson,
    BySchedule,
    Hold,
    RunState,
)
from hookmill.store import dialect
from hookmill.store.database import Transaction
from hookmill.store.notifications import notify_workers


def add(
    tx: Transaction,
    key: RunKey,
    *,
    automation: Automation,
    started_by: BySchedule | ByPerson,
    now: int,
    payload: Parsed | None = None,
    body: bytes | None = None,
) -> None:
    """Add a run without a delivery. Like every run, it starts when the automation's policy allows. If the policy can't
    be read, it is recorded as interrupted.

    `body` is the run's payload as it is stored, and `payload` is the same, parsed.
    """
    policy_key = automation.policy_key(automation.id, payload)
    if body is not None:
        tx.run("INSERT INTO payloads (delivery_id, body) VALUES (:id, :body)", id=key, body=body)
    schedule = started_by if isinstance(started_by, BySchedule) else None
    tx.run(
        """
        INSERT INTO runs (id, delivery_id, webhook_no, factory_id, automation_id, automation_version, state, attempt,
                          created_at, finished_at, reason, priority, policy_key, hold,
                          schedule, schedule_timezone, scheduled_at, started_by)
        VALUES (:id, :id, 0, :factory, :automation, :version, :state, 0,
                :now, :finished_at, :reason, :priority, :policy_key, :hold,
                :schedule, :timezone, :scheduled_at, :started_by)
        """,
        id=key,
        factory=automation.factory_id,
        automation=automation.id,
        version=automation.version,
        **_first_state(automation, now),
        now=now,
        priority=automation.priority.rank,
        policy_key=policy_key,
        hold=int(Hold.NEW) if policy_key is not None else None,
        schedule=schedule.name if schedule is not None else None,
        timezone=schedule.timezone if schedule is not None else None,
        scheduled_at=schedule.scheduled_at if schedule is not None else None,
        started_by=started_by.name if isinstance(started_by, ByPerson) else None,
    )
    notify_workers(tx)


def add_replay(
    tx: Transaction,
    key: RunKey,
    *,
    delivery: DeliveryKey,
    factory: FactoryId,
    automation: Automation,
    policy_key: bytes | None,
    now: int,
) -> None:
    """Add a run that replays a stored delivery. Like every run, it starts when the automation's policy allows.

    Without the delivery, nothing is added. `policy_key` is that of the delivery's payload.
    """
    tx.run(
        f"""
        INSERT INTO runs (id, delivery_id, webhook_no, factory_id, automation_id, automation_version,
                          state, attempt, created_at, finished_at, reason, priority, policy_key, hold, replay)
        SELECT :id, d.id, d.webhook_no, :factory, :automation, :version,
               :state, 0, :now, CAST(:finished_at AS bigint), CAST(:reason AS text),
               :priority, CAST(:policy_key AS {dialect.bytes_type(tx)}), CAST(:hold AS smallint),
               (SELECT COALESCE(MAX(r.replay), 0) + 1 FROM runs r
                WHERE r.delivery_id = d.id AND r.automation_id = :automation)
        FROM deliveries d
        WHERE d.id = :delivery
        """,
        id=key,
        delivery=delivery,
        factory=factory,
        automation=automation.id,
        version=automation.version,
        **_first_state(automation, now),
        priority=automation.priority.rank,
        policy_key=policy_key,
        hold=int(Hold.NEW) if policy_key is not None else None,
        now=now,
    )
    notify_workers(tx)


def _first_state(automation: Automation, now: int) -> dict[str, Any]:
    """The columns that say whether the run is queued, or why it has already ended."""
    reason = automation.reason_against_runs
    if reason is None:
        return {"state": RunState.QUEUED.value, "finished_at": None, "reason": None}
    return {"state": RunState.INTERRUPTED.value, "finished_at": now, "reason": reason}
