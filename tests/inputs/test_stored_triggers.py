"""A stored trigger that this version can't read starts no runs. It is reported, and changes of other fields keep it.

The other triggers of its automation still start runs.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from hookmill.management import WebhookWithSecret
from hookmill.store.webhooks import increment_revisions
from tests.inputs.service import InProcessService

TRIGGER_OF_LATER_VERSION = {"provider": "calendar", "event": "began", "filter": {"cron": "0 9 * * 1", "weight": 0.1}}


def webhook_trigger(webhook: WebhookWithSecret, payload: Any) -> dict[str, Any]:
    filter_ = {"webhook_ids": [webhook.webhook.uid], "payload": payload}
    return {"provider": "webhook", "event": "received", "filter": filter_}


class DamagedAutomation:
    """An automation with three triggers. Only the second one can be read."""

    def __init__(self, service: InProcessService) -> None:
        self.service = service
        self.readable_webhook = service.world.webhook("of the readable trigger")
        self.unreadable_webhook = service.world.webhook("of an unreadable trigger")
        self.readable = webhook_trigger(self.readable_webhook, {"go": [True]})
        self.unreadable = [
            webhook_trigger(self.unreadable_webhook, {"a": {"$sounds_like": "b"}}),
            TRIGGER_OF_LATER_VERSION,
        ]
        self.id = service.world.automation("damaged", self.readable_webhook, payload={"go": [True]}).id
        self.store_triggers(json.dumps([self.unreadable[0], self.readable, self.unreadable[1]]))

    def store_triggers(self, text: str) -> None:
        """Replace the stored triggers by this text, as another version or a disk fault would."""
        with self.service.world.database.write() as tx:
            tx.run("UPDATE automation_versions SET triggers = :text WHERE automation_id = :id", text=text, id=self.id)
            increment_revisions(tx, self.service.world.may.factory.id, frozenset({self.readable_webhook.webhook.uid}))

    def stored_triggers(self) -> list[Any]:
        """The triggers in the row of the newest version."""
        with self.service.world.database.read() as tx:
            rows = tx.all(
                "SELECT triggers FROM automation_versions WHERE automation_id = :id ORDER BY version", id=self.id
            )
        return list(json.loads(rows[-1]["triggers"]))

    def selected_webhooks(self) -> set[str]:
        with self.service.world.database.read() as tx:
            rows = tx.all("SELECT webhook_uid FROM automation_webhooks WHERE automation_id = :id", id=self.id)
        return {row["webhook_uid"] for row in rows}

    def reported_failures(self) -> list[str]:
        """The texts of the failures that the service reported for this automation."""
        return [text for part, text in self.service.world.failures if part == f"automation {self.id}"]


@pytest.fixture
def damaged(service: InProcessService) -> Iterator[DamagedAutomation]:
    damaged = DamagedAutomation(service)
    yield damaged
    world = service.world
    # `world_for_test` then requires that no other failure was reported.
    world.failures = [failure for failure in world.failures if failure[0] != f"automation {damaged.id}"]


def test_readable_trigger_beside_unreadable_ones_starts_runs(damaged: DamagedAutomation):
    world = damaged.service.world

    assert world.post(damaged.readable_webhook, b'{"go": true}').status == 202
    assert world.post(damaged.unreadable_webhook, b'{"a": "b"}').status == 202

    assert [run.automation_name for run in world.runs(damaged.readable_webhook)] == ["damaged"]
    assert world.runs(damaged.unreadable_webhook) == []


def test_ingress_reports_unreadable_triggers_with_their_automation(damaged: DamagedAutomation):
    damaged.service.world.post(damaged.readable_webhook, b'{"go": true}')

    [text, *_] = damaged.reported_failures()
    assert text.startswith("It has triggers that can't be read and start no runs. /triggers/0/filter/payload/a/$")
    assert "/triggers/2: the kinds of triggers are" in text


def test_api_and_pages_show_unreadable_triggers(damaged: DamagedAutomation):
    service, path = damaged.service, f"/factories/default/automations/{damaged.id}"

    automation = service.api.get(path).json
    page = service.admin.get(f"/f/default/automations/{damaged.id}").body.decode()
    editor = service.admin.get(f"/f/default/automations/{damaged.id}/edit").body.decode()
    home_page = service.admin.get("/f/default").body.decode()

    warnings = [warning for warning in automation["warnings"] if "can't be read" in warning]
    assert "/triggers/0/filter/payload/a/$sounds_like: " in warnings[0]
    assert "/triggers/2: the kinds of triggers are" in warnings[1]
    assert len(warnings) == 2
    assert all(trigger in automation["triggers"] for trigger in damaged.unreadable)
    assert "can&#39;t be read" in page
    assert "$sounds_like" in editor
    assert "began" in editor
    assert "2 triggers that can&#39;t be read" in home_page
    service.require_success_everywhere()


def test_change_of_the_prompt_keeps_unreadable_triggers(damaged: DamagedAutomation):
    service, path = damaged.service, f"/factories/default/automations/{damaged.id}"

    assert service.api.patch(path, {"prompt": "Another."}).json["version"] == 2

    assert sorted(map(json.dumps, damaged.stored_triggers())) == sorted(
        map(json.dumps, [*damaged.unreadable, damaged.readable])
    )
    assert damaged.selected_webhooks() == {damaged.readable_webhook.webhook.uid, damaged.unreadable_webhook.webhook.uid}


def test_unreadable_triggers_can_be_replaced_but_not_saved_again(damaged: DamagedAutomation):
    service, path = damaged.service, f"/factories/default/automations/{damaged.id}"
    triggers = service.api.get(path).json["triggers"]

    unchanged = service.api.patch(path, {"triggers": triggers})
    replaced = service.api.patch(path, {"triggers": [damaged.readable]})

    assert unchanged.status == 422
    assert unchanged.json["errors"][0]["pointer"].startswith("/triggers/")
    assert (replaced.status, replaced.json["warnings"]) == (200, [])
    assert damaged.stored_triggers() == [damaged.readable]


@pytest.mark.parametrize("text", ["", "not JSON", "{}", "null", '"x"', "[[], 5, null]", "[" * 600])
def test_damaged_triggers_start_no_runs_and_are_reported(damaged: DamagedAutomation, text: str):
    service = damaged.service
    damaged.store_triggers(text)

    assert service.world.post(damaged.readable_webhook, b'{"go": true}').status == 202

    assert service.world.runs(damaged.readable_webhook) == []
    assert "can't be read" in service.api.get(f"/factories/default/automations/{damaged.id}").json["warnings"][0]
    service.require_success_everywhere()
