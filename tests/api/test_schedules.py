"""Schedules in the API, and runs that are started by hand."""

from typing import Any

import pytest

from hookmill.domain.ids import run_key
from hookmill.domain.limits import BODY_BYTES_MAX
from hookmill.domain.moment import parse_iso
from hookmill.domain.permission import Role
from hookmill.store.runs import reading
from tests.api.client import PROMPT, Api
from tests.support.triggers import cron_fired, received

AUTOMATIONS = "/factories/default/automations"
SCHEDULE = cron_fired("nightly", "0 3 * * *", timezone="Europe/Berlin", catch_up="none")


def create(api: Api, *triggers: Any, **fields: Any) -> Any:
    return api.post(
        AUTOMATIONS, {"name": "report", "prompt": PROMPT, "triggers": list(triggers or [SCHEDULE]), **fields}
    )


def stored_payload(api: Api, run_id: str) -> bytes | None:
    with api.world.database.read() as tx:
        run = reading.run_by_key(tx, run_key(run_id))
        assert run is not None
        return reading.payload_of(tx, run)


# Schedules


def test_new_schedule_is_shown_and_listed_with_its_next_time(api):
    api.world.clock.now = parse_iso("2026-11-23T10:00:00Z")
    created = create(api)
    shown = api.get(f"{AUTOMATIONS}/{created.json['automation_id']}").json
    [listed] = api.get(AUTOMATIONS).json["items"]

    assert created.status == 201
    assert shown["triggers"] == listed["triggers"] == [SCHEDULE]
    assert shown["next_times"] == [{"name": "nightly", "next_at": "2026-11-24T02:00:00.000000Z"}]
    assert listed["next_times"] == shown["next_times"]
    assert shown["warnings"] == []


def test_triggers_can_be_sent_back_as_they_were_read(api, stocked):
    trigger = received(stocked.webhook.webhook.uid)
    path = f"{AUTOMATIONS}/{create(api, SCHEDULE, trigger).json['automation_id']}"

    before = api.get(path).json
    after = api.patch(path, {"triggers": before["triggers"]}).json

    assert before["triggers"] == [SCHEDULE, trigger]
    assert after["version"] == before["version"]


def test_disabled_automation_has_no_next_time(api):
    path = f"{AUTOMATIONS}/{create(api, enabled=False).json['automation_id']}"

    assert api.get(path).json["next_times"] == [{"name": "nightly", "next_at": None}]
    assert api.patch(path, {"enabled": True}).json["next_times"][0]["next_at"] is not None


@pytest.mark.parametrize(
    ("changes", "pointer", "message"),
    [
        ({"schedule": None}, "/triggers/0/schedule", "object with name, cron"),
        ({"schedule": {"name": "n", "cron": "@daily", "timezone": "Mars"}}, "/triggers/0/schedule/timezone", "IANA"),
        ({"event": "received"}, "/triggers/0/event", "event must be cron_fired"),
    ],
)
def test_invalid_schedule_is_refused_with_its_pointer(api, changes, pointer, message):
    refused = create(api, SCHEDULE | changes)

    assert refused.status == 422
    assert refused.json["errors"][0]["pointer"] == pointer
    assert message in refused.json["errors"][0]["detail"]


# Runs by hand


def runs_path(created: Any) -> str:
    return f"{AUTOMATIONS}/{created.json['automation_id']}/runs"


def test_run_by_hand_names_the_key_that_started_it(api):
    path = runs_path(create(api))

    started = api.post(path, key=api.key("Ada's script", Role.MANAGER, "default"))
    run = api.get(f"/factories/default/runs/{started.json['run_id']}").json
    [listed] = api.get("/factories/default/runs").json["items"]

    assert started.status == 201
    assert started.headers["location"].endswith(f"/api/v1/factories/default/runs/{run['run_id']}")
    assert (run["state"], run["started_by"], run["person"]) == ("queued", "person", "Ada's script")
    empty_fields = ("delivery_id", "webhook_uid", "schedule", "scheduled_at")
    assert [run[field] for field in empty_fields] == [None] * 4
    assert listed["run_id"] == started.json["run_id"]
    assert stored_payload(api, run["run_id"]) is None
    entries = api.get("/factories/default/audit-log").json["items"]
    [entry] = [each for each in entries if each["action"] == "automation.run"]
    assert (entry["subject"]["name"], entry["details"]) == ("report", {"run": run["run_id"]})


@pytest.mark.parametrize(
    "payload",
    ['{"order": 17,  "n": 1e400}', "[1.0]", '"text"', "false", "0", '{"deep": ' + "[" * 400 + "]" * 400 + "}"],
)
def test_payload_is_stored_byte_for_byte_as_in_the_body(api, payload):
    path = runs_path(create(api))

    started = api.request("POST", path, raw=b'{"payload" : %b }' % payload.encode())

    assert started.status == 201
    assert stored_payload(api, started.json["run_id"]) == payload.encode()


@pytest.mark.parametrize("body", [b"", b"{}", b'{"payload": null}'])
def test_run_without_a_payload_has_none(api, body):
    path = runs_path(create(api))

    started = api.request("POST", path, raw=body)

    assert started.status == 201
    assert stored_payload(api, started.json["run_id"]) is None


def test_payload_has_the_size_limit_of_deliveries(api):
    path = runs_path(create(api))
    largest = "x" * (BODY_BYTES_MAX - 2)

    accepted = api.post(path, {"payload": largest})
    refused = api.post(path, {"payload": largest + "x"})

    assert accepted.status == 201
    assert (refused.status, refused.json["errors"][0]["pointer"]) == (422, "/payload")
    assert "262,145 bytes" in refused.json["detail"]


def test_retry_with_the_same_idempotency_key_starts_one_run(api):
    path = runs_path(create(api))
    key = {"Idempotency-Key": "once"}

    first = api.post(path, {"payload": 1}, headers=key)
    retry = api.post(path, {"payload": 1}, headers=key)

    assert (first.status, retry.status, retry.body) == (201, 201, first.body)
    assert len(api.get("/factories/default/runs").json["items"]) == 1


def test_disabled_automation_is_not_run(api):
    path = runs_path(create(api, enabled=False))

    refused = api.post(path)

    assert refused.status == 409
    assert "is disabled. Enable it first." in refused.json["detail"]
    assert api.get("/factories/default/runs").json["items"] == []


def test_run_policy_applies_to_runs_by_hand(api):
    path = runs_path(create(api, concurrency={"key": "/pr"}, priority="high"))

    holds = [api.post(path, body).json["hold"] for body in (None, {"payload": {"pr": 1}})]

    assert holds == ["new", "new"]
    with api.world.database.read() as tx:
        assert len({bytes(row["policy_key"]) for row in tx.all("SELECT policy_key FROM runs")}) == 2
