"""The database restarts, is down, does not respond, is read-only, locked or full.

Senders get a 503 in time, no accepted delivery is lost, and the service recovers by itself.
"""

import contextlib
import json
import random
import shutil
import sqlite3
import threading
import time
from collections import Counter
from dataclasses import dataclass
from urllib.parse import urlsplit

import psycopg
import pytest

from hookmill.domain.ids import delivery_id
from hookmill.domain.permission import Role
from hookmill.domain.webhook import WebhookState
from hookmill.management import WebhookWithSecret
from tests.faults.audit import audit, is_intact, wait_until_runs_have_ended
from tests.faults.fault_injection import serving_with_faults
from tests.faults.limits import crash_postgresql_by_failed_writes
from tests.faults.parts import Part, parts_of, wait_until_announced
from tests.faults.senders import Event, LoadGenerator, PersistentConnection, delivery_request, exchange
from tests.faults.small_disk import SmallDisk
from tests.faults.tcp_proxy import TcpProxy
from tests.support.automations import automation_created
from tests.support.counts import count
from tests.support.loaded import Command
from tests.support.postgres import PostgresServer
from tests.support.service import Service, create_webhook, operator, serving
from tests.support.triggers import received
from tests.support.waiting import stalls, until

RESTARTS = count(6, usually=2)
ANSWER_SECONDS_MAX = 9.0
"""The service answers 503 after 5 s, and later on a busy machine. Without this limit of its own, it would answer after
10 s."""
RECOVERY_SECONDS_MAX = 15.0
CRASHES_MAX = 9
LARGE_VALUE = b'"' + b"x" * 250_000 + b'"'
MEGABYTE = 1024 * 1024


def webhook_of(service: Service, name: str = "source") -> WebhookWithSecret:
    with service.management() as management:
        return create_webhook(management, name)


def automated_webhook_of(service: Service) -> tuple[WebhookWithSecret, str]:
    """A new webhook, and the id of the automation that all its deliveries start."""
    with service.management() as management:
        may = operator(management)
        webhook = management.webhooks.create(may, {"name": "automated"})
        trigger = received(webhook.webhook.uid)
        return webhook, automation_created(management, may, "all", triggers=[trigger]).id


def unique_body() -> bytes:
    return b"[%d]" % time.monotonic_ns()


def send_timed(service: Service, request: bytes) -> tuple[int, float]:
    """Send the request. Returns the status, and how many seconds the answer took, without stalls of the machine."""
    began = time.monotonic()
    with stalls() as stall_seconds:
        answer = exchange(service.port, request)
        seconds = time.monotonic() - began
    assert answer is not None, "no answer came"
    if answer.status == 503:
        assert int(answer.headers["retry-after"]) > 0
    return answer.status, seconds - sum(stall_seconds)


def request_to_unknown_webhook() -> bytes:
    return b"POST /webhooks/w/wh_unknown HTTP/1.1\r\nHost: hooks.test\r\nContent-Length: 2\r\n\r\n{}"


def require_recovery(service: Service, webhook: WebhookWithSecret):
    until(
        lambda: send_timed(service, delivery_request(webhook, unique_body()))[0] == 202,
        "a delivery is accepted",
        seconds=RECOVERY_SECONDS_MAX,
    )
    until(lambda: service.request("GET", "/readyz").status == 200, "the service is ready", seconds=RECOVERY_SECONDS_MAX)


# PostgreSQL restarts, crashes, or is down


@pytest.fixture(scope="module")
def own_server():
    """A PostgreSQL server that the tests of this module may stop."""
    with PostgresServer.start() as server:
        yield server


def wait_until_accepted_again(load: LoadGenerator, deliveries: int):
    """Return when the given number of further deliveries are accepted, within :data:`RECOVERY_SECONDS_MAX`."""
    accepted = load.answers["202"]
    until(
        lambda: load.answers["202"] >= accepted + deliveries,
        "deliveries are accepted again",
        seconds=RECOVERY_SECONDS_MAX,
    )


