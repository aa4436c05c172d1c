"""A database that restarts, is gone, falls silent, takes no writes, is held or is full: senders get a 503 in time,
nothing that was promised is lost, and the service heals by itself."""

import contextlib
import os
import random
import shutil
import sqlite3
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import psycopg
import pytest

from hookmill.domain.ids import delivery_id
from hookmill.domain.permission import Role
from hookmill.domain.webhook import WebhookState
from hookmill.management import WebhookWithSecret
from tests.faults.audit import audit, sqlite_is_whole, wait_until_runs_have_ended
from tests.faults.limits import break_log_of_postgresql
from tests.faults.parts import Part, parts_of, wait_until_announced
from tests.faults.plant import serving_planted
from tests.faults.senders import Event, Fleet, Line, ask, request
from tests.faults.shim import Shim
from tests.support.counts import count
from tests.support.loaded import Command
from tests.support.postgres import PostgresServer
from tests.support.service import Answer, Service, operator, serving
from tests.support.waiting import until

RESTARTS = count(6, usually=2)
ANSWERED_SECONDS = 9.0
"""A sender is told after 5 s; the rest is a busy machine's. Without a watch of its own it would take 10 s."""
HEALED_SECONDS = 15.0
LARGE = b'"' + b"x" * 250_000 + b'"'
MEGABYTE = 1024 * 1024


def webhook_of(service: Service, name: str = "source") -> WebhookWithSecret:
    with service.management() as management:
        return management.webhooks.create(operator(management), name)


def automated_webhook_of(service: Service) -> tuple[WebhookWithSecret, str]:
    """And the automation that all its deliveries start."""
    with service.management() as management:
        may = operator(management)
        made = management.webhooks.create(may, "automated")
        trigger = {"provider": "webhook", "event": "received", "filter": {"webhook_ids": [made.webhook.uid]}}
        return made, management.automations.create(may, "all", prompt="Look.", triggers=[trigger]).id


def unique() -> bytes:
    return b"[%d]" % time.monotonic_ns()


def timed(service: Service, sent: bytes) -> tuple[int, float]:
    """The status, and after how many seconds it came."""
    began = time.monotonic()
    answer = ask(service.port, sent)
    assert answer is not None, "no answer came"
    if answer.status == 503:
        assert int(answer.headers["retry-after"]) > 0
    return answer.status, time.monotonic() - began


def to_nobody() -> bytes:
    return b"POST /webhooks/w/wh_nobody HTTP/1.1\r\nHost: hooks.test\r\nContent-Length: 2\r\n\r\n{}"


def heals(service: Service, made: WebhookWithSecret) -> None:
    until(lambda: timed(service, request(made, unique()))[0] == 202, "a delivery is taken", seconds=HEALED_SECONDS)
    until(lambda: service.request("GET", "/readyz").status == 200, "the service is ready", seconds=HEALED_SECONDS)


# PostgreSQL restarts, or is gone


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    with PostgresServer.start() as server:
        yield server


@pytest.mark.timeout(180)
def test_restarts_of_postgresql_under_load_lose_and_double_nothing(own_server: PostgresServer, tmp_path: Path):
    url = own_server.create_database()
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    healed: list[float] = []
    with serving(tmp_path / "data", database_url=url, deliveries_per_minute=100_000, runs_at_once=24) as service:
        made, automation = automated_webhook_of(service)

        def draw(_: random.Random, number: int) -> Event:
            return Event(made, b'{"number": %d}' % number, starts=frozenset({automation}))

        with Fleet([service.port], draw, chance, per_second=50, senders=16) as fleet:
            for number in range(RESTARTS):
                time.sleep(chance.uniform(0.3, 1.2))
                own_server.restart("fast" if number % 2 else "immediate")
                back, before = time.monotonic(), fleet.answers["202"]
                until(lambda: fleet.answers["202"] > before + 5, "deliveries are taken", seconds=HEALED_SECONDS)  # noqa: B023
                healed.append(time.monotonic() - back)
            fleet.settle(40)
        wait_until_runs_have_ended(url)
        findings = audit(url, fleet.events)

    print(findings.line("PostgreSQL restarted", kills=RESTARTS, seed=seed))
    print(f"answered {dict(fleet.answers)}, taken again after {[round(seconds, 1) for seconds in healed]} s")
    assert fleet.unexpected == []
    assert findings.troubles() == {}


