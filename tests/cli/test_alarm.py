"""`hookmill alarm`."""

import re

import pytest

from tests.cli.conftest import START_US

HOUR = 3_600_000_000


def test_list_shows_the_alarms_of_a_factory_newest_first(log, webhook, hookmill):
    resolved = log.add_alarm("default", webhook["uid"], resolved_at=START_US + HOUR)
    opened = log.add_alarm("default", webhook["uid"], at=START_US + 2 * HOUR)
    log.add_alarm(None, "disk@here")

    header, *rows = hookmill("alarm", "list").out.splitlines()
    only_open = hookmill("alarm", "list", "--open", "--json").json["items"]

    assert header.split() == ["RAISED", "(UTC)", "STATE", "KIND", "SUBJECT", "ID"]
    assert [row.split() for row in rows] == [
        ["2026-11-21", "11:12:36", "open", "authentication_failing", "source", opened],
        ["2026-11-21", "09:12:36", "resolved", "authentication_failing", "source", resolved],
    ]
    assert [alarm["id"] for alarm in only_open] == [opened]


def test_alarm_in_json_says_what_is_wrong_and_what_to_do(log, webhook, hookmill):
    alarm_id = log.add_alarm("default", webhook["uid"])

    alarm = hookmill("alarm", "show", alarm_id, "--json").json
    shown = hookmill("alarm", "show", alarm_id).out

    assert alarm.pop("action").startswith("Look up the reason in the delivery log: hookmill delivery list")
    assert alarm == {
        "id": alarm_id,
        "kind": "authentication_failing",
        "state": "open",
        "scope": "webhook",
        "subject": "source",
        "subject_id": webhook["uid"],
        "title": "Authentication fails",
        "summary": "Something is wrong.",
        "raised_at": "2026-11-21T09:12:36.000000Z",
        "resolved_at": None,
        "snoozed_until": None,
    }
    assert "What to do  Look up the reason in the delivery log: " in " ".join(shown.split()).replace(
        "do Look", "do  Look"
    )


def test_alarms_of_the_installation_have_an_option(log, webhook, hookmill):
    alarm_id = log.add_alarm(None, "disk@here")

    listed = hookmill("alarm", "list", "--installation", "--json").json["items"]
    snoozed = hookmill("alarm", "snooze", alarm_id, "--hours", "1", "--installation", "--json").json

    assert [alarm["id"] for alarm in listed] == [alarm_id]
    assert (snoozed["state"], snoozed["scope"]) == ("snoozed", "installation")
    assert hookmill("alarm", "list").out == "There are no alarms.\n"
    assert "has no alarm" in hookmill("alarm", "show", alarm_id, exit_code=1).err


def test_alarm_is_snoozed_and_woken(log, webhook, hookmill):
    alarm_id = log.add_alarm("default", webhook["uid"])

    snoozed = hookmill("alarm", "snooze", alarm_id, "--hours", "24").out
    shown = hookmill("alarm", "show", alarm_id).out
    woken = hookmill("alarm", "wake", alarm_id).out

    assert snoozed.startswith(f"Alarm {alarm_id} is snoozed until 20")
    assert re.search(r"snoozed until 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC\n", shown)
    assert re.search(r"Raised +20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC\n", shown)
    assert woken == f"Alarm {alarm_id} is not snoozed.\n"
    assert hookmill("alarm", "show", alarm_id, "--json").json["state"] == "open"
    actions = [entry["action"] for entry in hookmill("audit", "list", "--json").json["items"]]
    assert actions[:2] == ["alarm.wake", "alarm.snooze"]


@pytest.mark.parametrize(
    ("options", "exit_code", "message"),
    [
        ([], 2, "exactly one of --hours, --until"),
        (["--hours", "1", "--until", "2h"], 2, "exactly one of --hours, --until"),
        (["--hours", "0"], 1, "/hours: Use a number of at least 1."),
        (["--hours", "721"], 1, "/hours: Use a number of at most 720."),
        (["--until", "2020-01-01"], 1, "within the next 720 hours"),
    ],
)
def test_unusable_end_of_a_snooze_is_refused(log, webhook, hookmill, options, exit_code, message):
    alarm_id = log.add_alarm("default", webhook["uid"])

    refused = hookmill("alarm", "snooze", alarm_id, *options, exit_code=exit_code)

    assert message in refused.err
    assert hookmill("alarm", "show", alarm_id, "--json").json["state"] == "open"


def test_resolved_alarm_cannot_be_snoozed(log, webhook, hookmill):
    alarm_id = log.add_alarm("default", webhook["uid"], resolved_at=START_US)

    assert "is resolved" in hookmill("alarm", "snooze", alarm_id, "--hours", "1", exit_code=1).err


def test_printed_options_list_the_next_page_of_alarms(log, webhook, hookmill):
    ids = [log.add_alarm("default", f"wh_{number}", at=START_US + number) for number in range(3)]

    last_line = hookmill("alarm", "list", "--open", "--limit", "2").out.splitlines()[-1]
    rest = hookmill("alarm", "list", "--open", "--limit", "2", "--before", ids[1], "--json").json["items"]

    assert last_line.endswith(f"alarm list --open --limit 2 --before {ids[1]}")
    assert [alarm["id"] for alarm in rest] == ids[:1]
    assert "is not an id such as alm_0192f0c1" in hookmill("alarm", "list", "--before", "x", exit_code=1).err
