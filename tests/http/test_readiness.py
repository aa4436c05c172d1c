"""The service reports that it is ready only when all its parts are, even if that takes long."""

import contextlib
import http.client
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faults.parts import Part, kill_part, wait_until_announced
from tests.http.short_deadlines import short_deadline_service
from tests.support.ports import free_port
from tests.support.service import Service, create_webhook
from tests.support.waiting import until


def test_service_is_ready_only_when_its_writer_has_started(tmp_path):
    gate = tmp_path / "gate"
    service = short_deadline_service(tmp_path / "data", writer_gate=gate)
    service.port = free_port()
    with ThreadPoolExecutor(1) as pool:
        start = pool.submit(service.start)
        try:
            wait_until_alive(service)
            answers_before = [service.request("GET", "/readyz") for _ in range(3)]
            # The clock of the service advances by a quarter of an hour.
            time.sleep(0.25)
            gate.touch()
            start.result()
            status = deliver(service)
            wait_until_announced(service)
        finally:
            gate.touch()
            start.exception()
            service.kill()

    assert {(answer.status, answer.body) for answer in answers_before} == {(503, b"not ready\n")}
    assert status == 202


def test_service_is_not_ready_while_its_first_worker_cannot_start(tmp_path):
    service = Service(tmp_path / "data", port=free_port())
    obstacle = service.data_dir / "worker.lock"
    obstacle.mkdir(parents=True)
    note = b": the worker can't start, so runs wait\n"
    with ThreadPoolExecutor(1) as pool:
        start = pool.submit(service.start)
        try:
            wait_until_alive(service)
            until(lambda: service.request("GET", "/readyz").body == b"not ready" + note, service.log)
            status = service.request("GET", "/readyz").status
            accepted = deliver(service)
            obstacle.rmdir()
            start.result()
            wait_until_announced(service)
            ready = service.request("GET", "/readyz")
            # A worker that ends later does not keep deliveries away, which wait for the next one.
            obstacle_later(service, obstacle)
            until(lambda: service.request("GET", "/readyz").body == b"ok" + note, service.log)
            later_status = service.request("GET", "/readyz").status
        finally:
            start.exception()
            service.kill()

    assert (status, accepted) == (503, 202)
    assert (ready.status, ready.body) == (200, b"ok\n")
    assert later_status == 200
    assert "the worker can't start, so runs wait" in service.log()


def obstacle_later(service: Service, obstacle: Path):
    """Kill the worker, and keep the next one from starting."""
    obstacle.unlink()
    obstacle.mkdir()
    kill_part(service, Part.WORKER)


def wait_until_alive(service: Service):
    def is_alive() -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            return service.request("GET", "/healthz").status == 200
        return False

    until(is_alive, lambda: f"the service answers /healthz:\n{service.log()}")


def deliver(service: Service) -> int:
    """Deliver to a new webhook. Returns the status of the answer."""
    with service.management() as management:
        webhook = create_webhook(management, "ready")
    return service.post(webhook).status
