"""How the service ends and comes back: told to, killed as a whole, or robbed of one of its processes."""

import os
import random
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from hookmill.management import WebhookWithSecret
from tests.faults.audit import audit, sqlite_is_whole, wait_until_runs_have_ended
from tests.faults.parts import (
    Part,
    everything_of,
    kill_part,
    parts_of,
    still_running,
    taken_away_afterwards,
    wait_until_announced,
)
from tests.faults.senders import Event, Fleet, Line, ask, request
from tests.support.loaded import Command
from tests.support.service import Service, operator, serving
from tests.support.waiting import until

STOPPED_SECONDS = 15.0
BACK_SECONDS = 30.0
"""Generous: what is asked for is 3 s, and other tests may have the machine."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with serving(tmp_path / "data", deliveries_per_minute=100_000) as service:
        yield service


@pytest.fixture
def webhook(service: Service) -> WebhookWithSecret:
    with service.management() as management:
        return management.webhooks.create(operator(management), "source")


def numbered(made: WebhookWithSecret):
    return lambda _chance, number: Event(made, b'{"number": %d}' % number)


def is_taken(service: Service, made: WebhookWithSecret, body: bytes) -> bool:
    with suppress(OSError):
        return service.post(made, body).status == 202
    return False


def test_a_request_that_was_read_is_answered_during_the_stop(service, webhook):
    sent = request(webhook, b'{"held": "back"}')
    with ExitStack() as connections:
        lines = [connections.enter_context(Line(service.port)) for _ in range(8)]
        for line in lines:
            assert line.say(sent[:-1])
        connections.enter_context(socket.create_connection(("127.0.0.1", service.port)))
        fleet = connections.enter_context(Fleet([service.port], numbered(webhook), random.Random(1), senders=8))
        # These came after the lines: what the lines have said is read by now.
        until(lambda: fleet.answers["202"] >= 20, "deliveries are taken")

        service.process.send_signal(signal.SIGTERM)
        told = time.monotonic()
        until(lambda: _refuses(service), "no new connection is taken")
        for line in lines:
            line.say(sent[-1:])
        answers = [line.answer() for line in lines]
        code = service.process.wait(STOPPED_SECONDS + 10)
        took = time.monotonic() - told

    assert [answer.status if answer else None for answer in answers] == [202] * 8
    assert code == 0
    assert took < STOPPED_SECONDS
    assert fleet.unexpected == []
    assert fleet.answers["503"] == 0, "stopping is no fault"


def _refuses(service: Service) -> bool:
    try:
        socket.create_connection(("127.0.0.1", service.port), timeout=1).close()
    except OSError:
        return True
    return False


@pytest.mark.timeout(240)
def test_what_was_taken_before_a_stop_is_there_after_it(tmp_path: Path):
    with serving(tmp_path / "data", deliveries_per_minute=100_000, runs_at_once=24) as service:
        with service.management() as management:
            may = operator(management)
            made = management.webhooks.create(may, "source")
            trigger = {"provider": "webhook", "event": "received", "filter": {"webhook_ids": [made.webhook.uid]}}
            automation = management.automations.create(may, "all", prompt="Look.", triggers=[trigger])
        starts = frozenset({str(automation.id)})
        with Fleet(
            [service.port],
            lambda _chance, number: Event(made, b'{"number": %d}' % number, starts=starts),
            random.Random(2),
            senders=8,
            per_second=100,
        ) as fleet:
            for _ in range(2):
                time.sleep(0.7)
                assert service.stop() == 0
                service.start()
            fleet.settle(60)
        url = service.read_settings().store_url()
        wait_until_runs_have_ended(url)

        findings = audit(url, fleet.events)

    assert fleet.unexpected == []
    assert findings.troubles() == {}
    assert findings.accepted == len(fleet.events)


def test_a_signal_to_the_whole_process_group_is_a_stop_in_good_order(service, webhook):
    # As Ctrl-C at a terminal does, and systemd.
    assert service.post(webhook).status == 202
    processes = everything_of(service)
    with taken_away_afterwards(processes):
        os.killpg(service.process.pid, signal.SIGTERM)

        assert service.process.wait(STOPPED_SECONDS + 10) == 0
        until(lambda: not still_running(processes), "all its processes have ended", seconds=STOPPED_SECONDS)


def test_a_killed_supervisor_leaves_nobody_behind_and_a_new_start_works(service, webhook):
    processes = everything_of(service)
    alive = threading.Event()

    # A connection that is in use must not keep an orphan alive.
    def keep_asking() -> None:
        number = 0
        with Line(service.port, seconds=5) as line:
            while not alive.wait(0.05):
                number += 1
                line.ask(request(webhook, b'{"asked": %d}' % number))

    asking = threading.Thread(target=keep_asking)
    with taken_away_afterwards(processes):
        asking.start()
        try:
            service.process.kill()
            service.process.wait()

            until(lambda: not still_running(processes), "all its processes have ended", seconds=STOPPED_SECONDS)
        finally:
            alive.set()
            asking.join()
        service.start()

        assert service.post(webhook, b'{"after": 1}').status == 202
        assert sqlite_is_whole(service.data_dir / "hookmill.db")


def test_a_supervisor_killed_during_its_start_leaves_nobody_behind(service, webhook):
    service.stop()
    for _ in range(3):
        service.process = Command(["serve"], service.environment(), service.data_dir, service.log_path)
        until(lambda: parts_of(service)[Part.INGRESS], "the ingress is being started")
        processes = everything_of(service)
        with taken_away_afterwards(processes):
            service.process.kill()
            service.process.wait()

            until(lambda: not everything_of(service), "all its processes have ended", seconds=STOPPED_SECONDS)

    service.start()
    assert service.post(webhook).status == 202


@pytest.mark.parametrize("part", [Part.WRITER, Part.INGRESS])
def test_deliveries_are_taken_again_soon_after_a_part_was_killed(service, webhook, part):
    wait_until_announced(service)
    assert service.post(webhook).status == 202
    for round_ in range(3):
        killed = kill_part(service, part)
        since = time.monotonic()

        until(lambda: is_taken(service, webhook, b"[%d]" % time.time_ns()), "a delivery is taken", seconds=BACK_SECONDS)

        print(f"202 again {time.monotonic() - since:.2f} s after the {part} was killed, round {round_}")
        assert not still_running([killed])
    until(lambda: len(parts_of(service)[part]) == 1, "those of before are gone")


def test_deliveries_are_taken_without_a_pause_while_the_worker_is_killed(service, webhook):
    kill_part(service, Part.WORKER)

    assert [service.post(webhook, b"[%d]" % number).status for number in range(20)] == [202] * 20
    until(lambda: parts_of(service)[Part.WORKER], "there is another worker", seconds=BACK_SECONDS)


def test_a_process_is_replaced_after_its_fork_server_was_killed(service, webhook):
    wait_until_announced(service)
    killed = kill_part(service, Part.FORKS)
    until(lambda: parts_of(service)[Part.FORKS], "there is another", seconds=BACK_SECONDS)
    kill_part(service, Part.INGRESS)

    until(lambda: is_taken(service, webhook, b"[%d]" % time.time_ns()), "a delivery is taken", seconds=BACK_SECONDS)
    assert not still_running([killed])
    until(lambda: len(parts_of(service)[Part.WRITER]) == 1, "the writer of before is gone")
    assert service.stop() == 0


def test_the_service_goes_on_however_often_its_ingress_is_killed(service, webhook):
    # A request that could end the ingress must not be able to end the service.
    wait_until_announced(service)
    supervisor = service.process.pid
    for number in range(4):
        kill_part(service, Part.INGRESS)
        until(lambda: is_taken(service, webhook, b"[%d]" % number), "a delivery is taken", seconds=BACK_SECONDS)  # noqa: B023

    assert service.process.poll() is None
    assert service.process.pid == supervisor
    assert service.stop() == 0


def test_a_killed_service_accepts_soon_after_its_next_start(service, webhook):
    assert service.post(webhook).status == 202
    service.kill()
    since = time.monotonic()
    service.start()

    assert service.post(webhook, b'{"after": 1}').status == 202
    took = time.monotonic() - since
    print(f"202 again {took:.2f} s after kill -9")
    assert took < BACK_SECONDS


def test_half_a_request_at_the_moment_of_a_kill_leaves_nothing(service, webhook):
    body = b'{"half": "a request"}'
    sent = request(webhook, body, headers={"X-Service-Delivery-Id": "half"})
    with Line(service.port) as line:
        assert line.say(sent[: -len(body) // 2])
        kill_part(service, Part.INGRESS)
        assert line.answer() is None

    def is_taken_again() -> bool:
        answer = ask(service.port, sent)
        # Nobody, or nobody who writes.
        assert answer is None or answer.status in {202, 503}
        return answer is not None and answer.status == 202

    until(is_taken_again, "the repeat is taken", seconds=BACK_SECONDS)
    assert labels(service, webhook) == ["Accepted"]


def labels(service: Service, made: WebhookWithSecret) -> list[str]:
    with service.management() as management:
        log = management.log.newest(operator(management), webhook=made.webhook.uid)
    return [row.label.wording for row in log]