def test_postgresql_that_cannot_write_its_log_loses_no_acceptance(own_server: PostgresServer, tmp_path: Path):
    url = own_server.create_database()
    with serving(tmp_path / "data", database_url=url, deliveries_per_minute=100_000) as service:
        made, automation = automated_webhook_of(service)

        def draw(_: random.Random, number: int) -> Event:
            return Event(made, b'{"number": %d}' % number, starts=frozenset({automation}))

        with Fleet([service.port], draw, random.Random(3), per_second=50, senders=8) as fleet:
            until(lambda: fleet.taken > 5, "deliveries are accepted")
            has_crashed = break_log_of_postgresql(url)
            until(lambda: fleet.answers["503"] > 0, "senders are answered 503")
            accepted = fleet.taken
            until(lambda: fleet.taken > accepted + 5, "deliveries are accepted again", seconds=HEALED_SECONDS)
            fleet.settle(40)
        wait_until_runs_have_ended(url)
        findings = audit(url, fleet.events)

    assert has_crashed
    assert fleet.unexpected == []
    assert findings.troubles() == {}


def test_senders_are_answered_503_while_postgresql_is_gone(own_server: PostgresServer, tmp_path: Path):
    url = own_server.create_database()
    with serving(tmp_path / "data", database_url=url, deliveries_per_minute=1_000, performs_runs=False) as service:
        made = webhook_of(service)
        assert timed(service, request(made, unique()))[0] == 202
        with own_server.down():
            told = [timed(service, sent) for sent in (request(made, unique()), request(made, b"no JSON"), to_nobody())]
            health = service.request("GET", "/healthz").status
            readiness = service.request("GET", "/readyz").status
        heals(service, made)

    assert [status for status, _ in told] == [503, 503, 503], "nobody can say that there is no such webhook"
    assert max(seconds for _, seconds in told) < ANSWERED_SECONDS
    assert (health, readiness) == (200, 503)


# PostgreSQL falls silent


@dataclass(frozen=True, slots=True)
class Silent:
    service: Service
    made: WebhookWithSecret
    shim: Shim


@pytest.fixture
def service_on_silent_database(postgres_url: str, tmp_path: Path) -> Iterator[Silent]:
    """A service whose database no longer answers, and does not hang up either."""
    parts = urlsplit(postgres_url)
    assert parts.port is not None
    with Shim(parts.port) as shim:
        url = parts._replace(netloc=parts.netloc.replace(f":{parts.port}", f":{shim.port}")).geturl()
        with serving(tmp_path / "data", database_url=url, deliveries_per_minute=100_000) as service:
            made, _ = automated_webhook_of(service)
            wait_until_announced(service)
            assert timed(service, request(made, unique()))[0] == 202
            shim.fall_silent()
            yield Silent(service, made, shim)
            shim.speak_again()


def test_senders_are_answered_503_while_postgresql_is_silent(service_on_silent_database: Silent):
    service, made = service_on_silent_database.service, service_on_silent_database.made
    asked = {
        "a delivery": request(made, unique()),
        "no JSON": request(made, b"no JSON"),
        "a stranger": request(made, unique(), token="wrong"),
        "nobody": to_nobody(),
    }
    told: dict[str, tuple[int, float]] = {}
    asking = [
        threading.Thread(target=lambda name, sent: told.update({name: timed(service, sent)}), args=item)
        for item in asked.items()
    ]
    for thread in asking:
        thread.start()
    readiness = threading.Thread(target=lambda: told.update(ready=(service.request("GET", "/readyz").status, 0.0)))
    readiness.start()
    time.sleep(1)
    began = time.monotonic()
    health = service.request("GET", "/healthz").status
    healthy_after = time.monotonic() - began
    for thread in (*asking, readiness):
        thread.join()
    service_on_silent_database.shim.speak_again()
    heals(service, made)

    assert {name: status for name, (status, _) in told.items()} == dict.fromkeys((*asked, "ready"), 503)
    assert max(seconds for _, seconds in told.values()) < ANSWERED_SECONDS
    assert health == 200
    assert healthy_after < 3.5, "nobody who needs no database waits for it"