@pytest.mark.timeout(180)
@pytest.mark.proof
def test_postgresql_restarts_under_load_lose_and_double_no_delivery(own_server, tmp_path):
    url = own_server.create_database()
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    recovery_seconds: list[float] = []
    with serving(tmp_path / "data", database_url=url, deliveries_per_minute=100_000, runs_at_once=24) as service:
        webhook, automation = automated_webhook_of(service)

        def new_event(_, number):
            return Event(webhook, b'{"number": %d}' % number, automations=frozenset({automation}))

        with LoadGenerator([service.port], new_event, chance, per_second=50, senders=16) as load:
            for number in range(RESTARTS):
                time.sleep(chance.uniform(0.3, 1.2))
                own_server.restart("fast" if number % 2 else "immediate")
                restarted_at = time.monotonic()
                wait_until_accepted_again(load, 5)
                recovery_seconds.append(time.monotonic() - restarted_at)
            load.drain(40)
        wait_until_runs_have_ended(url)
        result = audit(url, load.events)

    print(result.summary("PostgreSQL restarted", kills=RESTARTS, seed=seed))
    print(f"answers {dict(load.answers)}, accepted again after {[round(seconds, 1) for seconds in recovery_seconds]} s")
    assert load.unexpected_answers == []
    assert result.violations() == {}


def test_postgresql_that_cannot_write_its_log_loses_no_delivery(own_server, tmp_path):
    url = own_server.create_database()
    with serving(tmp_path / "data", database_url=url, deliveries_per_minute=100_000) as service:
        webhook, automation = automated_webhook_of(service)

        def new_event(_, number):
            return Event(webhook, b'{"number": %d}' % number, automations=frozenset({automation}))

        with LoadGenerator([service.port], new_event, random.Random(3), per_second=50, senders=8) as load:
            until(lambda: load.accepted > 5, "deliveries are accepted")
            have_crashed: list[bool] = []
            # A crash while only the worker writes, with a quick recovery, costs no sender a 503.
            while load.answers["503"] == 0 and len(have_crashed) < CRASHES_MAX:
                have_crashed.append(crash_postgresql_by_failed_writes(url))
                wait_until_accepted_again(load, 50)
            load.drain(40)
        wait_until_runs_have_ended(url)
        result = audit(url, load.events)

    assert all(have_crashed)
    assert load.answers["503"] > 0
    assert load.unexpected_answers == []
    assert result.violations() == {}


def test_requests_get_503_while_postgresql_is_down(own_server, tmp_path):
    url = own_server.create_database()
    with serving(tmp_path / "data", database_url=url, deliveries_per_minute=1_000, performs_runs=False) as service:
        webhook = webhook_of(service)
        assert send_timed(service, delivery_request(webhook, unique_body()))[0] == 202
        with own_server.down():
            answers = [
                send_timed(service, request)
                for request in (
                    delivery_request(webhook, unique_body()),
                    delivery_request(webhook, b"no JSON"),
                    request_to_unknown_webhook(),
                )
            ]
            health = service.request("GET", "/healthz").status
            readiness = service.request("GET", "/readyz").status
        require_recovery(service, webhook)

    assert [status for status, _ in answers] == [503, 503, 503], "only the database knows that a webhook is unknown"
    assert max(seconds for _, seconds in answers) < ANSWER_SECONDS_MAX
    assert (health, readiness) == (200, 503)


