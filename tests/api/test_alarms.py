"""The routes of alarms: lists, pages, snoozes, and alarms of the installation."""

import pytest

from tests.support.alarms import add_alarm
from tests.support.world import START_US

FACTORY = "/factories/default"
HOUR = 3_600_000_000


def test_alarms_are_paginated_newest_first_and_filtered(api, stocked):
    factory = api.world.factory.id
    resolved = [
        add_alarm(api.world.database, factory, f"wh_{number}", at=START_US + number, resolved_at=START_US + HOUR)
        for number in range(1, 4)
    ]
    newest_first = [*reversed(resolved), stocked.alarm]

    pages, cursor = [], ""
    while True:
        page = api.get(f"{FACTORY}/alarms?limit=3{cursor}").json
        pages.append([alarm["id"] for alarm in page["items"]])
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"

    assert pages == [newest_first[:3], newest_first[3:]]
    assert [each["id"] for each in api.get(f"{FACTORY}/alarms?open=true").json["items"]] == [stocked.alarm]
    assert [each["id"] for each in api.get(f"{FACTORY}/alarms?open=false").json["items"]] == newest_first[:3]
    assert api.get(f"{FACTORY}/alarms?open=maybe").status == 422


def test_alarm_is_snoozed_for_hours_or_until_a_time_and_woken(api, stocked):
    path = f"{FACTORY}/alarms/{stocked.alarm}"

    for_hours = api.post(f"{path}/snooze", {"hours": 2}).json
    until = api.post(f"{path}/snooze", {"until": "2030-03-18T00:00:00Z"}).json
    woken = api.post(f"{path}/wake").json
    again = api.post(f"{path}/wake").json

    assert (for_hours["state"], for_hours["snoozed_until"]) == ("snoozed", "2030-03-17T19:46:40.000000Z")
    assert until["snoozed_until"] == "2030-03-18T00:00:00.000000Z"
    assert (woken["state"], again) == ("open", woken)
    entries = api.get(f"{FACTORY}/audit-log?limit=3").json["items"]
    assert [entry["action"] for entry in entries] == ["alarm.wake", "alarm.snooze", "alarm.snooze"]
    assert entries[1]["details"] == {"kind": "authentication_failing", "until_at": "2030-03-18T00:00:00.000000Z"}


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, ""),
        ({"hours": 1, "until": "2030-03-18T00:00:00Z"}, ""),
        ({"hours": 0}, "/hours"),
        ({"hours": 721}, "/hours"),
        ({"hours": True}, "/hours"),
        ({"until": "2030-03-17T17:46:40Z"}, "/until"),
        ({"until": "2030-04-16T17:46:41Z"}, "/until"),
        ({"until": "tomorrow"}, "/until"),
    ],
)
def test_unusable_snooze_is_refused_and_changes_nothing(api, stocked, body, pointer):
    path = f"{FACTORY}/alarms/{stocked.alarm}"

    refused = api.post(f"{path}/snooze", body)

    assert (refused.status, [error["pointer"] for error in refused.json["errors"]]) == (422, [pointer])
    assert api.get(path).json["state"] == "open"


def test_resolved_alarm_is_neither_snoozed_nor_woken(api):
    alarm = add_alarm(api.world.database, api.world.factory.id, "wh_1", resolved_at=START_US)

    answers = [api.post(f"{FACTORY}/alarms/{alarm}/snooze", {"hours": 1}), api.post(f"{FACTORY}/alarms/{alarm}/wake")]

    assert [answer.problem for answer in answers] == [(409, "conflict")] * 2


def test_alarms_of_the_installation_are_apart_from_those_of_factories(api, stocked):
    listed = [alarm["id"] for alarm in api.get("/alarms", key=api.admin).json["items"]]
    snoozed = api.post(f"/alarms/{stocked.installation_alarm}/snooze", {"hours": 1}, key=api.admin)

    assert stocked.installation_alarm in listed
    assert stocked.alarm not in listed
    assert (snoozed.json["state"], snoozed.json["scope"]) == ("snoozed", "installation")
    assert api.get(f"{FACTORY}/alarms/{stocked.installation_alarm}").status == 404
    assert api.get(f"/alarms/{stocked.alarm}", key=api.admin).status == 404