def test_memory_stays_bounded_while_postgresql_is_silent(service_on_silent_database: Silent):
    # Twice as much as may be held is offered: one load after the other is given up.
    ingress = parts_of(service_on_silent_database.service)[Part.INGRESS][0]
    before = ingress.memory_info().rss
    grown: list[int] = []
    answers: Counter[int] = Counter()
    for round_ in range(4):
        with contextlib.ExitStack() as connections:
            lines = [connections.enter_context(Line(service_on_silent_database.service.port)) for _ in range(500)]
            for number, line in enumerate(lines):
                assert line.say(request(service_on_silent_database.made, b"[%d, %d, %b]" % (round_, number, LARGE)))
            answers.update(answer.status for line in lines if (answer := line.answer()) is not None)
            grown.append((ingress.memory_info().rss - before) // MEGABYTE)
    service_on_silent_database.shim.speak_again()
    heals(service_on_silent_database.service, service_on_silent_database.made)

    print(f"grown by {grown} MB")
    assert answers == {503: 4 * 500}
    assert max(grown) < 4 * 64 + 64


def test_a_connection_that_stays_silent_for_ever_is_given_up(service_on_silent_database: Silent):
    assert timed(service_on_silent_database.service, request(service_on_silent_database.made, unique()))[0] == 503

    # As after a failover behind the same address: the new server knows nothing of the old connections.
    service_on_silent_database.shim.forget()
    until(
        lambda: timed(service_on_silent_database.service, request(service_on_silent_database.made, unique()))[0] == 202,
        "a delivery is taken",
        seconds=HEALED_SECONDS + 10,
    )

    def states() -> set[str]:
        with service_on_silent_database.service.management() as management:
            return {run.state for run in management.runs.newest(operator(management), limit=100)}

    until(lambda: states() == {"succeeded"}, "every run was performed")


# PostgreSQL takes no writes


def test_a_postgresql_that_only_reads_takes_no_delivery(own_server: PostgresServer, tmp_path: Path):
    # As after a failover that left the service with the standby.
    url = own_server.create_database()
    name = urlsplit(url).path.removeprefix("/")
    with serving(tmp_path / "data", database_url=url, deliveries_per_minute=1_000, performs_runs=False) as service:
        made = webhook_of(service)
        assert timed(service, request(made, unique()))[0] == 202
        administer(own_server, name, "SET default_transaction_read_only = on")
        until(lambda: timed(service, request(made, unique()))[0] == 503, "the service notices")
        told = [timed(service, request(made, unique())) for _ in range(5)]
        readiness = {service.request("GET", "/readyz").status for _ in range(5)}
        nobody = timed(service, to_nobody())[0]
        administer(own_server, name, "RESET default_transaction_read_only", ends_sessions=False)
        heals(service, made)

    assert {status for status, _ in told} == {503}
    assert readiness == {503}
    assert nobody == 404, "what can be read can be said"


def administer(server: PostgresServer, name: str, change: str, *, ends_sessions: bool = True) -> None:
    """Change the database for sessions to come, and end those that are there or leave them as they are."""
    with psycopg.connect(server.admin_url, autocommit=True) as connection:
        connection.execute(f'ALTER DATABASE "{name}" {change}'.encode())
        if ends_sessions:
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])


def test_a_locked_webhook_is_the_only_one_that_waits(postgres_url: str, tmp_path: Path):
    with serving(
        tmp_path / "data", database_url=postgres_url, deliveries_per_minute=1_000, performs_runs=False
    ) as service:
        held, other = webhook_of(service, "held"), webhook_of(service, "other")
        told: list[tuple[int, float]] = []
        with psycopg.connect(postgres_url) as holder:
            holder.execute("SELECT no FROM webhooks WHERE uid = %s FOR UPDATE", [held.webhook.uid])
            waiting = threading.Thread(target=lambda: told.append(timed(service, request(held, unique()))))
            waiting.start()
            beside = [timed(service, request(other, unique())) for _ in range(20)]
            is_waiting = waiting.is_alive()
            waiting.join()
        heals(service, held)

    assert {status for status, _ in beside} == {202}
    assert is_waiting, "the others were answered before the one that is held was given up"
    ((status, seconds),) = told
    assert status == 503
    assert seconds < ANSWERED_SECONDS


# SQLite


def test_senders_are_answered_503_while_another_process_writes(tmp_path: Path):
    with serving(tmp_path / "data", deliveries_per_minute=1_000, performs_runs=False) as service:
        made = webhook_of(service)
        assert timed(service, request(made, unique()))[0] == 202
        with contextlib.closing(sqlite3.connect(tmp_path / "data" / "hookmill.db", isolation_level=None)) as holder:
            holder.execute("PRAGMA wal_autocheckpoint = 0")
            holder.execute("BEGIN IMMEDIATE")
            since = time.monotonic()
            told = [timed(service, request(made, unique())) for _ in range(2)]
            # An answer at all: nobody lets go of the writer's place before it came.
            nobody, _ = timed(service, to_nobody())
            time.sleep(max(0.0, since + 5 - time.monotonic()))
            holder.execute("ROLLBACK")
        heals(service, made)

    assert [status for status, _ in told] == [503, 503]
    assert max(seconds for _, seconds in told) < ANSWERED_SECONDS
    assert nobody == 404, "who only reads does not wait"
    assert sqlite_is_whole(tmp_path / "data" / "hookmill.db")