def test_log_has_one_line_per_component_while_postgresql_is_down(own_server, tmp_path):
    url = own_server.create_database()
    with serving(tmp_path / "data", database_url=url, deliveries_per_minute=1_000) as service:
        webhook = webhook_of(service)
        wait_until_announced(service)

        def faults():
            return [line for line in log_lines(service) if line["event"] == "failed"]

        def recovered():
            return [line["what"] for line in log_lines(service) if line["event"] == "recovered"]

        with own_server.down():
            for _ in range(10):
                send_timed(service, delivery_request(webhook, unique_body()))
            until(
                lambda: {"runs"} < {line["where"] for line in faults()} - {"alarms", "alarm destinations"},
                lambda: f"the worker and the ingress report faults:\n{service.log()}",
            )
            found = faults()
        until(lambda: len(recovered()) == 2, lambda: f"both processes report the end:\n{service.log()}")
        require_recovery(service, webhook)

    assert max(Counter(line["where"] for line in found).values()) == 1
    assert not [line["why"] for line in found if "a fault of type" in line["why"] or "\n" in line["why"]]
    assert set(recovered()) == {"The database accepts transactions again."}


def test_idle_sessions_that_the_server_ends_are_replaced_before_their_use(postgres_url, tmp_path):
    # As with `idle_session_timeout`, or with a proxy that closes idle connections.
    with serving(tmp_path / "data", database_url=postgres_url, deliveries_per_minute=1_000) as service:
        webhook, _ = automated_webhook_of(service)
        wait_until_announced(service)
        assert send_timed(service, delivery_request(webhook, unique_body()))[0] == 202
        wait_until_runs_have_ended(postgres_url)
        workers = parts_of(service)[Part.WORKER]
        statuses = []
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            for _ in range(3):
                connection.execute(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'idle'"
                )
                statuses.append(send_timed(service, delivery_request(webhook, unique_body()))[0])
                statuses.append(service.request("GET", "/readyz").status)
        wait_until_runs_have_ended(postgres_url)
        log = service.log()

        assert statuses == [202, 200] * 3
        assert parts_of(service)[Part.WORKER] == workers
        assert '"where": "admission"' not in log, log
        assert '"where": "worker"' not in log, log


def test_delivery_whose_transaction_conflicts_twice_is_accepted_once(postgres_url, tmp_path):
    with serving(tmp_path / "data", database_url=postgres_url, performs_runs=False) as service:
        webhook = webhook_of(service)
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            # A rollback does not reset a sequence.
            connection.execute("""
                CREATE SEQUENCE conflicts;
                CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                    IF nextval('conflicts') <= 2 THEN RAISE SQLSTATE '40001'; END IF;
                    RETURN NEW;
                END $$;
                CREATE TRIGGER conflict BEFORE INSERT ON deliveries FOR EACH ROW EXECUTE FUNCTION conflict();
            """)
        status = send_timed(service, delivery_request(webhook, unique_body()))[0]
        with service.management() as management:
            log = management.log.newest(operator(management), webhook=webhook.webhook.uid)

    assert status == 202
    assert len(log) == 1


# PostgreSQL does not respond


@dataclass(frozen=True, slots=True)
class StalledDatabase:
    """A service whose connections to the database are open, but nothing arrives on them."""

    service: Service
    webhook: WebhookWithSecret
    proxy: TcpProxy


@pytest.fixture
def stalled_database(postgres_url, tmp_path):
    parts = urlsplit(postgres_url)
    assert parts.port is not None
    with TcpProxy(parts.port) as proxy:
        url = parts._replace(netloc=parts.netloc.replace(f":{parts.port}", f":{proxy.port}")).geturl()
        with serving(tmp_path / "data", database_url=url, deliveries_per_minute=100_000) as service:
            webhook, _ = automated_webhook_of(service)
            wait_until_announced(service)
            assert send_timed(service, delivery_request(webhook, unique_body()))[0] == 202
            proxy.stall()
            yield StalledDatabase(service, webhook, proxy)
            proxy.resume()


