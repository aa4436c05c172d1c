"""The queue in the API: its counts, runs and workers, and cancelling many runs."""

from typing import Any

import pytest

from hookmill.domain.ids import FactoryId
from hookmill.store.runs import claims, executors
from hookmill.store.runs.executors import ExecutorId
from tests.api.client import Api

QUEUE = "/factories/default/queue"
WORKER = ExecutorId("worker-host-4711-0a1b2c3d")


@pytest.fixture
def queued(api, stocked):
    """The ids of five queued runs, oldest first."""
    for number in range(4):
        answer = api.world.post(stocked.webhook, b'{"action": "opened", "n": %d}' % number)
        assert answer.status == 202
    return [run["run_id"] for run in reversed(api.get("/factories/default/runs").json["items"])]


def claim(api: Api, at_most: int) -> None:
    """Claim runs as a worker does."""
    with api.world.database.write() as tx:
        now = api.world.clock()
        executors.heartbeat(tx, WORKER, now)
        claims.claim(tx, executor=WORKER, at_most=at_most, after=FactoryId(""), now=now)


def test_queue_contains_counts_running_runs_and_workers(api, queued):
    claim(api, 1)

    answer = api.get(QUEUE)

    assert answer.status == 200
    queue = answer.json
    assert queue["counts"]["running"] == {"count": 1, "is_capped": False}
    assert queue["counts"]["ready"] == {"count": 4, "is_capped": False}
    assert queue["counts"]["oldest_ready_at"] is not None
    assert queue["warning"] is None
    (running,) = queue["running"]
    assert (running["run_id"], running["host"], running["pid"]) == (queued[0], "worker-host", 4711)
    assert running["worker_is_alive"]
    (worker,) = queue["workers"]
    assert (worker["executor"], worker["is_alive"], worker["claimed_runs"]) == (WORKER, True, 1)


def test_waiting_runs_are_paginated_with_their_reasons(api, queued):
    items: list[Any] = []
    cursor: str | None = ""
    while cursor is not None:
        page = api.get(f"{QUEUE}?limit=2" + (f"&cursor={cursor}" if cursor else "")).json
        items += page["items"]
        cursor = page["next_cursor"]

    assert [item["run_id"] for item in items] == queued
    assert {item["waiting_reason"] for item in items} == {"It waits for a free slot."}
    assert {(item["priority"], item["waits_behind"]) for item in items} == {("normal", None)}


@pytest.mark.usefixtures("queued")
def test_queue_without_workers_has_a_warning(api):
    assert api.get(QUEUE).json["warning"].startswith("No worker is alive, so no run starts.")


@pytest.mark.usefixtures("queued")
def test_cursor_of_another_list_is_refused(api):
    other = api.get("/factories/default/runs?limit=1").json["next_cursor"]

    refused = api.get(f"{QUEUE}?cursor={other}")

    assert refused.problem == (422, "invalid")


# Cancelling many runs


def cancel(api: Api, **body: Any) -> Any:
    return api.post("/factories/default/runs/cancel", body)


def test_all_queued_runs_are_cancelled_and_running_ones_stop(api, queued):
    claim(api, 1)

    answer = cancel(api, all=True)

    assert (answer.status, answer.json) == (200, {"cancelled": 4, "stopping": 1})
    states = {run["run_id"]: run["state"] for run in api.get("/factories/default/runs").json["items"]}
    assert states == dict.fromkeys(queued[1:], "cancelled") | {queued[0]: "running"}


def test_only_runs_that_meet_the_conditions_are_cancelled(api, stocked, queued):
    uid = stocked.webhook.webhook.uid

    assert cancel(api, webhook=uid, state="running").json == {"cancelled": 0, "stopping": 0}
    assert cancel(api, webhook=uid, automation="reader of default").json == {"cancelled": len(queued), "stopping": 0}


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, ""),
        ({"all": False}, ""),
        ({"automation": None}, ""),
        ({"all": True, "state": "queued"}, "/all"),
        ({"state": "failed"}, "/state"),
        ({"everything": True}, "/everything"),
    ],
)
def test_cancellation_without_valid_conditions_is_refused(api, queued, body, pointer):
    refused = cancel(api, **body)

    assert refused.status == 422
    assert refused.json["errors"][0]["pointer"] == pointer
    assert api.get(QUEUE).json["counts"]["ready"]["count"] == len(queued)
