"""The JSON of triggers of automations."""

from typing import Any


def received(*webhook_uids: str, **filters: Any) -> dict[str, Any]:
    """A trigger by deliveries to these webhooks. `filters` are `event` and `payload`."""
    return {"provider": "webhook", "event": "received", "filter": {"webhook_ids": list(webhook_uids), **filters}}


def cron_fired(name: str, cron: str, **options: Any) -> dict[str, Any]:
    """A trigger by a schedule. `options` are `timezone` and `catch_up`."""
    return {"provider": "schedule", "event": "cron_fired", "schedule": {"name": name, "cron": cron, **options}}