def test_requests_get_503_while_postgresql_does_not_respond(stalled_database):
    service, webhook = stalled_database.service, stalled_database.webhook
    requests = {
        "delivery": delivery_request(webhook, unique_body()),
        "no JSON": delivery_request(webhook, b"no JSON"),
        "wrong token": delivery_request(webhook, unique_body(), token="wrong"),
        "unknown webhook": request_to_unknown_webhook(),
    }
    answers: dict[str, tuple[int, float]] = {}
    threads = [
        threading.Thread(target=lambda name, request: answers.update({name: send_timed(service, request)}), args=item)
        for item in requests.items()
    ]
    threads.append(
        threading.Thread(target=lambda: answers.update(ready=(service.request("GET", "/readyz").status, 0.0)))
    )
    for thread in threads:
        thread.start()
    time.sleep(1)
    began = time.monotonic()
    health = service.request("GET", "/healthz").status
    health_seconds = time.monotonic() - began
    for thread in threads:
        thread.join()
    stalled_database.proxy.resume()
    require_recovery(service, webhook)

    assert {name: status for name, (status, _) in answers.items()} == dict.fromkeys((*requests, "ready"), 503)
    assert max(seconds for _, seconds in answers.values()) < ANSWER_SECONDS_MAX
    assert health == 200
    assert health_seconds < 3.5, "requests that need no database don't wait for it"


@pytest.mark.proof
def test_memory_stays_bounded_while_postgresql_does_not_respond(stalled_database):
    # Each round sends twice as many bodies as the service may hold. Its requests get a 503 before the next round.
    ingress = parts_of(stalled_database.service)[Part.INGRESS][0]
    memory_before = ingress.memory_info().rss
    growth: list[int] = []
    answers: Counter[int] = Counter()
    for round_ in range(4):
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(PersistentConnection(stalled_database.service.port)) for _ in range(500)]
            for number, connection in enumerate(connections):
                body = b"[%d, %d, %b]" % (round_, number, LARGE_VALUE)
                assert connection.send(delivery_request(stalled_database.webhook, body))
            answers.update(
                answer.status for connection in connections if (answer := connection.read_answer()) is not None
            )
            growth.append((ingress.memory_info().rss - memory_before) // MEGABYTE)
    stalled_database.proxy.resume()
    require_recovery(stalled_database.service, stalled_database.webhook)

    print(f"the memory grew by {growth} MB")
    assert answers == {503: 4 * 500}
    assert max(growth) < 4 * 64 + 64


def test_database_connections_that_never_respond_are_replaced(stalled_database):
    service, webhook = stalled_database.service, stalled_database.webhook
    assert send_timed(service, delivery_request(webhook, unique_body()))[0] == 503

    # As after a failover behind the same address: the new server does not know the old connections.
    stalled_database.proxy.abandon_connections()
    until(
        lambda: send_timed(service, delivery_request(webhook, unique_body()))[0] == 202,
        "a delivery is accepted",
        seconds=RECOVERY_SECONDS_MAX + 10,
    )

    def states():
        with service.management() as management:
            return {run.state for run in management.runs.newest(operator(management), limit=100)}

    until(lambda: states() == {"succeeded"}, "every run has succeeded")


# PostgreSQL is read-only or locked


def test_deliveries_get_503_while_postgresql_is_read_only(own_server, tmp_path):
    # As after a failover that left the service connected to the standby.
    url = own_server.create_database()
    name = urlsplit(url).path.removeprefix("/")
    with serving(tmp_path / "data", database_url=url, deliveries_per_minute=1_000, performs_runs=False) as service:
        webhook = webhook_of(service)
        assert send_timed(service, delivery_request(webhook, unique_body()))[0] == 202
        alter_database(own_server, name, "SET default_transaction_read_only = on")
        until(
            lambda: send_timed(service, delivery_request(webhook, unique_body()))[0] == 503,
            "a delivery is answered 503",
        )
        statuses = {send_timed(service, delivery_request(webhook, unique_body()))[0] for _ in range(5)}
        readiness = {service.request("GET", "/readyz").status for _ in range(5)}
        unknown = send_timed(service, request_to_unknown_webhook())[0]
        alter_database(own_server, name, "RESET default_transaction_read_only", ends_sessions=False)
        require_recovery(service, webhook)

    assert statuses == {503}
    assert readiness == {503}
    assert unknown == 404, "the service can still read which webhooks there are"


def alter_database(server: PostgresServer, name: str, change: str, *, ends_sessions: bool = True):
    """Change a setting of the database for new sessions. Then end the open ones, or leave them unchanged."""
    with psycopg.connect(server.admin_url, autocommit=True) as connection:
        connection.execute(f'ALTER DATABASE "{name}" {change}'.encode())
        if ends_sessions:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", [name]
            )


