"""Schedules through the API."""

from typing import Any

import pytest

from hookmill.domain.moment import parse_iso
from tests.api.client import PROMPT, Api, Stocked

AUTOMATIONS = "/factories/default/automations"
SCHEDULE = {
    "provider": "schedule",
    "event": "cron_fired",
    "schedule": {"name": "nightly", "cron": "0 3 * * *", "timezone": "Europe/Berlin", "catch_up": "none"},
}


def create(api: Api, *triggers: Any, **fields: Any) -> Any:
    return api.post(
        AUTOMATIONS, {"name": "report", "prompt": PROMPT, "triggers": list(triggers or [SCHEDULE]), **fields}
    )


# Schedules


def test_a_schedule_is_created_shown_and_listed_with_its_next_time(api: Api):
    api.world.clock.now = parse_iso("2026-11-23T10:00:00Z")
    created = create(api)
    shown = api.get(f"{AUTOMATIONS}/{created.json['automation_id']}").json
    [listed] = api.get(AUTOMATIONS).json["items"]

    assert created.status == 201
    assert shown["triggers"] == listed["triggers"] == [SCHEDULE]
    assert shown["next_times"] == [{"name": "nightly", "next_at": "2026-11-24T02:00:00.000000Z"}]
    assert listed["next_times"] == shown["next_times"]
    assert shown["warnings"] == []


def test_triggers_that_are_read_can_be_sent_back(api: Api, stocked: Stocked):
    trigger = {"provider": "webhook", "event": "received", "filter": {"webhook_ids": [stocked.webhook.webhook.uid]}}
    path = f"{AUTOMATIONS}/{create(api, SCHEDULE, trigger).json['automation_id']}"

    before = api.get(path).json
    after = api.patch(path, {"triggers": before["triggers"]}).json

    # Schedules follow the other triggers.
    assert before["triggers"] == [trigger, SCHEDULE]
    assert after["version"] == before["version"]


def test_a_disabled_automation_has_no_next_time(api: Api):
    path = f"{AUTOMATIONS}/{create(api, enabled=False).json['automation_id']}"

    assert api.get(path).json["next_times"] == [{"name": "nightly", "next_at": None}]
    assert api.patch(path, {"enabled": True}).json["next_times"][0]["next_at"] is not None


@pytest.mark.parametrize(
    ("schedule", "pointer", "message"),
    [
        (None, "/triggers/0/schedule", "name and cron"),
        ({"name": "n"}, "/triggers/0/schedule/cron", "five fields"),
        ({"name": "n", "cron": "0 0 30 2 *"}, "/triggers/0/schedule/cron", "not a cron expression"),
        ({"name": "n", "cron": "@daily", "timezone": "Mars"}, "/triggers/0/schedule/timezone", "IANA name"),
        ({"name": "n", "cron": "@daily", "catchUp": "none"}, "/triggers/0/schedule", "Did you mean catch_up?"),
    ],
)
def test_an_unusable_schedule_is_refused_at_its_place(api: Api, schedule: Any, pointer: str, message: str):
    refused = create(api, SCHEDULE | {"schedule": schedule})

    assert refused.status == 422
    assert refused.json["errors"][0]["pointer"] == pointer
    assert message in refused.json["errors"][0]["detail"]


@pytest.mark.parametrize(
    ("triggers", "pointer"),
    [
        ([SCHEDULE, SCHEDULE], "/triggers/1/schedule/name"),
        ([SCHEDULE | {"event": "received"}], "/triggers/0/event"),
        ([SCHEDULE | {"filter": {}}], "/triggers/0"),
        ([SCHEDULE | {"provider": "cron"}], "/triggers/0"),
        ([SCHEDULE | {"schedule": {"name": f"s{number}", "cron": "@daily"}} for number in range(21)], "/triggers"),
    ],
)
def test_unusable_triggers_are_refused_at_their_place(api: Api, triggers: list[Any], pointer: str):
    refused = create(api, *triggers)

    assert refused.status == 422
    assert refused.json["errors"][0]["pointer"] == pointer
