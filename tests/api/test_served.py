"""The API where it is really served: beside the deliveries, in the same process, which do not wait for it."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hookmill.domain.permission import Role
from hookmill.management import Management, WebhookWithSecret
from tests.faults.fault_injection import serving_with_faults
from tests.support.service import Service, operator, serving
from tests.support.waiting import until


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("service")
    with serving(
        directory, performs_runs=False, deliveries_per_minute=100_000, base_url="https://hooks.example"
    ) as running:
        yield running


@pytest.fixture(scope="module")
def management(service: Service) -> Iterator[Management]:
    with service.management() as operations:
        yield operations


@pytest.fixture(scope="module")
def bearer(management: Management) -> dict[str, str]:
    made = management.keys.create(management.access.operator_of_team(), "a program", Role.ADMIN)
    return {"Authorization": f"Bearer {made.token.reveal()}"}


@pytest.fixture(scope="module")
def source(management: Management) -> WebhookWithSecret:
    return management.webhooks.create(operator(management), "source")


def test_deliveries_are_taken_while_the_first_request_loads_the_api(tmp_path: Path):
    gate = tmp_path / "gate"
    asked: list[int] = []
    with serving_with_faults(tmp_path / "data", {"API_GATE": str(gate)}, performs_runs=False) as service:
        with service.management() as management:
            source = management.webhooks.create(operator(management), "source")
        asking = threading.Thread(target=lambda: asked.append(service.request("GET", "/api/v1/me").status))
        asking.start()
        try:
            until(gate.with_suffix(".reached").exists, "the API is being loaded")
            statuses = [service.post(source, b"%d" % number).status for number in range(20)]
            answered_before = list(asked)
        finally:
            gate.touch()
            asking.join()

    assert statuses == [202] * 20
    assert answered_before == []
    assert asked == [401]


def test_what_is_changed_through_the_api_holds_at_once_at_the_ingress(service: Service, bearer):
    path = "/api/v1/factories/default/webhooks"
    typed = bearer | {"Content-Type": "application/json"}

    def send(token: str) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        return service.request("POST", f"/webhooks/w/{made['uid']}", headers=headers, body=b"{}").status

    def change(body: bytes) -> int:
        return service.request("PATCH", f"{path}/{made['uid']}", headers=typed, body=body).status

    made = service.request("POST", path, headers=typed, body=b'{"name": "made here"}').json
    assert send(made["secret"]) == 202
    rotated = service.request("POST", f"{path}/{made['uid']}/rotate", headers=bearer).json
    assert (send(made["secret"]), send(rotated["secret"])) == (401, 202)
    assert change(b'{"enabled": false}') == 200
    assert send(rotated["secret"]) == 404
    assert change(b'{"enabled": true}') == 200
    assert send(rotated["secret"]) == 202
    assert service.request("DELETE", f"{path}/{made['uid']}", headers=bearer).status == 204
    assert send(rotated["secret"]) == 404
    assert made["url"] == f"https://hooks.example/webhooks/w/{made['uid']}"


def test_a_name_with_a_slash_is_one_segment_here_too(service, bearer):
    typed = bearer | {"Content-Type": "application/json"}
    made = service.request("POST", "/api/v1/factories", headers=typed, body=b'{"name": "a/b ?"}')

    assert service.request("GET", made.headers["location"], headers=bearer).json["name"] == "a/b ?"


def test_head_and_a_body_that_is_too_large_are_answered_here_too(service, bearer):
    head = service.request("HEAD", "/api/v1/me", headers=bearer)
    large = service.request(
        "POST",
        "/api/v1/factories",
        headers=bearer | {"Content-Type": "application/json", "Content-Length": "2000000"},
        body=b"{",
    )

    assert (head.status, head.body, head.headers["content-type"]) == (200, b"", "application/json")
    assert (large.status, large.json["code"]) == (413, "body_too_large")


@pytest.mark.parametrize(
    ("path", "status"), [("/healthz", 200), ("/readyz", 200), ("/api", 404), ("/api/v2/me", 404), ("/apiv1", 404)]
)
def test_the_other_addresses_are_as_they_were(service, path, status):
    assert service.request("GET", path).status == status


def test_a_service_that_nobody_asks_does_not_load_the_api():
    told = "import sys, hookmill.app.ingress_process; print('fastapi' in sys.modules, 'jinja2' in sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)

    assert loaded.stdout.split() == ["False", "False"]