def test_locked_webhook_delays_no_other_webhook(postgres_url, tmp_path):
    with serving(
        tmp_path / "data", database_url=postgres_url, deliveries_per_minute=1_000, performs_runs=False
    ) as service:
        locked, other = webhook_of(service, "locked"), webhook_of(service, "other")
        answers: list[tuple[int, float]] = []
        with psycopg.connect(postgres_url) as holder:
            holder.execute("SELECT no FROM webhooks WHERE uid = %s FOR UPDATE", [locked.webhook.uid])
            sender = threading.Thread(
                target=lambda: answers.append(send_timed(service, delivery_request(locked, unique_body())))
            )
            sender.start()
            others = [send_timed(service, delivery_request(other, unique_body())) for _ in range(20)]
            sender.join()
        require_recovery(service, locked)

    assert {status for status, _ in others} == {202}
    assert sorted(seconds for _, seconds in others)[10] < 1, "the deliveries to another webhook wait for no lock"
    ((status, seconds),) = answers
    assert status == 503
    assert seconds < ANSWER_SECONDS_MAX


# SQLite


def test_deliveries_get_503_while_another_process_locks_sqlite(tmp_path):
    with serving(tmp_path / "data", deliveries_per_minute=1_000, performs_runs=False) as service:
        webhook = webhook_of(service)
        assert send_timed(service, delivery_request(webhook, unique_body()))[0] == 202
        with contextlib.closing(sqlite3.connect(tmp_path / "data" / "hookmill.db", isolation_level=None)) as holder:
            holder.execute("PRAGMA wal_autocheckpoint = 0")
            holder.execute("BEGIN IMMEDIATE")
            locked_at = time.monotonic()
            answers = [send_timed(service, delivery_request(webhook, unique_body())) for _ in range(2)]
            # The lock is held until this answer has come.
            unknown, _ = send_timed(service, request_to_unknown_webhook())
            time.sleep(max(0.0, locked_at + 5 - time.monotonic()))
            holder.execute("ROLLBACK")
        require_recovery(service, webhook)

    assert [status for status, _ in answers] == [503, 503]
    assert max(seconds for _, seconds in answers) < ANSWER_SECONDS_MAX
    assert unknown == 404, "a request that only reads does not wait"
    assert is_intact(tmp_path / "data" / "hookmill.db")


def test_full_disk_gives_503_and_loses_no_accepted_delivery(tmp_path):
    with SmallDisk(tmp_path) as disk:
        print(disk)
        data = disk.directory / "data"
        with serving_with_faults(data, disk.faults, deliveries_per_minute=10_000, free_space_min_mb=0) as service:
            webhook = webhook_of(service)
            accepted: list[str] = []

            def post():
                body = b"[%b, %d]" % (LARGE_VALUE, time.monotonic_ns())
                answer = exchange(service.port, delivery_request(webhook, body))
                assert answer is not None
                if answer.status == 202:
                    accepted.append(answer.delivery_id)
                return answer

            for _ in range(5):
                assert post().status == 202
            disk.fill()
            until(lambda: post().status == 503, "the disk is full")
            answers = [post() for _ in range(10)]
            unknown = send_timed(service, request_to_unknown_webhook())[0]
            with service.management() as management:
                log_while_full = management.log.newest(operator(management), limit=1_000)
            disk.free()
            require_recovery(service, webhook)
            with service.management() as management:
                may = operator(management)
                logged = {delivery_id(row.key) for row in management.log.newest(may, limit=1_000)}
            assert service.stop() == 0

        assert {answer.status for answer in answers} <= {503, 202}
        assert all(answer.headers["retry-after"] for answer in answers if answer.status == 503)
        assert unknown == 404
        assert {delivery_id(row.key) for row in log_while_full} <= logged
        assert set(accepted) <= logged
        assert is_intact(data / "hookmill.db")


