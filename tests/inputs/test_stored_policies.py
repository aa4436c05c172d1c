"""A run policy that this version can't read starts no runs without its limits, and is not dropped in silence."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from hookmill.domain.ids import RunKey, time_ordered_key
from hookmill.domain.run import RunState
from hookmill.domain.run_options import OPTION_FIELDS
from hookmill.domain.run_policy import POLICY_FIELDS
from hookmill.store.firing import fire_due
from hookmill.store.runs import held
from hookmill.store.webhooks import increment_revisions
from tests.inputs.service import InProcessService

POLICY_OF_LATER_VERSION = '{"max_running": 3, "concurrency": {"limit": 1, "per": "hour"}}'
OPTIONS_OF_LATER_VERSION = '{"fields": {"pr": "/number"}, "workspace": {"repository": "app", "lfs": true}}'
SCHEDULE = {"provider": "schedule", "event": "cron_fired", "schedule": {"name": "hourly", "cron": "@hourly"}}


class DamagedAutomation:
    """An automation that a webhook and a schedule start, with a concurrency limit that this version can't read."""

    def __init__(self, service: InProcessService) -> None:
        self.service, self.world = service, service.world
        self.webhook = self.world.webhook("damaged")
        trigger = {
            "provider": "webhook",
            "event": "received",
            "filter": {"webhook_ids": [self.webhook.webhook.uid]},
        }
        self.id = self.world.management.automations.create(
            self.world.may,
            "damaged",
            prompt="Look.",
            triggers=[trigger, SCHEDULE],
            policy={"concurrency": {"limit": 1}, "max_running": 3},
        ).id
        self.path = f"/factories/default/automations/{self.id}"

    def store(self, column: str, text: str) -> None:
        """Replace the stored policy or options by this text, as another version or a disk fault would."""
        with self.world.database.write() as tx:
            tx.run(f"UPDATE automation_versions SET {column} = :text WHERE automation_id = :id", text=text, id=self.id)
            increment_revisions(tx, self.world.may.factory.id, frozenset({self.webhook.webhook.uid}))

    def stored(self) -> tuple[str, str, int | None]:
        """The texts of the newest version, and the limit that workers apply."""
        with self.world.database.read() as tx:
            row = tx.one(
                """
                SELECT v.policy, v.options, a.max_running
                FROM automations a JOIN automation_versions v ON v.automation_id = a.id AND v.version = a.version
                WHERE a.id = :id
                """,
                id=self.id,
            )
        assert row is not None
        return row["policy"], row["options"], row["max_running"]

    def runs(self) -> list[tuple[RunState, str | None]]:
        runs = self.world.management.runs.newest(self.world.may, automation=self.id, limit=10)
        return [(run.state, run.reason) for run in runs]

    def edit_page(self, **changes: str) -> Any:
        """Save the form of the dashboard's editor as it is loaded, with these changes."""
        automation = self.world.management.automations.get(self.world.may, self.id)
        triggers = json.dumps([trigger.as_json() for trigger in automation.all_triggers])
        form = {"name": "damaged", "prompt": "Look.", "runner": "package", "triggers": triggers}
        return self.service.admin.post(
            f"/f/default/automations/{self.id}/edit", {**form, "version": str(automation.version), **changes}
        )


@pytest.fixture
def damaged(service: InProcessService) -> Iterator[DamagedAutomation]:
    damaged = DamagedAutomation(service)
    yield damaged
    # `world_for_test` then requires that no other failure was reported.
    damaged.world.failures = [failure for failure in damaged.world.failures if failure[0] != f"automation {damaged.id}"]


@pytest.mark.parametrize("text", [POLICY_OF_LATER_VERSION, '{"per_hour": 5}', "[]", "", "[" * 5_000])
def test_runs_are_recorded_as_interrupted_if_the_policy_cannot_be_read(damaged: DamagedAutomation, text: str):
    damaged.store("policy", text)
    world = damaged.world

    answer = world.post(damaged.webhook, b"{}")
    assert answer.status == 202
    world.management.automations.start_run(world.may, damaged.id)
    world.management.log.replay(world.may, answer.delivery_id)
    world.clock.advance(seconds=3_700)
    with world.database.write() as tx:
        assert fire_due(tx, world.clock(), lambda: RunKey(time_ordered_key(world.clock(), os.urandom(8)))) == 1

    runs = damaged.runs()
    assert [state for state, _ in runs] == [RunState.INTERRUPTED] * 4
    assert all("the run policy of its automation can't be read: " in (reason or "") for _, reason in runs)
    assert f"automation {damaged.id}" in dict(world.failures)
    [warning] = damaged.service.api.get(damaged.path).json["warnings"]
    assert "Its run policy can't be read" in warning


def test_held_run_does_not_start_without_a_limit_that_cannot_be_read(damaged: DamagedAutomation):
    world = damaged.world
    world.post(damaged.webhook, b"{}")
    damaged.store("policy", POLICY_OF_LATER_VERSION)

    with world.database.write() as tx:
        held.decide(tx, world.clock())

    [(state, reason)] = damaged.runs()
    assert state is RunState.INTERRUPTED
    assert "Unknown field 'per'" in (reason or "")


def test_changes_of_other_fields_keep_what_cannot_be_read(damaged: DamagedAutomation):
    damaged.store("policy", POLICY_OF_LATER_VERSION)
    damaged.store("options", OPTIONS_OF_LATER_VERSION)

    assert damaged.service.api.patch(damaged.path, {"prompt": "Look twice."}).status == 200
    damaged.service.path_values["automation"] = damaged.id
    damaged.service.require_success_everywhere("{automation}")
    assert damaged.edit_page(prompt="Look again.").status == 303
    assert damaged.service.api.patch(damaged.path, {"priority": "high"}).status == 422
    assert damaged.edit_page(prompt="Look again.", priority="high").status == 422
    assert damaged.edit_page(prompt="Look again.", secrets="RUN_TOKEN").status == 422

    assert damaged.stored() == (POLICY_OF_LATER_VERSION, OPTIONS_OF_LATER_VERSION, 3)
    assert damaged.world.management.automations.get(damaged.world.may, damaged.id).prompt == "Look again."


@pytest.mark.parametrize("text", [POLICY_OF_LATER_VERSION, "[]"])
def test_replacing_all_fields_repairs_what_cannot_be_read(damaged: DamagedAutomation, text: str):
    damaged.store("policy", text)
    damaged.store("options", text)

    all_fields = dict.fromkeys((*POLICY_FIELDS, *OPTION_FIELDS)) | {"concurrency": {"limit": 2}}
    answer = damaged.service.api.patch(damaged.path, all_fields)

    assert (answer.status, answer.json["warnings"]) == (200, [])
    assert damaged.world.post(damaged.webhook, b"{}").status == 202
    assert damaged.runs() == [(RunState.QUEUED, None)]
