"""When the service says that it is ready, the next delivery does not have to wait for any part of it."""

import http.client
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.http.impatience import impatient_service
from tests.support.service import Service, free_port, operator

WRITER_SECONDS = 2.0


def test_the_service_is_ready_only_when_its_writer_is_there(tmp_path: Path):
    service = impatient_service(tmp_path, writer_seconds=WRITER_SECONDS)
    service.port = free_port()
    with ThreadPoolExecutor(1) as apart:
        starting = apart.submit(service.start)
        try:
            wait_until_alive(service)
            before = service.request("GET", "/readyz")
            starting.result()
            seconds, status = timed_delivery(service)
        finally:
            starting.exception()
            service.kill()

    assert (before.status, before.body) == (503, b"not ready\n")
    assert status == 202
    assert seconds < WRITER_SECONDS / 2


def wait_until_alive(service: Service) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            if service.request("GET", "/healthz").status == 200:
                return
        except (OSError, http.client.HTTPException):
            time.sleep(0.02)
    raise AssertionError(f"the service did not come alive:\n{service.log()}")


def timed_delivery(service: Service) -> tuple[float, int]:
    with service.management() as management:
        webhook = management.webhooks.create(operator(management), "ready")
    started = time.monotonic()
    answer = service.post(webhook)
    return time.monotonic() - started, answer.status
