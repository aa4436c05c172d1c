"""A stored part of an automation that can't be read stops the automation, and says so.

No run starts without its limits.
"""

import json
import os

import pytest

from hookmill import definitions
from hookmill.domain.errors import Conflict
from hookmill.domain.ids import RunKey, time_ordered_key
from hookmill.domain.run import RunState
from hookmill.domain.run_options import OPTION_FIELDS
from hookmill.domain.run_policy import RunPolicy
from hookmill.store.firing import fire_due
from hookmill.store.runs import held
from hookmill.store.webhooks import increment_revisions
from tests.inputs.service import InProcessService
from tests.support.automations import automation_created
from tests.support.triggers import cron_fired, received

UNREADABLE = {
    "policy": '{"max_running": 3, "concurrency": {"limit": 1, "per": "hour"}}',
    "options": '{"fields": {"pr": "/number"}, "workspace": {"repository": "app", "lfs": true}}',
    "triggers": '[{"provider": "calendar", "event": "began", "filter": {"weight": 0.1}}]',
}
SCHEDULE = cron_fired("hourly", "@hourly")


class DamagedAutomation:
    """An automation with a concurrency limit, which a webhook and a schedule start."""

    def __init__(self, service: InProcessService):
        self.service, self.world = service, service.world
        self.webhook = self.world.webhook("damaged")
        trigger = received(self.webhook.webhook.uid)
        self.triggers = [trigger, SCHEDULE]
        self.id = automation_created(
            self.world.management,
            self.world.may,
            "damaged",
            prompt="Look.",
            triggers=self.triggers,
            policy={"concurrency": {"limit": 1}, "max_running": 3},
        ).id
        self.path = f"/factories/default/automations/{self.id}"

    def store(self, column: str, text: str):
        """Replace a stored part by this text, as a disk fault would."""
        with self.world.database.write() as tx:
            tx.run(f"UPDATE automation_versions SET {column} = :text WHERE automation_id = :id", text=text, id=self.id)
            increment_revisions(tx, self.world.may.factory.id, frozenset({self.webhook.webhook.uid}))

    def stored(self, column: str) -> str:
        with self.world.database.read() as tx:
            rows = tx.all(
                f"SELECT {column} FROM automation_versions WHERE automation_id = :id ORDER BY version", id=self.id
            )
        return str(rows[-1][column])

    def fire_schedule(self):
        self.world.clock.advance(seconds=3_700)
        with self.world.database.write() as tx:
            fire_due(tx, self.world.clock(), lambda: RunKey(time_ordered_key(self.world.clock(), os.urandom(8))))

    def runs(self) -> list[tuple[RunState, str | None]]:
        runs = self.world.management.runs.newest(self.world.may, automation=self.id, limit=10)
        return [(run.state, run.reason) for run in runs]

    def warnings(self) -> list[str]:
        return list(self.service.api.get(self.path).json["warnings"])

    def failures(self) -> list[str]:
        """The failures that the service reported for this automation."""
        return [text for part, text in self.world.failures if part == f"automation {self.id}"]


@pytest.fixture
def damaged(service):
    damaged = DamagedAutomation(service)
    yield damaged
    # `world_for_test` then requires that no other failure was reported.
    damaged.world.failures = [failure for failure in damaged.world.failures if failure[0] != f"automation {damaged.id}"]


@pytest.mark.parametrize("text", [UNREADABLE["policy"], '{"per_hour": 5}', "[]", "", "[" * 5_000])
def test_runs_are_recorded_as_interrupted_if_the_policy_cannot_be_read(damaged, text):
    damaged.store("policy", text)
    world = damaged.world

    answer = world.post(damaged.webhook, b"{}")
    assert answer.status == 202
    world.management.automations.start_run(world.may, damaged.id)
    world.management.log.replay(world.may, answer.delivery_id)
    damaged.fire_schedule()

    runs = damaged.runs()
    assert [state for state, _ in runs] == [RunState.INTERRUPTED] * 4
    assert all("its stored run policy can't be read: " in (reason or "") for _, reason in runs)
    assert "its stored run policy can't be read: " in damaged.failures()[0]
    [warning] = damaged.warnings()
    assert warning.startswith("No run starts, because its stored run policy can't be read: ")


