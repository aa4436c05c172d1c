"""The service says that it is ready when every part of it is, however long that takes."""

import contextlib
import http.client
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faults.parts import wait_until_announced
from tests.http.impatience import impatient_service
from tests.support.ports import free_port
from tests.support.service import Service, operator
from tests.support.waiting import until


def test_the_service_is_ready_only_when_its_writer_has_started(tmp_path: Path):
    gate = tmp_path / "gate"
    service = impatient_service(tmp_path / "data", writer_gate=gate)
    service.port = free_port()
    with ThreadPoolExecutor(1) as apart:
        starting = apart.submit(service.start)
        try:
            wait_until_alive(service)
            before = [service.request("GET", "/readyz") for _ in range(3)]
            # By its clock, a quarter of an hour.
            time.sleep(0.25)
            gate.touch()
            starting.result()
            status = deliver(service)
            wait_until_announced(service)
        finally:
            gate.touch()
            starting.exception()
            service.kill()

    assert {(each.status, each.body) for each in before} == {(503, b"not ready\n")}
    assert status == 202


def wait_until_alive(service: Service) -> None:
    def is_alive() -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            return service.request("GET", "/healthz").status == 200
        return False

    until(is_alive, lambda: f"the service came alive:\n{service.log()}")


def deliver(service: Service) -> int:
    """The status."""
    with service.management() as management:
        webhook = management.webhooks.create(operator(management), "ready")
    return service.post(webhook).status
