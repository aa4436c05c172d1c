"""Creates an installation with the code of an older version, which must be first in PYTHONPATH.

The only argument is the file for the result: the pickled webhooks, each with the automations that its deliveries start.
This file must not use names that the older version lacks.
"""

import pickle
import sys
from pathlib import Path
from typing import Any

from hookmill import app
from hookmill.domain.permission import Role
from hookmill.settings import Settings

SENDERS_WEBHOOKS = 3
HISTORY_WEBHOOKS = 5
POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    "blocked": ("block", {"priority": "high"}),
    "limited": ("block", {"priority": "high", "concurrency": {"limit": 1, "when_busy": "queue"}}),
    "debounced": ("note", {"priority": "high", "debounce": {"seconds": 40, "max_seconds": 80}}),
    "retried": ("fail", {"priority": "high", "retry": {"attempts": 2, "backoff_seconds": 40}}),
}
"""The runner and the policy of an automation, by its name. Its webhook has the same name."""


def main(result: Path) -> None:
    settings = Settings()
    store = app.open_store(settings, create=True)
    try:
        management = app.build_management(settings, store)
        management.factories.set_up()
        result.write_bytes(pickle.dumps(_create(management)))
    finally:
        store.close()


def _create(management: Any) -> dict[str, tuple[Any, list[str]]]:
    may, admin = management.access.operator("default"), management.access.operator_of_team()
    webhooks: dict[str, tuple[Any, list[str]]] = {}
    for name in [f"load-{number}" for number in range(SENDERS_WEBHOOKS)]:
        webhook = management.webhooks.create(may, name)
        triggers = _triggers(webhook, {"urgent": [True]})
        automation = management.automations.create(may, name, prompt="Look.", triggers=triggers, runner="note")
        webhooks[name] = (webhook, [automation.id])
    for name, (runner, policy) in POLICIES.items():
        webhook = management.webhooks.create(may, name)
        automation = management.automations.create(
            may, name, prompt="Look.", triggers=_triggers(webhook, None), runner=runner, policy=policy
        )
        webhooks[name] = (webhook, [automation.id])
    for name in ["backlog", "backlog-noted", *(f"history-{number}" for number in range(HISTORY_WEBHOOKS))]:
        webhook = management.webhooks.create(may, name)
        runner = "note" if name == "backlog-noted" else "package"
        automation = management.automations.create(
            may, name, prompt="Look.", triggers=_triggers(webhook, {"never": [True]}), runner=runner
        )
        webhooks[name] = (webhook, [automation.id])

    schedule = {"provider": "schedule", "event": "cron_fired", "schedule": {"name": "yearly", "cron": "0 0 1 1 *"}}
    management.automations.create(may, "scheduled", prompt="Look.", triggers=[schedule])
    management.automations.create(may, "disabled", prompt="Look.", triggers=[schedule], enabled=False)
    management.automations.change(may, "scheduled", prompt="Look again.")
    management.webhooks.create(may, "rotated")
    management.webhooks.rotate(may, "rotated")
    management.webhooks.create(may, "deleted")
    management.webhooks.delete(may, "deleted")
    management.secrets.create(may, "UNUSED", "x" * 40)
    management.factories.create(admin, "other")
    management.keys.create(admin, "viewer", Role.VIEWER, factory="default")
    management.members.add(admin, "member@example.com", "Member")
    management.members.set_role(admin, "member@example.com", "default", Role.MANAGER)
    management.sessions.link_for(admin, "member@example.com")
    return webhooks


def _triggers(webhook: Any, payload: object) -> list[dict[str, Any]]:
    filter_: dict[str, Any] = {"webhook_ids": [webhook.webhook.uid]}
    if payload is not None:
        filter_["payload"] = payload
    return [{"provider": "webhook", "event": "received", "filter": filter_}]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
