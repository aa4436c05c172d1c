"""Reads what the conditions of alarms depend on. Each query reads a limited number of rows for each subject."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hookmill.domain.activity import RATE_LIMITED
from hookmill.domain.delivery import Label
from hookmill.domain.ids import AutomationId, FactoryId, RunKey, WebhookUid
from hookmill.domain.run import Hold
from hookmill.domain.run_policy import Priority
from hookmill.store import dialect, metadata
from hookmill.store.database import Transaction, from_row
from hookmill.store.runs.parts import FACTORIES_IN_BACKLOG, READY

WEBHOOKS_PER_READ: Final = 100
"""On SQLite, no checkpoint can complete during a read transaction, so each reads few webhooks."""
ATTEMPTS_READ: Final = (50, 10_000)
"""So many of the newest attempts are searched for an Accepted one: few at first, because it is usually among them."""
FACTORIES_READ: Final = 1_000
"""In so many factories, runs that wait are searched."""
RUNS_READ: Final = 200
"""So many of the oldest runs of a factory and a priority are read."""
AUTOMATIONS_READ: Final = 1_000
"""The maximum number of automations with failed runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedWebhook:
    """An enabled webhook. Times are in µs since 1970."""

    no: int
    uid: WebhookUid
    name: str
    secret_name: str
    factory_id: FactoryId
    expect_every_seconds: int | None
    expected_from: int
    has_failed_authentications: bool
    rate_limited_minutes_count: int


def enabled_webhooks(
    tx: Transaction, *, after: int, failed_since: int, rate_limited_since: int
) -> Sequence[WatchedWebhook]:
    """Up to `WEBHOOKS_PER_READ` enabled webhooks whose numbers are above `after`.

    `failed_since`: failed authentications count from here. `rate_limited_since`: minutes with deliveries over the rate
    limit count from here.
    """
    # `label <> 1` repeats the condition of the partial index, and the label is an SQL literal. Otherwise, the planner
    # can't use this index.
    rows = tx.all(
        f"""
        SELECT w.no, w.uid, w.name, w.factory_id, w.expect_every, w.created_at, w.expected_from,
            s.name AS secret_name,
            EXISTS (
                SELECT 1 FROM deliveries d
                WHERE d.webhook_no = w.no AND d.label <> 1 AND d.label = {Label.REJECTED_AUTH:d}
                    AND d.received_at > :failed_since
            ) AS has_failed_authentications,
            (
                SELECT COUNT(*) FROM dropped_attempts r
                WHERE r.webhook_no = w.no AND r.minute >= :rate_limited_since AND r.kind = '{RATE_LIMITED}'
            ) AS rate_limited_minutes_count
        FROM webhooks w JOIN secrets s ON s.id = w.secret_id
        WHERE w.no > :after AND w.state = 'enabled'
        ORDER BY w.no
        LIMIT {WEBHOOKS_PER_READ}
        """,
        after=after,
        failed_since=failed_since,
        rate_limited_since=rate_limited_since,
    )
    return [
        from_row(
            WatchedWebhook,
            row,
            expect_every_seconds=row["expect_every"],
            expected_from=row["expected_from"] if row["expected_from"] is not None else row["created_at"],
            has_failed_authentications=bool(row["has_failed_authentications"]),
            rate_limited_minutes_count=int(row["rate_limited_minutes_count"]),
        )
        for row in rows
    ]


def newest_attempts(tx: Transaction, webhook_no: int, at_most: int) -> Sequence[tuple[Label, int]]:
    """The labels and times of the webhook's newest attempts, newest first."""
    rows = tx.all(
        """
        SELECT label, received_at FROM deliveries
        WHERE webhook_no = :webhook
        ORDER BY received_at DESC
        LIMIT :at_most
        """,
        webhook=webhook_no,
        at_most=at_most,
    )
    return [(Label(row["label"]), row["received_at"]) for row in rows]