def test_held_run_does_not_start_without_a_limit_that_cannot_be_read(damaged):
    world = damaged.world
    world.post(damaged.webhook, b"{}")
    damaged.store("policy", UNREADABLE["policy"])

    with world.database.write() as tx:
        held.decide(tx, world.clock())

    [(state, reason)] = damaged.runs()
    assert state is RunState.INTERRUPTED
    assert "Unknown field 'per'" in (reason or "")


@pytest.mark.parametrize(
    "text", [UNREADABLE["triggers"], "", "not JSON", "{}", "null", '"x"', "[]", "[[], 5, null]", "[" * 600]
)
def test_deliveries_are_recorded_without_runs_if_the_triggers_cannot_be_read(damaged, text):
    other = damaged.world.automation("other", damaged.webhook)
    damaged.store("triggers", text)

    assert damaged.world.post(damaged.webhook, b"{}").status == 202
    damaged.fire_schedule()

    assert damaged.runs() == []
    assert [run.automation_id for run in damaged.world.runs(damaged.webhook)] == [other.id]
    assert damaged.failures()[0].startswith("It starts no runs, because its stored triggers can't be read: ")
    [warning] = damaged.warnings()
    assert warning.startswith("No run starts, because its stored triggers can't be read: ")


@pytest.mark.parametrize("part", UNREADABLE)
def test_every_page_works_and_says_what_cannot_be_read(damaged, part):
    damaged.store(part, UNREADABLE[part])
    service = damaged.service

    service.path_values["automation"] = damaged.id
    service.require_success_everywhere("{automation}")
    # Files can't describe it.
    service.require_success_everywhere(except_for=["/factories/default/definitions"])
    for path in ("/f/default", f"/f/default/automations/{damaged.id}"):
        assert "can&#39;t be read" in service.admin.get(path).body.decode()


@pytest.mark.parametrize("part", UNREADABLE)
def test_change_is_refused_until_it_replaces_what_cannot_be_read(damaged, part):
    damaged.store(part, UNREADABLE[part])
    replacements = {
        "policy": dict.fromkeys(RunPolicy.__struct_fields__) | {"concurrency": {"limit": 2}},
        "options": dict.fromkeys(OPTION_FIELDS),
        "triggers": {"triggers": damaged.triggers},
    }

    refused = [
        damaged.service.api.patch(damaged.path, changes).status
        for changes in ({"prompt": "Look twice."}, {"priority": "high"}, {"fields": {"a": "/a"}})
    ]
    unchanged = damaged.stored(part)
    answer = damaged.service.api.patch(damaged.path, replacements[part])

    assert refused == [422] * 3
    assert unchanged == UNREADABLE[part]
    assert (answer.status, answer.json["warnings"]) == (200, [])
    assert damaged.world.post(damaged.webhook, b"{}").status == 202
    damaged.fire_schedule()
    assert damaged.runs() == [(RunState.QUEUED, None)] * 2


@pytest.mark.parametrize("part", UNREADABLE)
def test_form_of_the_editor_drops_no_limit_that_cannot_be_read(damaged, part):
    damaged.store(part, UNREADABLE[part])
    form = {"name": "damaged", "prompt": "Again.", "runner": "package", "triggers": "[]", "version": "1"}

    answer = damaged.service.admin.post(f"/f/default/automations/{damaged.id}/edit", form)

    assert answer.status == 422
    assert damaged.stored(part) == UNREADABLE[part]


@pytest.mark.parametrize("part", UNREADABLE)
def test_export_refuses_what_cannot_be_read(damaged, part):
    damaged.store(part, UNREADABLE[part])

    with pytest.raises(Conflict, match=r"can't be read\. Replace all of it"):
        definitions.export(damaged.world.management, damaged.world.may)


@pytest.mark.parametrize("part", UNREADABLE)
def test_disabled_automation_stays_as_it_is_stored(damaged, part):
    damaged.store(part, UNREADABLE[part])

    for enabled in (False, True):
        damaged.world.management.automations.set_enabled(damaged.world.may, damaged.id, enabled)

    assert damaged.stored(part) == UNREADABLE[part]
    assert json.loads(damaged.stored("triggers" if part != "triggers" else "policy"))
    with damaged.world.database.read() as tx:
        assert len(tx.all("SELECT name FROM schedules")) == 1
