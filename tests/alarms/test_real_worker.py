"""Each alarm, raised by its cause in the worker of a real service, which sends it; and none by ordinary traffic."""

import json
import os
import signal
import sqlite3
import time
from contextlib import closing
from itertools import count
from typing import Any

import psutil
import pytest

from hookmill.domain.alarm import AlarmKind
from hookmill.domain.alarm_destination import DestinationKind
from hookmill.management import Management, WebhookWithSecret
from tests.alarms.test_installation import tls_server
from tests.notices.receivers import Receiver, http_receiver
from tests.support.automations import automation_created
from tests.support.service import Service, operator, serving
from tests.support.triggers import received
from tests.support.waiting import until

MINUTE_US = 60_000_000
WITHIN_SECONDS = 300
"""The longest stated time is that of `rate_limited`: three minutes with dropped deliveries, and two minutes. That of
`certificate_expiring` is longer, but begins with the first evaluation."""
PER_MINUTE = 30


def automation(management: Management, webhook: WebhookWithSecret, name: str, runner: str, **options: Any):
    trigger = received(webhook.webhook.uid)
    automation_created(management, operator(management), name, triggers=[trigger], runner=runner, **options)


def events(receiver: Receiver) -> list[tuple[str, str, str]]:
    """The type, kind and subject of each message. A message that was sent again counts once."""
    by_id = {request.headers["webhook-id"]: request for request in receiver.requests}
    messages = [json.loads(request.body) for request in by_id.values()]
    return [(message["type"], message["data"]["kind"], message["data"]["subject"]) for message in messages]


def age(service: Service):
    """Let the database look as if the service had been running, and had expected deliveries, for an hour, and as if the
    clock had been set back by two hours since the last pass of retention."""
    now = time.time_ns() // 1000
    evaluation = json.dumps({"by": "earlier", "at": now - 4 * MINUTE_US, "since": now - 60 * MINUTE_US})
    with closing(sqlite3.connect(service.data_dir / "hookmill.db", timeout=20)) as connection, connection:
        connection.execute("INSERT INTO metadata VALUES ('alarm evaluation', ?)", (evaluation.encode(),))
        connection.execute("UPDATE webhooks SET expected_from = ?", (now - 60 * MINUTE_US,))
        connection.execute(
            "UPDATE metadata SET value = ? WHERE name = 'retention time'", (str(now + 120 * MINUTE_US).encode(),)
        )


def has_retention_time(service: Service) -> bool:
    with closing(sqlite3.connect(service.data_dir / "hookmill.db", timeout=20)) as connection:
        return connection.execute("SELECT 1 FROM metadata WHERE name = 'retention time'").fetchone() is not None


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_each_cause_raises_its_alarm_in_a_real_service_and_ordinary_traffic_none(tmp_path):
    runners = {"fail": {"argv": ["false"]}, "pass": {"argv": ["true"]}, "slow": {"argv": ["sleep", "900"]}}
    with (
        http_receiver() as receiver,
        tls_server(tmp_path, days=13) as port,
        serving(
            tmp_path / "data",
            alarm_private_addresses="true",
            alarm_free_space_mb=10**9,
            alarm_waiting_seconds=60,
            base_url=f"https://localhost:{port}",
            deliveries_per_minute=PER_MINUTE,
            runners=json.dumps(runners),
        ) as service,
    ):
        with service.management() as management:
            factory, team = operator(management), management.access.operator_of_team()
            for may in (factory, team):
                management.alarm_destinations.create(may, DestinationKind.WEBHOOK, url=receiver.url())
            webhooks = {
                name: management.webhooks.create(
                    factory, {"name": name, "expect_every": "5m" if name == "quiet" else None}
                )
                for name in ("quiet", "attacked", "busy", "broken", "queued", "ordinary")
            }
            automation(management, webhooks["broken"], "broken", "fail")
            automation(management, webhooks["queued"], "queued", "slow", policy={"max_running": 1})
            automation(management, webhooks["ordinary"], "ordinary", "pass")
        for number in range(5):
            assert service.post(webhooks["attacked"], token="wrong").status == 401
            assert service.post(webhooks["broken"], b"%d" % number).status == 202
        for number in range(2):
            assert service.post(webhooks["queued"], b"%d" % number).status == 202
        until(lambda: has_retention_time(service))
        age(service)
        rounds = count()

        def have_arrived():
            """Continue the ordinary and the excessive traffic until every alarm has arrived."""
            number = next(rounds)
            for _ in range(5):
                service.post(webhooks["busy"], b"%d" % time.time_ns())
            service.post(webhooks["ordinary"], b"%d" % number)
            if number % 4 == 0:
                service.post(webhooks["ordinary"], b"%d" % number)
                service.post(webhooks["ordinary"], token="wrong")
            return len(events(receiver)) >= len(AlarmKind) - 1

        until(have_arrived, lambda: str(events(receiver)), seconds=WITHIN_SECONDS, pause_seconds=3)

    raised = {(kind, subject) for event, kind, subject in events(receiver) if event == "alarm.raised"}
    assert len(raised) == len(events(receiver))
    assert {kind for kind, _ in raised} == set(AlarmKind) - {AlarmKind.WORKER_STOPPED}
    assert raised > {
        (AlarmKind.WEBHOOK_QUIET, "quiet"),
        (AlarmKind.AUTHENTICATION_FAILING, "attacked"),
        (AlarmKind.RATE_LIMITED, "busy"),
        (AlarmKind.RUNS_FAILING, "broken"),
        (AlarmKind.RUNS_WAITING, "queued"),
    }


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_service_whose_worker_does_not_respond_says_so(tmp_path):
    with (
        http_receiver() as receiver,
        serving(tmp_path / "data", alarm_private_addresses="true") as service,
    ):
        with service.management() as management:
            team = management.access.operator_of_team()
            management.alarm_destinations.create(team, DestinationKind.WEBHOOK, url=receiver.url())
        process = service.process
        assert process is not None
        worker = until(lambda: worker_of(process.pid))
        until(lambda: is_frozen_without_locks(worker, service), "the worker is frozen between two transactions")
        raised = ("alarm.raised", AlarmKind.WORKER_STOPPED, "worker")
        until(lambda: events(receiver) == [raised], seconds=420, pause_seconds=1)
        os.kill(worker, signal.SIGCONT)
        resolved = ("alarm.resolved", AlarmKind.WORKER_STOPPED, "worker")
        until(lambda: events(receiver) == [raised, resolved], seconds=120, pause_seconds=1)


def is_frozen_without_locks(worker: int, service: Service) -> bool:
    """Freeze the worker. If it is in a transaction, which would block the whole service, let it continue."""
    os.kill(worker, signal.SIGSTOP)
    with closing(sqlite3.connect(service.data_dir / "hookmill.db", timeout=2, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            os.kill(worker, signal.SIGCONT)
            return False
        connection.execute("ROLLBACK")
    return True


def worker_of(pid: int) -> int | None:
    children = psutil.Process(pid).children(recursive=True)
    return next((child.pid for child in children if child.name() == "hookmill:worker"), None)