def test_low_disk_space_blocks_deliveries_and_new_webhooks(tmp_path):
    more_than_is_free = shutil.disk_usage(tmp_path).free // MEGABYTE + 1_000_000
    with serving(tmp_path / "data", performs_runs=False) as service:
        webhook = webhook_of(service)
        with service.management() as management:
            key = management.keys.create(
                management.access.operator_of_team(), "a manager", Role.MANAGER, factory="default"
            ).token.reveal()
        service.stop()
        service.settings = {**service.settings, "FREE_SPACE_MIN_MB": str(more_than_is_free)}
        service.start()

        statuses = [send_timed(service, delivery_request(webhook, unique_body()))[0] for _ in range(3)]
        unknown = send_timed(service, request_to_unknown_webhook())[0]
        readiness = service.request("GET", "/readyz").status
        webhooks = "/api/v1/factories/default/webhooks"
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        created = service.request("POST", webhooks, headers=headers, body=b'{"name": "new"}')
        disabled = service.request(
            "PATCH", f"{webhooks}/{webhook.webhook.uid}", headers=headers, body=b'{"enabled": false}'
        )
        output = tmp_path / "output"
        command = Command(["webhook", "create", "new"], service.environment(), tmp_path, output)
        assert command.wait(60) == 1
        with service.management() as management:
            log = management.log.newest(operator(management), webhook=webhook.webhook.uid)
            states = {each.name: each.state for each in management.webhooks.all(operator(management))}

    assert statuses == [503] * 3
    assert unknown == 404
    assert readiness == 200, "the dashboard stays reachable through a proxy"
    assert list(log) == []
    [fault] = [line for line in log_lines(service) if line.get("where") == "disk"]
    assert fault["event"] == "failed"
    assert f"less than free_space_min_mb ({more_than_is_free:,} MB). Free disk space" in fault["why"]
    assert (created.status, created.json["code"]) == (503, "unavailable")
    assert disabled.status == 200
    assert states == {"first": WebhookState.ENABLED, "source": WebhookState.DISABLED}
    assert output.read_text() == f"{created.json['detail']}\n"


def test_host_without_disk_space_is_not_ready_if_postgresql_stores_the_deliveries(postgres_url, tmp_path):
    data, away = tmp_path / "data", tmp_path / "away"
    with serving(data, database_url=postgres_url, performs_runs=False) as service:
        webhook = webhook_of(service)

        def readiness():
            return service.request("GET", "/readyz").status

        # Without the directory, the free space can't be read, which counts as no space.
        data.rename(away)
        until(lambda: readiness() == 503, "the host is not ready")
        while_full = send_timed(service, delivery_request(webhook, unique_body()))[0]
        away.rename(data)
        until(lambda: readiness() == 200, "the host is ready again")
        afterwards = send_timed(service, delivery_request(webhook, unique_body()))[0]
        lines = [line for line in log_lines(service) if line.get("where") == "disk"]

    assert (while_full, afterwards) == (503, 202)
    assert [(line["level"], line["event"]) for line in lines] == [("error", "failed"), ("info", "recovered")]
    assert lines[0]["why"] == (
        f"Deliveries get a 503. The free space of {data} can't be read: No such file or directory. Make the directory "
        "accessible."
    )
    assert lines[1]["what"] == f"{data} has enough free space: deliveries are accepted again."


def log_lines(service: Service) -> list[dict[str, str]]:
    return [json.loads(line) for line in service.log().splitlines() if line.startswith("{")]
