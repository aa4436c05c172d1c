"""Run policies in the API: creation, changes and errors, and how a policy holds runs."""

from typing import Any

import pytest

from tests.api.client import PROMPT, Api, StockedFactory

POLICY = {
    "concurrency": {"key": "/pr", "limit": 2, "when_busy": "skip"},
    "debounce": {"seconds": 5},
    "priority": "high",
    "max_running": 3,
    "pause_after_failures": 5,
}


def create(api: Api, stocked: StockedFactory, **fields: Any) -> Any:
    trigger = {"provider": "webhook", "event": "received", "filter": {"webhook_ids": [stocked.webhook.webhook.uid]}}
    body = {"name": "with a policy", "prompt": PROMPT, "triggers": [trigger], **fields}
    return api.post("/factories/default/automations", body)


def test_new_policy_is_shown_and_listed(api: Api, stocked: StockedFactory):
    created = create(api, stocked, **POLICY)
    shown = api.get(f"/factories/default/automations/{created.json['automation_id']}").json
    listed = api.get("/factories/default/automations").json["items"]

    assert created.status == 201
    assert shown["concurrency"] == {"key": ["/pr"], "limit": 2, "when_busy": "skip"}
    assert shown["debounce"] == {"seconds": 5, "max_seconds": 50}
    assert shown["priority"] == "high"
    assert (shown["max_running"], shown["pause_after_failures"], shown["pause_reason"]) == (3, 5, None)
    assert [item["priority"] for item in listed if item["name"] == "with a policy"] == ["high"]


def test_fields_of_a_policy_are_changed_and_reset_one_by_one(api: Api, stocked: StockedFactory):
    path = f"/factories/default/automations/{create(api, stocked, **POLICY).json['automation_id']}"

    changed = api.patch(path, {"concurrency": None, "priority": None, "max_running": None}).json
    unchanged = api.patch(path, {"prompt": "Another."}).json

    assert (changed["concurrency"], changed["priority"], changed["max_running"]) == (None, "normal", None)
    assert unchanged["pause_after_failures"] == 5
    assert changed["debounce"] == unchanged["debounce"] == {"seconds": 5, "max_seconds": 50}


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"concurrency": {"limit": 0}}, "/concurrency/limit"),
        ({"concurrency": {"keys": []}}, "/concurrency/keys"),
        ({"debounce": {"seconds": "5"}}, "/debounce/seconds"),
        ({"priority": "urgent"}, "/priority"),
        ({"max_running": 0}, "/max_running"),
        ({"pause_after_failures": "3"}, "/pause_after_failures"),
    ],
)
def test_invalid_policy_is_refused_with_its_pointer(
    api: Api, stocked: StockedFactory, fields: dict[str, Any], pointer: str
):
    refused = create(api, stocked, **fields)

    assert refused.status == 422
    assert refused.json["errors"][0]["pointer"] == pointer


def test_run_of_a_delivery_is_held_until_a_worker_decides(api: Api, stocked: StockedFactory):
    create(api, stocked, concurrency={"key": "/pr"}, priority="high")

    answer = api.world.post(stocked.webhook, b'{"pr": 7}')
    runs = [run for run in api.get("/factories/default/runs").json["items"] if run["automation"] == "with a policy"]

    assert answer.status == 202
    assert [(run["state"], run["hold"], run["replaced_by"]) for run in runs] == [("queued", "new", None)]


def test_limit_of_running_runs_is_set_and_removed_in_a_factory(api: Api, stocked: StockedFactory):
    limited = api.patch("/factories/default", {"max_running": 2}, key=api.admin).json
    unchanged = api.patch("/factories/default", {}, key=api.admin).json
    shown = api.get("/factories/default").json
    unlimited = api.patch("/factories/default", {"max_running": None}, key=api.admin).json
    refused = api.patch("/factories/default", {"max_running": 0}, key=api.admin)

    assert limited == unchanged == shown == {"name": "default", "defined_by_files": False, "max_running": 2}
    assert unlimited["max_running"] is None
    assert (refused.status, refused.json["errors"][0]["pointer"]) == (422, "/max_running")
