"""Reads and updates automations. Each change except of `enabled` is a new version, so runs keep their instructions."""

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from hookmill.domain.automation import TRIGGERS_PART, Automation, triggers_from_stored
from hookmill.domain.filters import exact_json
from hookmill.domain.ids import AutomationId, FactoryId, RunKey, WebhookUid
from hookmill.domain.run_options import OPTION_FIELDS, RunOptions, options_from_stored
from hookmill.domain.run_policy import RunPolicy
from hookmill.store import schedules, webhooks
from hookmill.store.database import Row, Transaction, from_row

_COLUMNS = """
    a.id, a.factory_id, a.name, a.enabled, a.version, a.created_at, a.updated_at, a.pause_reason, v.prompt, v.runner,
    v.triggers, v.policy, v.options
"""
_FROM = "automations a JOIN automation_versions v ON v.automation_id = a.id AND v.version = a.version"


def add(tx: Transaction, automation: Automation) -> None:
    tx.run(
        """
        INSERT INTO automations (id, factory_id, name, enabled, version, created_at, updated_at, max_running,
                                 pause_after_failures)
        VALUES (:id, :factory, :name, :enabled, :version, :created_at, :updated_at, :max_running, :pause_after_failures)
        """,
        **_values(automation),
    )
    _store_version(tx, automation, automation.selected_webhook_uids())


def save(tx: Transaction, before: Automation, after: Automation) -> None:
    """Store `after` as the automation's next version. Processes reload the webhooks that either version selects."""
    tx.run(
        """
        UPDATE automations
        SET name = :name, enabled = :enabled, version = :version, updated_at = :updated_at,
            max_running = :max_running, pause_after_failures = :pause_after_failures, failures_in_row = 0,
            pause_reason = CASE WHEN :enabled THEN NULL ELSE pause_reason END
        WHERE id = :id
        """,
        **_values(after),
    )
    tx.run("DELETE FROM automation_webhooks WHERE automation_id = :id", id=after.id)
    _store_version(tx, after, before.selected_webhook_uids() | after.selected_webhook_uids())


def set_enabled(tx: Transaction, automation: Automation, enabled: bool, now: int) -> None:
    """Enable or disable the automation, without a new version. Its failures in a row are counted from 0 again."""
    tx.run(
        """
        UPDATE automations
        SET enabled = :enabled, updated_at = :now, failures_in_row = 0, pause_reason = NULL
        WHERE id = :id
        """,
        id=automation.id,
        enabled=enabled,
        now=now,
    )
    schedules.store(tx, structs.replace(automation, enabled=enabled), now)
    webhooks.increment_revisions(tx, automation.factory_id, automation.selected_webhook_uids())


def record_result(tx: Transaction, run: RunKey, *, failed: bool) -> None:
    """Update the automation's number of consecutive failures after a run: a failure adds one, a success resets it.

    Call it in the transaction that ends the run. If the automation's policy has `pause_after_failures`, call
    `store.pauses.pause_failing` after the transaction.
    """
    tx.run(
        """
        UPDATE automations
        SET failures_in_row = CASE WHEN :failed THEN failures_in_row + 1 ELSE 0 END
        WHERE id = (SELECT automation_id FROM runs WHERE id = :run) AND (:failed OR failures_in_row > 0)
        """,
        run=run,
        failed=failed,
    )


def failing(tx: Transaction, *, automation: AutomationId | None = None) -> list[Automation]:
    """Up to 100 enabled automations whose failures in a row have reached the limit of their policy.

    With `automation`, only this automation.
    """
    rows = tx.all(
        f"""
        SELECT {_COLUMNS}
        FROM {_FROM}
        WHERE a.pause_after_failures IS NOT NULL AND a.failures_in_row >= a.pause_after_failures AND a.enabled
            AND a.deleted_at IS NULL {"AND a.id = :automation" if automation is not None else ""}
        ORDER BY a.id
        LIMIT 100
        """,
        automation=automation,
    )
    return [_automation(row) for row in rows]


def pause(tx: Transaction, automation: Automation, reason: str, now: int) -> None:
    """Disable the automation because of its failures."""
    set_enabled(tx, automation, False, now)
    tx.run("UPDATE automations SET pause_reason = :reason WHERE id = :id", id=automation.id, reason=reason)


def delete(tx: Transaction, automation: Automation, now: int) -> None:
    tx.run(
        "UPDATE automations SET deleted_at = :now, enabled = :off WHERE id = :id", id=automation.id, now=now, off=False
    )
    tx.run("DELETE FROM automation_webhooks WHERE automation_id = :id", id=automation.id)
    schedules.delete(tx, automation.id)
    webhooks.increment_revisions(tx, automation.factory_id, automation.selected_webhook_uids())


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


def count_live(tx: Transaction, factory: FactoryId) -> int:
    """The number of the factory's automations that are not deleted."""
    query = "SELECT COUNT(*) FROM automations WHERE factory_id = :factory AND deleted_at IS NULL"
    return tx.integer(query, factory=factory)


def _automation(row: Row) -> Automation:
    triggers, options = triggers_from_stored(row["triggers"]), options_from_stored(row["policy"], row["options"])
    return from_row(
        Automation,
        row,
        **{name: getattr(options, name) for name in RunOptions.__struct_fields__},
        enabled=bool(row["enabled"]),
        triggers=triggers if not isinstance(triggers, str) else (),
        unreadable_parts=({TRIGGERS_PART: triggers} if isinstance(triggers, str) else {}) | options.unreadable_parts,
    )


def _values(automation: Automation) -> dict[str, Any]:
    """The values of the columns of `automations` and `automation_versions`."""
    assert not automation.unreadable_parts
    fields = automation.spec.as_json()
    return {
        "id": automation.id,
        "factory": automation.factory_id,
        "name": automation.name,
        "enabled": automation.enabled,
        "version": automation.version,
        "created_at": automation.created_at,
        "updated_at": automation.updated_at,
        "max_running": automation.max_running,
        "pause_after_failures": automation.pause_after_failures,
        "prompt": automation.prompt,
        "runner": automation.runner,
        "triggers": exact_json(fields["triggers"]),
        "policy": exact_json({name: fields[name] for name in RunPolicy.__struct_fields__ if name in fields}),
        "options": exact_json({name: fields[name] for name in OPTION_FIELDS if name in fields}),
    }


def _store_version(tx: Transaction, automation: Automation, changed_uids: frozenset[WebhookUid]) -> None:
    """Store this version, and what it selects. Processes reload the webhooks with `changed_uids`."""
    tx.run(
        """
        INSERT INTO automation_versions (automation_id, version, name, prompt, runner, triggers, policy, options,
                                         created_at)
        VALUES (:id, :version, :name, :prompt, :runner, :triggers, :policy, :options, :updated_at)
        """,
        **_values(automation),
    )
    for uid in sorted(automation.selected_webhook_uids()):
        tx.run(
            "INSERT INTO automation_webhooks (webhook_uid, automation_id) VALUES (:uid, :automation)",
            uid=uid,
            automation=automation.id,
        )
    schedules.store(tx, automation, automation.updated_at)
    webhooks.increment_revisions(tx, automation.factory_id, changed_uids)
