"""The API of a running service. It is in the process of the ingress, and does not delay deliveries."""

import json
import subprocess
import sys
import threading
from dataclasses import replace

import pytest
from standardwebhooks import Webhook

from hookmill.domain.permission import Role
from hookmill.store import notices
from hookmill.store.database import open_database
from tests.domain.test_alarm_message import NOTICE
from tests.faults.fault_injection import serving_with_faults
from tests.notices.receivers import http_receiver
from tests.support.service import create_webhook, serving
from tests.support.waiting import until


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    directory = tmp_path_factory.mktemp("service")
    with serving(
        directory,
        performs_runs=False,
        deliveries_per_minute=100_000,
        base_url="https://hooks.example",
        alarm_private_addresses=True,
    ) as running_service:
        yield running_service


@pytest.fixture(scope="module")
def management(service):
    with service.management() as operations:
        yield operations


@pytest.fixture(scope="module")
def bearer(management):
    """The header with an admin's key."""
    created = management.keys.create(management.access.operator_of_team(), "a program", Role.ADMIN)
    return {"Authorization": f"Bearer {created.token.reveal()}"}


def test_deliveries_are_accepted_while_the_first_request_loads_the_api(tmp_path):
    gate = tmp_path / "gate"
    api_statuses: list[int] = []
    with serving_with_faults(tmp_path / "data", {"API_GATE": str(gate)}, performs_runs=False) as service:
        with service.management() as management:
            source = create_webhook(management, "source")
        first_request = threading.Thread(
            target=lambda: api_statuses.append(service.request("GET", "/api/v1/me").status)
        )
        first_request.start()
        try:
            until(gate.with_suffix(".reached").exists, "the API is being loaded")
            statuses = [service.post(source, b"%d" % number).status for number in range(20)]
            statuses_while_loading = list(api_statuses)
        finally:
            gate.touch()
            first_request.join()

    assert statuses == [202] * 20
    assert statuses_while_loading == []
    assert api_statuses == [401]


def test_change_in_the_api_takes_effect_immediately_at_the_ingress(service, bearer):
    path = "/api/v1/factories/default/webhooks"
    headers = bearer | {"Content-Type": "application/json"}

    def send(token: str):
        authorization = {"Authorization": f"Bearer {token}"}
        return service.request("POST", f"/webhooks/w/{webhook['uid']}", headers=authorization, body=b"{}").status

    def change(body: bytes):
        return service.request("PATCH", f"{path}/{webhook['uid']}", headers=headers, body=body).status

    webhook = service.request("POST", path, headers=headers, body=b'{"name": "from the API"}').json
    assert send(webhook["secret"]) == 202
    rotated = service.request("POST", f"{path}/{webhook['uid']}/rotate", headers=bearer).json
    assert (send(webhook["secret"]), send(rotated["secret"])) == (401, 202)
    assert change(b'{"enabled": false}') == 200
    assert send(rotated["secret"]) == 404
    assert change(b'{"enabled": true}') == 200
    assert send(rotated["secret"]) == 202
    assert service.request("DELETE", f"{path}/{webhook['uid']}", headers=bearer).status == 204
    assert send(rotated["secret"]) == 404
    assert webhook["url"] == f"https://hooks.example/webhooks/w/{webhook['uid']}"


def test_name_with_a_slash_is_one_segment_of_the_path(service, bearer):
    headers = bearer | {"Content-Type": "application/json"}
    created = service.request("POST", "/api/v1/factories", headers=headers, body=b'{"name": "a/b ?"}')

    assert service.request("GET", created.headers["location"], headers=bearer).json["name"] == "a/b ?"


def test_head_and_a_too_large_body_are_answered(service, bearer):
    head = service.request("HEAD", "/api/v1/me", headers=bearer)
    large = service.request(
        "POST",
        "/api/v1/factories",
        headers=bearer | {"Content-Type": "application/json", "Content-Length": "2000000"},
        body=b"{",
    )

    assert (head.status, head.body, head.headers["content-type"]) == (200, b"", "application/json")
    assert large.problem == (413, "body_too_large")


@pytest.mark.parametrize(
    ("path", "status"), [("/healthz", 200), ("/readyz", 200), ("/api", 404), ("/api/v2/me", 404), ("/apiv1", 404)]
)
def test_paths_outside_the_api_do_not_belong_to_it(service, path, status):
    assert service.request("GET", path).status == status


def test_ingress_process_loads_the_api_only_on_request():
    script = "import sys, hookmill.app.ingress_process; print('fastapi' in sys.modules, 'jinja2' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert result.stdout.split() == ["False", "False"]


def test_worker_sends_an_alarm_to_a_destination_that_the_api_has_tested(service, bearer):
    path = "/api/v1/factories/default/alarm-destinations"
    with http_receiver() as receiver:
        body = json.dumps({"kind": "webhook", "url": receiver.url("/secret-path")}).encode()
        created = service.request("POST", path, headers=bearer | {"Content-Type": "application/json"}, body=body).json
        test = service.request("POST", f"{path}/{created['destination_id']}/test", headers=bearer).json
        with open_database(service.read_settings().store_url()) as database, database.write() as tx:
            assert notices.enqueue(tx, replace(NOTICE, factory="default")) == 1
        until(lambda: len(receiver.requests) >= 2, "the worker has sent the alarm")

    assert test == {"destination_id": created["destination_id"], "sent": True, "problem": None}
    types = [
        Webhook(created["signing_secret"]).verify(request.body, request.headers)["type"]
        for request in receiver.requests
    ]
    assert types == ["alarm.test", "alarm.raised"]
    assert "secret-path" not in service.log()
