"""A stored trigger that this version can't read: it alone starts nothing, people learn of it, and no save loses it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from hookmill.management import WebhookWithSecret
from hookmill.store.webhooks import increment_revisions
from tests.inputs.service import Service

OF_A_LATER_VERSION = {"provider": "calendar", "event": "began", "filter": {"cron": "0 9 * * 1", "weight": 0.1}}


def of(made: WebhookWithSecret, payload: Any) -> dict[str, Any]:
    chosen = {"webhook_ids": [made.webhook.uid], "payload": payload}
    return {"provider": "webhook", "event": "received", "filter": chosen}


class Damaged:
    """An automation with one trigger that can be read, between two that can't."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.good, self.other = service.world.webhook("good"), service.world.webhook("of the unreadable one")
        self.unreadable = [of(self.other, {"a": {"$sounds_like": "b"}}), OF_A_LATER_VERSION]
        self.id = service.world.automation("damaged", self.good, payload={"go": [True]}).id
        self.store(
            f"[{json.dumps(self.unreadable[0])}, {json.dumps(of(self.good, {'go': [True]}))}, "
            f"{json.dumps(self.unreadable[1])}]"
        )

    def store(self, triggers: str) -> None:
        """As another version, or damage, would have left it."""
        with self.service.world.database.write() as tx:
            tx.run(
                "UPDATE automation_versions SET triggers = :text WHERE automation_id = :id", text=triggers, id=self.id
            )
            increment_revisions(tx, self.service.world.may.factory.id, frozenset({self.good.webhook.uid}))

    def stored(self) -> list[Any]:
        """The triggers of the newest version, as they are in the row."""
        with self.service.world.database.read() as tx:
            rows = tx.all(
                "SELECT triggers FROM automation_versions WHERE automation_id = :id ORDER BY version", id=self.id
            )
        return list(json.loads(rows[-1]["triggers"]))

    def listening(self) -> set[str]:
        with self.service.world.database.read() as tx:
            rows = tx.all("SELECT webhook_uid FROM automation_webhooks WHERE automation_id = :id", id=self.id)
        return {row["webhook_uid"] for row in rows}

    def logged(self) -> list[str]:
        """What the log said of it."""
        return [why for where, why in self.service.world.failures if where == f"automation {self.id}"]


@pytest.fixture
def damaged(service: Service) -> Iterator[Damaged]:
    damaged = Damaged(service)
    yield damaged
    world = service.world
    # Nothing else may have failed.
    world.failures = [failure for failure in world.failures if failure[0] != f"automation {damaged.id}"]


def test_unreadable_trigger_leaves_the_others_working(damaged: Damaged):
    world = damaged.service.world

    assert [world.post(damaged.good, b'{"go": true}').status, world.post(damaged.other, b'{"a": "b"}').status] == [
        202
    ] * 2

    assert [run.automation_name for run in world.runs(damaged.good)] == ["damaged"]
    assert world.runs(damaged.other) == []


def test_unreadable_trigger_is_logged_by_the_ingress_with_its_automation(damaged: Damaged):
    damaged.service.world.post(damaged.good, b'{"go": true}')

    [line, *_] = damaged.logged()
    assert line.startswith("It has triggers that can't be read and start no runs. /triggers/0/filter/payload/a/$")
    assert "/triggers/2: the kinds of triggers are" in line


def test_unreadable_trigger_is_shown_wherever_its_automation_is(damaged: Damaged):
    service, place = damaged.service, f"/factories/default/automations/{damaged.id}"

    shown = service.api.get(place).json
    pages = [service.admin.get(f"/f/default/automations/{damaged.id}{part}").body.decode() for part in ("", "/edit")]
    home = service.admin.get("/f/default").body.decode()

    warnings = [warning for warning in shown["warnings"] if "can't be read" in warning]
    assert "/triggers/0/filter/payload/a/$sounds_like: " in warnings[0]
    assert "/triggers/2: the kinds of triggers are" in warnings[1]
    assert len(warnings) == 2
    assert all(each in shown["triggers"] for each in damaged.unreadable)
    assert "can&#39;t be read" in pages[0]
    assert "$sounds_like" in pages[1]
    assert "began" in pages[1]
    assert "2 triggers that can&#39;t be read" in home
    service.must_open()


def test_change_of_something_else_keeps_the_unreadable_trigger(damaged: Damaged):
    service, place = damaged.service, f"/factories/default/automations/{damaged.id}"

    assert service.api.patch(place, {"prompt": "Another."}).json["version"] == 2

    assert sorted(map(json.dumps, damaged.stored())) == sorted(
        map(json.dumps, [*damaged.unreadable, of(damaged.good, {"go": [True]})])
    )
    assert damaged.listening() == {damaged.good.webhook.uid, damaged.other.webhook.uid}


def test_list_of_triggers_that_was_looked_up_cannot_be_saved_without_them(damaged: Damaged):
    service, place = damaged.service, f"/factories/default/automations/{damaged.id}"
    looked_up = service.api.get(place).json["triggers"]

    sent_back = service.api.patch(place, {"triggers": looked_up})
    decided = service.api.patch(place, {"triggers": [of(damaged.good, {"go": [True]})]})

    assert sent_back.status == 422
    assert sent_back.json["errors"][0]["pointer"].startswith("/triggers/")
    assert (decided.status, decided.json["warnings"]) == (200, [])
    assert damaged.stored() == [of(damaged.good, {"go": [True]})]


@pytest.mark.parametrize("text", ["", "not JSON", "{}", "null", '"x"', "[[], 5, null]", "[" * 600])
def test_unreadable_triggers_start_nothing_and_are_reported(damaged: Damaged, text: str):
    service = damaged.service
    damaged.store(text)

    assert service.world.post(damaged.good, b'{"go": true}').status == 202

    assert service.world.runs(damaged.good) == []
    assert "can't be read" in service.api.get(f"/factories/default/automations/{damaged.id}").json["warnings"][0]
    service.must_open()