def has_accepted(tx: Transaction, webhook_no: int, since: int) -> bool | None:
    """Whether the webhook has accepted a delivery since this time in µs since 1970.

    None if there are too many newer attempts to know it. Reads no rows of the log, but only entries of its indexes.
    """
    for at_most in ATTEMPTS_READ:
        newest = tx.one(
            """
            SELECT COUNT(*) AS attempts, MIN(received_at) AS oldest_at
            FROM (
                SELECT received_at FROM deliveries
                WHERE webhook_no = :webhook AND received_at >= :since
                ORDER BY received_at DESC
                LIMIT :at_most
            ) AS newest
            """,
            webhook=webhook_no,
            since=since,
            at_most=at_most,
        )
        if newest is None or not newest["attempts"]:
            return False
        others = sum(
            _count_others(tx, webhook_no, label, newest["oldest_at"], at_most)
            for label in Label
            if label is not Label.ACCEPTED
        )
        if others < newest["attempts"]:
            return True
        if newest["attempts"] < at_most:
            return False
    return None


def _count_others(tx: Transaction, webhook_no: int, label: Label, since: int, at_most: int) -> int:
    """The number of attempts with this label, which is not Accepted; at most `at_most`."""
    return tx.integer(
        f"""
        SELECT COUNT(*)
        FROM (
            SELECT 1 FROM deliveries
            WHERE webhook_no = :webhook AND label <> 1 AND label = {label:d} AND received_at >= :since
            LIMIT :at_most
        ) AS others
        """,
        webhook=webhook_no,
        since=since,
        at_most=at_most,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingAutomation:
    id: AutomationId
    name: str
    factory_id: FactoryId
    pause_reason: str | None
    """Why the service disabled it; None if it did not."""


def failing_automations(tx: Transaction, failures_in_row: int) -> Sequence[FailingAutomation]:
    """The automations with so many failed runs in a row, and those that the service disabled for their failures."""
    rows = tx.all(
        f"""
        SELECT id, name, factory_id, pause_reason FROM automations
        WHERE deleted_at IS NULL AND (failures_in_row >= :failures OR pause_reason IS NOT NULL)
        ORDER BY id
        LIMIT {AUTOMATIONS_READ}
        """,
        failures=failures_in_row,
    )
    return [from_row(FailingAutomation, row) for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverdueRun:
    """A run that was created long ago, and that no worker has claimed."""

    key: RunKey
    automation_id: AutomationId
    has_waited_since_creation: bool
    """False if the run may have begun to wait for a worker later, such as after another run with its key ended."""


def waiting_runs(tx: Transaction, created_before: bytes) -> Sequence[OverdueRun]:
    """The oldest runs that wait for a worker, and whose keys are below this one."""
    condition = f"id < :before ORDER BY id LIMIT {RUNS_READ}"
    columns = "id, automation_id, attempt, policy_key"
    rows = list(
        tx.all(
            f"SELECT {columns} FROM runs WHERE finished_at IS NULL AND hold = {Hold.NEW:d} AND due_at IS NULL AND "
            f"{condition}",
            before=created_before,
        )
    )
    factories = tx.all(
        f"{FACTORIES_IN_BACKLOG} SELECT factory_id FROM backlog WHERE factory_id IS NOT NULL LIMIT {FACTORIES_READ}",
        after="",
    )
    for factory in factories:
        for priority in Priority:
            rows += tx.all(
                f"SELECT {columns} FROM runs WHERE factory_id = :factory AND priority = {priority.rank:d} AND {READY} "
                f"AND {condition}",
                factory=factory["factory_id"],
                before=created_before,
            )
    return [
        OverdueRun(
            key=row["id"],
            automation_id=row["automation_id"],
            has_waited_since_creation=row["attempt"] == 0 and row["policy_key"] is None,
        )
        for row in rows
    ]


def automation_names(
    tx: Transaction, automations: Collection[AutomationId]
) -> Mapping[AutomationId, tuple[str, FactoryId]]:
    """The names and factories of these automations, also of deleted ones."""
    names: dict[AutomationId, tuple[str, FactoryId]] = {}
    ordered = sorted(automations)
    for start in range(0, len(ordered), RUNS_READ):
        ids = ordered[start : start + RUNS_READ]
        rows = tx.all("SELECT id, name, factory_id FROM automations WHERE id IN :ids", ids=ids)
        names |= {row["id"]: (row["name"], row["factory_id"]) for row in rows}
    return names


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTimes:
    """Times that tell whether this host's clock is wrong, in µs since 1970."""

    server_at: int | None
    """The time of the database server; None on SQLite."""
    retention_at: int | None
    """The time that retention has reached; None before its first pass."""


def stored_times(tx: Transaction) -> StoredTimes:
    return StoredTimes(server_at=dialect.server_time(tx), retention_at=metadata.retention_clock(tx))