class Disk:
    """A disk that can be full: a small one where it may be mounted, and else a limit on the database's pages."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "disk"
        self.directory.mkdir()
        self._pages = directory / "pages"
        mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "hookmill-test", str(self.directory)]
        self._mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0
        self.planted = {} if self._mounted else {"PAGES": str(self._pages)}

    def fill(self) -> None:
        if not self._mounted:
            with contextlib.closing(sqlite3.connect(self.directory / "data" / "hookmill.db")) as connection:
                self._pages.write_text(str(connection.execute("PRAGMA page_count").fetchone()[0]))
            return
        with contextlib.suppress(OSError), (self.directory / "filling").open("wb", buffering=0) as filling:
            while True:
                filling.write(bytes(MEGABYTE // 16))

    def free(self) -> None:
        self._pages.unlink(missing_ok=True)
        (self.directory / "filling").unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._mounted:
            # What has just ended may still hold a file.
            until(lambda: not subprocess.run(["umount", str(self.directory)]).returncode, "it is unmounted")

    def __str__(self) -> str:
        return "a small disk" if self._mounted else "a limit on the database's pages"


def test_a_full_disk_is_answered_503_and_loses_no_acceptance(tmp_path: Path):
    with Disk(tmp_path) as disk:
        print(disk)
        data = disk.directory / "data"
        with serving_planted(data, disk.planted, deliveries_per_minute=10_000, free_space_min_mb=0) as service:
            made = webhook_of(service)
            taken: list[str] = []

            def post() -> Answer:
                answer = ask(service.port, request(made, b"[%b, %d]" % (LARGE, time.monotonic_ns())))
                assert answer is not None
                if answer.status == 202:
                    taken.append(answer.delivery_id)
                return answer

            for _ in range(5):
                assert post().status == 202
            disk.fill()
            until(lambda: post().status == 503, "the disk is full")
            refused = [post() for _ in range(10)]
            nobody = timed(service, to_nobody())[0]
            with service.management() as management:
                read = management.log.newest(operator(management), limit=1_000)
            disk.free()
            heals(service, made)
            with service.management() as management:
                may = operator(management)
                kept = {delivery_id(row.key) for row in management.log.newest(may, limit=1_000)}
            assert service.stop() == 0

        assert {answer.status for answer in refused} <= {503, 202}
        assert all(answer.headers["retry-after"] for answer in refused if answer.status == 503)
        assert nobody == 404
        assert {delivery_id(row.key) for row in read} <= kept
        assert set(taken) <= kept
        assert sqlite_is_whole(data / "hookmill.db")


def test_below_the_free_space_that_is_to_be_kept_nothing_is_added(tmp_path: Path):
    more_than_there_is = shutil.disk_usage(tmp_path).free // MEGABYTE + 1_000_000
    with serving(tmp_path / "data", performs_runs=False) as service:
        made = webhook_of(service)
        with service.management() as management:
            key = management.keys.create(
                management.access.operator_of_team(), "a manager", Role.MANAGER, factory="default"
            ).token.reveal()
        service.stop()
        service.settings = {**service.settings, "FREE_SPACE_MIN_MB": str(more_than_there_is)}
        service.start()

        told = [timed(service, request(made, unique()))[0] for _ in range(3)]
        nobody = timed(service, to_nobody())[0]
        webhooks = "/api/v1/factories/default/webhooks"
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        created = service.request("POST", webhooks, headers=headers, body=b'{"name": "new"}')
        disabled = service.request(
            "PATCH", f"{webhooks}/{made.webhook.uid}", headers=headers, body=b'{"enabled": false}'
        )
        output = tmp_path / "output"
        command = Command(["webhook", "create", "new"], service.environment(), tmp_path, output)
        assert command.wait(60) == 1
        with service.management() as management:
            log = management.log.newest(operator(management), webhook=made.webhook.uid)
            states = {webhook.name: webhook.state for webhook in management.webhooks.all(operator(management))}

    assert told == [503] * 3
    assert nobody == 404
    assert list(log) == []
    assert (created.status, created.json["code"]) == (503, "unavailable")
    assert disabled.status == 200
    assert states == {"first": WebhookState.ENABLED, "source": WebhookState.DISABLED}
    assert output.read_text() == f"{created.json['detail']}\n"
