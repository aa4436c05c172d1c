"""Run policies in the API: creation, changes and errors, and how a policy holds runs."""

from typing import Any

from tests.api.client import PROMPT, Api, StockedFactory
from tests.support.triggers import received


def create(api: Api, stocked: StockedFactory, **fields: Any) -> Any:
    trigger = received(stocked.webhook.webhook.uid)
    body = {"name": "with a policy", "prompt": PROMPT, "triggers": [trigger], **fields}
    return api.post("/factories/default/automations", body)


def test_run_of_a_delivery_is_held_until_a_worker_decides(api, stocked):
    create(api, stocked, concurrency={"key": "/pr"}, priority="high")

    answer = api.world.post(stocked.webhook, b'{"pr": 7}')
    runs = [run for run in api.get("/factories/default/runs").json["items"] if run["automation"] == "with a policy"]

    assert answer.status == 202
    assert [(run["state"], run["hold"], run["replaced_by"]) for run in runs] == [("queued", "new", None)]


def test_limit_of_running_runs_is_set_and_removed_in_a_factory(api, stocked):
    limited = api.patch("/factories/default", {"max_running": 2}, key=api.admin).json
    unchanged = api.patch("/factories/default", {}, key=api.admin).json
    shown = api.get("/factories/default").json
    unlimited = api.patch("/factories/default", {"max_running": None}, key=api.admin).json
    refused = api.patch("/factories/default", {"max_running": 0}, key=api.admin)

    assert limited == unchanged == shown == {"name": "default", "defined_by_files": False, "max_running": 2}
    assert unlimited["max_running"] is None
    assert (refused.status, refused.json["errors"][0]["pointer"]) == (422, "/max_running")
