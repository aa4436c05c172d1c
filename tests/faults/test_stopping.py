"""The service is stopped, killed as a whole, or one of its processes is killed: it ends in good order or recovers."""

import os
import random
import signal
import socket
import threading
import time
from contextlib import ExitStack, suppress

import pytest

from hookmill.management import WebhookWithSecret
from tests.faults.audit import audit, is_intact, wait_until_runs_have_ended
from tests.faults.parts import (
    Part,
    all_processes_of,
    kill_part,
    killed_afterwards,
    parts_of,
    still_running,
    wait_until_announced,
)
from tests.faults.senders import Event, LoadGenerator, PersistentConnection, delivery_request, exchange
from tests.support.automations import automation_created
from tests.support.loaded import Command
from tests.support.service import Service, create_webhook, operator, serving
from tests.support.triggers import received
from tests.support.waiting import until

STOP_SECONDS_MAX = 15.0
RECOVERY_SECONDS_MAX = 30.0
"""The service should recover within 3 s, but other tests may use the processors at the same time."""


@pytest.fixture
def service(tmp_path):
    with serving(tmp_path / "data", deliveries_per_minute=100_000) as service:
        yield service


@pytest.fixture
def webhook(service):
    with service.management() as management:
        return create_webhook(management, "source")


def is_accepted(service: Service, webhook: WebhookWithSecret, body: bytes) -> bool:
    with suppress(OSError):
        return service.post(webhook, body).status == 202
    return False


def test_request_that_was_read_before_the_stop_is_answered(service, webhook):
    request = delivery_request(webhook, b'{"last_byte": "late"}')
    with ExitStack() as stack:
        connections = [stack.enter_context(PersistentConnection(service.port)) for _ in range(8)]
        for connection in connections:
            assert connection.send(request[:-1])
        stack.enter_context(socket.create_connection(("127.0.0.1", service.port)))
        load = stack.enter_context(
            LoadGenerator(
                [service.port],
                lambda _chance, number: Event(webhook, b'{"number": %d}' % number),
                random.Random(1),
                senders=8,
            )
        )
        # These deliveries came later. So when they are accepted, the service has read the unfinished requests.
        until(lambda: load.answers["202"] >= 20, "deliveries are accepted")

        service.process.send_signal(signal.SIGTERM)
        signalled_at = time.monotonic()
        until(lambda: _refuses_connections(service), "the service accepts no new connection")
        for connection in connections:
            connection.send(request[-1:])
        answers = [connection.read_answer() for connection in connections]
        exit_code = service.process.wait(STOP_SECONDS_MAX + 10)
        stop_seconds = time.monotonic() - signalled_at

    assert [answer.status if answer else None for answer in answers] == [202] * 8
    assert exit_code == 0
    assert stop_seconds < STOP_SECONDS_MAX
    assert load.unexpected_answers == []
    assert load.answers["503"] == 0, "a stop causes no 503"


def _refuses_connections(service: Service) -> bool:
    try:
        socket.create_connection(("127.0.0.1", service.port), timeout=1).close()
    except OSError:
        return True
    return False


@pytest.mark.timeout(240)
@pytest.mark.proof
def test_stops_under_load_lose_and_double_no_delivery_or_run(tmp_path):
    with serving(tmp_path / "data", deliveries_per_minute=100_000, runs_at_once=24) as service:
        with service.management() as management:
            may = operator(management)
            webhook = management.webhooks.create(may, {"name": "source"})
            trigger = received(webhook.webhook.uid)
            automation = automation_created(management, may, "all", triggers=[trigger])
        automations = frozenset({str(automation.id)})
        with LoadGenerator(
            [service.port],
            lambda _chance, number: Event(webhook, b'{"number": %d}' % number, automations=automations),
            random.Random(2),
            senders=8,
            per_second=100,
        ) as load:
            for _ in range(2):
                time.sleep(0.7)
                assert service.stop() == 0
                service.start()
            load.drain(60)
        url = service.read_settings().store_url()
        wait_until_runs_have_ended(url)

        result = audit(url, load.events)

    assert load.unexpected_answers == []
    assert result.violations() == {}
    assert result.accepted == len(load.events)


def test_sigterm_to_the_whole_process_group_stops_the_service(service, webhook):
    # Ctrl-C in a terminal and systemd signal the whole group.
    assert service.post(webhook).status == 202
    processes = all_processes_of(service)
    with killed_afterwards(processes):
        os.killpg(service.process.pid, signal.SIGTERM)

        assert service.process.wait(STOP_SECONDS_MAX + 10) == 0
        until(lambda: not still_running(processes), "all its processes have ended", seconds=STOP_SECONDS_MAX)


