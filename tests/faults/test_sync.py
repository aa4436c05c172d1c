"""The service answers 202 only when the delivery is on disk.

kill -9 can't show a missing sync, because the kernel keeps what was written. The order of the system calls can.
"""

import secrets
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from hookmill.domain.ids import delivery_id
from hookmill.management import WebhookWithSecret
from tests.faults.audit import is_intact
from tests.faults.fault_injection import serving_with_faults
from tests.faults.senders import PersistentConnection, delivery_request
from tests.faults.system_calls import TracedDeliveries, read_deliveries, tracing_command
from tests.support.service import Service, create_webhook, operator
from tests.support.strace import strace
from tests.support.waiting import until

SENDERS = 8
DELIVERIES_EACH = 15


def trace_deliveries(directory: Path, faults: Mapping[str, str]) -> TracedDeliveries:
    """Deliver on several connections to a service with these faults, under strace."""
    output = directory / "trace"
    bodies: dict[str, str] = {}
    with serving_with_faults(
        directory / "data",
        {"TRACE": tracing_command(strace(), output)} | dict(faults),
        deliveries_per_minute=10_000,
        performs_runs=False,
    ) as service:
        with service.management() as management:
            webhook = create_webhook(management, "source")
        senders = [threading.Thread(target=deliver, args=(service, webhook, bodies)) for _ in range(SENDERS)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        assert len(bodies) == SENDERS * DELIVERIES_EACH

        def complete_trace() -> TracedDeliveries | None:
            deliveries = read_deliveries(output, "/hookmill.db-wal", bodies)
            return deliveries if deliveries.answered == bodies.keys() else None

        # strace writes a call some time after the call has ended.
        deliveries = until(complete_trace, "the trace has every answer")
    assert deliveries.unwritten == set(), "the trace has every write"
    return deliveries


def deliver(service: Service, webhook: WebhookWithSecret, bodies: dict[str, str]):
    with PersistentConnection(service.port) as connection:
        for _ in range(DELIVERIES_EACH):
            text = secrets.token_hex(16)
            answer = connection.exchange(delivery_request(webhook, b'{"text": "%s"}' % text.encode()))
            assert answer is not None
            assert answer.status == 202
            bodies[answer.delivery_id] = text


def test_log_is_synced_to_disk_before_every_202(tmp_path):
    deliveries = trace_deliveries(tmp_path, {})

    assert deliveries.unsynced == set()


@pytest.mark.proof
@pytest.mark.parametrize("synchronous", ["OFF", "NORMAL"])
def test_trace_shows_a_store_that_does_not_sync(tmp_path, synchronous):
    deliveries = trace_deliveries(tmp_path, {"PRAGMAS": f"PRAGMA synchronous = {synchronous}"})

    assert len(deliveries.unsynced) > 0.9 * len(deliveries.answered)


def test_delivery_is_not_answered_202_if_its_sync_fails(tmp_path):
    # Three syncs of the writer process fail, beginning with its third one.
    trace = tmp_path / "trace"
    failing_syncs = f"{strace()} -f -o {trace} -e trace=fdatasync -e inject=fdatasync:error=EIO:when=3..5"
    with serving_with_faults(
        tmp_path / "data", {"TRACE_WRITER": failing_syncs}, deliveries_per_minute=1_000, performs_runs=False
    ) as service:
        with service.management() as management:
            may = operator(management)
            webhook = management.webhooks.create(may, {"name": "source"})
        answers = [service.post(webhook, b"[%d]" % number) for number in range(12)]
        assert trace.read_text().count("EIO") == 3, "three syncs have failed"

        unavailable = [number for number, answer in enumerate(answers) if answer.status == 503]
        for number in unavailable:
            until(lambda: service.post(webhook, b"[%d]" % number).status == 202, "the retry is accepted")  # noqa: B023
        service.kill()
        service.start()
        with service.management() as management:
            log = management.log.newest(may, webhook=webhook.webhook.uid, limit=100)

    assert {answer.status for answer in answers} == {202, 503}
    accepted = [delivery_id(row.key) for row in log if row.label.wording == "Accepted"]
    assert len(accepted) == len(answers)
    assert {answer.delivery_id for answer in answers if answer.status == 202} <= set(accepted)
    assert is_intact(tmp_path / "data" / "hookmill.db")
