"""Reads and updates automations. Each change is stored as a new version, so that every run keeps its instructions."""

import json
from collections.abc import Sequence

from hookmill.domain import payload
from hookmill.domain.automation import Automation, Trigger, UnreadableTrigger, triggers_from_stored
from hookmill.domain.ids import AutomationId, FactoryId, WebhookUid
from hookmill.domain.run_policy import stored_policy
from hookmill.store import webhooks
from hookmill.store.database import Row, Transaction

_COLUMNS = """
    a.id, a.factory_id, a.name, a.enabled, a.version, a.created_at, a.updated_at, v.prompt, v.runner, v.triggers,
    v.policy
"""
_FROM = "automations a JOIN automation_versions v ON v.automation_id = a.id AND v.version = a.version"


def add(tx: Transaction, automation: Automation) -> None:
    tx.run(
        """
        INSERT INTO automations (id, factory_id, name, enabled, version, created_at, updated_at)
        VALUES (:id, :factory, :name, :enabled, :version, :created_at, :updated_at)
        """,
        id=automation.id,
        factory=automation.factory_id,
        name=automation.name,
        enabled=automation.enabled,
        version=automation.version,
        created_at=automation.created_at,
        updated_at=automation.updated_at,
    )
    _store_version(tx, automation)
    _store_selection(tx, automation.id, automation.selected_webhooks())
    webhooks.raise_revisions(tx, automation.factory_id, automation.selected_webhooks())


def save(tx: Transaction, before: Automation, after: Automation) -> None:
    """Store `after` as the automation's next version. Processes reload the webhooks of both versions."""
    tx.run(
        """
        UPDATE automations
        SET name = :name, enabled = :enabled, version = :version, updated_at = :updated_at
        WHERE id = :id
        """,
        id=after.id,
        name=after.name,
        enabled=after.enabled,
        version=after.version,
        updated_at=after.updated_at,
    )
    _store_version(tx, after)
    tx.run("DELETE FROM automation_webhooks WHERE automation_id = :id", id=after.id)
    _store_selection(tx, after.id, after.selected_webhooks())
    webhooks.raise_revisions(tx, after.factory_id, before.selected_webhooks() | after.selected_webhooks())


def set_enabled(tx: Transaction, automation: Automation, enabled: bool, now: int) -> None:
    tx.run(
        "UPDATE automations SET enabled = :enabled, updated_at = :now WHERE id = :id",
        id=automation.id,
        enabled=enabled,
        now=now,
    )
    webhooks.raise_revisions(tx, automation.factory_id, automation.selected_webhooks())


def delete(tx: Transaction, automation: Automation, now: int) -> None:
    tx.run(
        "UPDATE automations SET deleted_at = :now, enabled = :off WHERE id = :id", id=automation.id, now=now, off=False
    )
    tx.run("DELETE FROM automation_webhooks WHERE automation_id = :id", id=automation.id)
    webhooks.raise_revisions(tx, automation.factory_id, automation.selected_webhooks())


def live_by_id(tx: Transaction, automation: AutomationId) -> Automation | None:
    row = tx.one(f"SELECT {_COLUMNS} FROM {_FROM} WHERE a.id = :id AND a.deleted_at IS NULL", id=automation)
    return _automation(row) if row else None


def live_by_name(tx: Transaction, factory: FactoryId, name: str) -> Automation | None:
    row = tx.one(
        f"SELECT {_COLUMNS} FROM {_FROM} WHERE a.factory_id = :factory AND a.name = :name AND a.deleted_at IS NULL",
        factory=factory,
        name=name,
    )
    return _automation(row) if row else None


def in_factory(tx: Transaction, factory: FactoryId) -> Sequence[Automation]:
    rows = tx.all(
        f"SELECT {_COLUMNS} FROM {_FROM} WHERE a.factory_id = :factory AND a.deleted_at IS NULL ORDER BY a.name",
        factory=factory,
    )
    return [_automation(row) for row in rows]


def names_in(tx: Transaction, factory: FactoryId) -> list[str]:
    rows = tx.all("SELECT name FROM automations WHERE factory_id = :factory AND deleted_at IS NULL", factory=factory)
    return [row["name"] for row in rows]


def parsed_triggers(stored: str) -> tuple[tuple[Trigger, ...], tuple[UnreadableTrigger, ...]]:
    """The triggers, and those that this version can't read. An unreadable trigger matches no delivery."""
    # The parser of payloads, so that numbers in filters are as exact as numbers in payloads.
    parsed = payload.parse(stored.encode("utf-8", "surrogatepass"))
    if isinstance(parsed, payload.NotJson):
        return (), (UnreadableTrigger(source=stored, reason=parsed.reason),)
    return triggers_from_stored(parsed.value)


def _automation(row: Row) -> Automation:
    triggers, unreadable = parsed_triggers(row["triggers"])
    return Automation(
        id=AutomationId(row["id"]),
        factory_id=FactoryId(row["factory_id"]),
        name=row["name"],
        enabled=bool(row["enabled"]),
        version=row["version"],
        prompt=row["prompt"],
        runner=row["runner"],
        triggers=triggers,
        unreadable=unreadable,
        policy=stored_policy(row["policy"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def _store_version(tx: Transaction, automation: Automation) -> None:
    triggers = f"[{', '.join(trigger.as_text() for trigger in automation.all_triggers)}]"
    tx.run(
        """
        INSERT INTO automation_versions (automation_id, version, name, prompt, runner, triggers, policy, created_at)
        VALUES (:id, :version, :name, :prompt, :runner, :triggers, :policy, :now)
        """,
        id=automation.id,
        version=automation.version,
        name=automation.name,
        prompt=automation.prompt,
        runner=automation.runner,
        triggers=triggers,
        policy=json.dumps(automation.policy.as_json()),
        now=automation.updated_at,
    )


def _store_selection(tx: Transaction, automation: AutomationId, uids: frozenset[WebhookUid]) -> None:
    for uid in sorted(uids):
        tx.run(
            "INSERT INTO automation_webhooks (webhook_uid, automation_id) VALUES (:uid, :automation)",
            uid=uid,
            automation=automation,
        )