def test_all_processes_end_after_their_supervisor_was_killed(service, webhook):
    processes = all_processes_of(service)
    is_over = threading.Event()

    # A connection in use must not keep an orphaned process running.
    def keep_sending():
        number = 0
        with PersistentConnection(service.port, seconds=5) as connection:
            while not is_over.wait(0.05):
                number += 1
                connection.exchange(delivery_request(webhook, b'{"number": %d}' % number))

    sender = threading.Thread(target=keep_sending)
    with killed_afterwards(processes):
        sender.start()
        try:
            service.process.kill()
            service.process.wait()

            until(lambda: not still_running(processes), "all its processes have ended", seconds=STOP_SECONDS_MAX)
        finally:
            is_over.set()
            sender.join()
        service.start()

        assert service.post(webhook, b'{"after": 1}').status == 202
        assert is_intact(service.data_dir / "hookmill.db")


def test_all_processes_end_after_a_supervisor_was_killed_at_its_start(service, webhook):
    service.stop()
    for _ in range(3):
        service.process = Command(["serve"], service.environment(), service.data_dir, service.log_path)
        until(lambda: parts_of(service)[Part.INGRESS], "the ingress is starting")
        with killed_afterwards(all_processes_of(service)):
            service.process.kill()
            service.process.wait()

            until(lambda: not all_processes_of(service), "all its processes have ended", seconds=STOP_SECONDS_MAX)

    service.start()
    assert service.post(webhook).status == 202


@pytest.mark.parametrize("part", [Part.WRITER, Part.INGRESS])
def test_deliveries_are_accepted_again_soon_after_a_process_was_killed(service, webhook, part):
    wait_until_announced(service)
    assert service.post(webhook).status == 202
    for round_ in range(3):
        killed = kill_part(service, part)
        killed_at = time.monotonic()

        wait_until_accepted(service, webhook)

        print(f"202 again {time.monotonic() - killed_at:.2f} s after the {part} was killed, round {round_}")
        assert not still_running([killed])
    until(lambda: len(parts_of(service)[part]) == 1, "the previous processes have ended")


def wait_until_accepted(service: Service, webhook: WebhookWithSecret):
    until(
        lambda: is_accepted(service, webhook, b"[%d]" % time.time_ns()),
        "a delivery is accepted",
        seconds=RECOVERY_SECONDS_MAX,
    )


def test_deliveries_are_accepted_while_the_worker_is_replaced(service, webhook):
    kill_part(service, Part.WORKER)

    assert [service.post(webhook, b"[%d]" % number).status for number in range(20)] == [202] * 20
    until(lambda: parts_of(service)[Part.WORKER], "there is another worker", seconds=RECOVERY_SECONDS_MAX)


def test_processes_are_replaced_after_their_fork_server_was_killed(service, webhook):
    wait_until_announced(service)
    killed = kill_part(service, Part.FORKS)
    until(lambda: parts_of(service)[Part.FORKS], "there is another fork server", seconds=RECOVERY_SECONDS_MAX)
    kill_part(service, Part.INGRESS)

    wait_until_accepted(service, webhook)
    assert not still_running([killed])
    until(lambda: len(parts_of(service)[Part.WRITER]) == 1, "the previous writer has ended")
    assert service.stop() == 0


def test_repeated_kills_of_the_ingress_do_not_end_the_service(service, webhook):
    # If a request could end the ingress, it must not be able to end the service.
    wait_until_announced(service)
    supervisor = service.process.pid
    for _ in range(4):
        kill_part(service, Part.INGRESS)
        wait_until_accepted(service, webhook)

    assert service.process.poll() is None
    assert service.process.pid == supervisor
    assert service.stop() == 0


def test_killed_service_accepts_deliveries_soon_after_its_next_start(service, webhook):
    assert service.post(webhook).status == 202
    service.kill()
    killed_at = time.monotonic()
    service.start()

    assert service.post(webhook, b'{"after": 1}').status == 202
    recovery_seconds = time.monotonic() - killed_at
    print(f"202 again {recovery_seconds:.2f} s after kill -9")
    assert recovery_seconds < RECOVERY_SECONDS_MAX


def test_incomplete_request_is_not_recorded_if_the_ingress_is_killed(service, webhook):
    body = b'{"half": "a request"}'
    request = delivery_request(webhook, body, headers={"X-Service-Delivery-Id": "half"})
    with PersistentConnection(service.port) as connection:
        assert connection.send(request[: -len(body) // 2])
        kill_part(service, Part.INGRESS)
        assert connection.read_answer() is None

    def is_retry_accepted():
        answer = exchange(service.port, request)
        # Until there is another ingress, no answer comes. Until there is another writer, the answer is 503.
        assert answer is None or answer.status in {202, 503}
        return answer is not None and answer.status == 202

    until(is_retry_accepted, "the retry is accepted", seconds=RECOVERY_SECONDS_MAX)
    assert labels(service, webhook) == ["Accepted"]


def labels(service: Service, webhook: WebhookWithSecret) -> list[str]:
    with service.management() as management:
        log = management.log.newest(operator(management), webhook=webhook.webhook.uid)
    return [row.label.wording for row in log]
