"""An installation on two hosts with one PostgreSQL. Each host has its own ingress, worker, data directory and network
link."""

import itertools
import json
import random
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from hookmill.domain.ids import RunKey, delivery_key, run_id
from hookmill.domain.permission import Role
from hookmill.management import Management, WebhookWithSecret
from hookmill.store.database import open_database
from hookmill.store.keys.sealing import as_text, new_master_key
from hookmill.web.dashboard.access import cookie_name
from tests.faults.senders import Event, LoadGenerator, delivery_request, exchange
from tests.faults.sources import Source, create_sources
from tests.faults.tcp_proxy import TcpProxy
from tests.support.automations import automation_created
from tests.support.hosts import Host, Network, ProcessOnHost
from tests.support.ports import free_port
from tests.support.service import Answer, Service, create_webhook, operator
from tests.support.triggers import received
from tests.support.waiting import until

NAMES: Final = ("host-a", "host-b")
READY_SECONDS: Final = 60.0
COMMAND_SECONDS_MAX: Final = 120
API_KEYS: Final = 5
PASSWORD: Final = "correct horse battery staple"
SCRIPT: Final = """
attempt="attempt $HOOKMILL_ATTEMPT on $(uname -n)"
echo "$HOOKMILL_RUN_ID $HOOKMILL_ATTEMPT" >> {notes}
echo "$attempt begins"
{wait}
echo "$attempt ends"
echo "$attempt" > result.txt
echo "$HOOKMILL_RUN_ID $HOOKMILL_ATTEMPT" >> {ended}
"""
WAIT: Final = 'until test -e "{gates}/$HOOKMILL_RUN_ID $HOOKMILL_ATTEMPT"; do sleep 0.2; done'
"""An attempt of a gated run waits for a file whose name contains the run's id and the attempt's number."""


@dataclass(slots=True)
class HookmillHost:
    """One of the two hosts. `service` has the settings of the host, and sends requests to it from this machine."""

    host: Host
    service: Service
    processes: Sequence[ProcessOnHost] = ()

    @property
    def name(self) -> str:
        return self.host.name

    @property
    def port(self) -> int:
        return self.service.port

    @property
    def worker(self) -> ProcessOnHost:
        return self.processes[1]

    def start(self):
        """Start the service and the worker. Their logs are `service.log` and `worker.log` in the data directory."""
        data_dir = self.service.data_dir
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.processes = [
            self.host.start(["hookmill", command], self.service.environment(), data_dir, data_dir / log)
            for command, log in (("serve", "service.log"), ("worker", "worker.log"))
        ]

    def is_ready(self) -> bool:
        try:
            return self.service.request("GET", "/readyz").status == 200
        except OSError:
            return False

    def wait_until_ready(self):
        until(self.is_ready, lambda: f"{self.name} is ready: {self.log()}", seconds=READY_SECONDS)

    def log(self) -> str:
        """The last lines of both logs."""
        logs = sorted(self.service.data_dir.glob("*.log"))
        return "\n".join(f"{log.name}: {log.read_text(errors='replace')[-1_000:]}" for log in logs)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    id: str
    attempt: int
    state: str
    host: str | None
    """The name of the host whose worker has claimed the run."""
    created_at: int
    """In µs since 1970."""


@dataclass(slots=True, kw_only=True)
class TwoHosts:
    hosts: Sequence[HookmillHost]
    url: str
    """The URL of the database on this machine, outside the hosts' network."""
    directory: Path
    sources: Sequence[Source]
    gated: Source
    """The webhook whose runs end only after `let_end`."""
    tokens: Iterator[str]
    """Tokens of several API keys in turn, because each key has a rate limit."""
    session: str
    """The session of a member who is signed in to the dashboard."""
    events: list[Event] = field(default_factory=list)
    """The events that were sent so far, except those of a running `load`."""

    @property
    def ports(self) -> list[int]:
        return [host.port for host in self.hosts]

    @property
    def notes(self) -> Path:
        """The file to which each attempt of a command adds a line: the run's id and the attempt's number."""
        return self.directory / "notes"

    def has_ended(self, run: str, attempt: int) -> bool:
        """Whether the attempt's command has ended by itself."""
        return f"{run} {attempt}" in (self.directory / "ended").read_text().splitlines()

    def let_end(self, run: str, attempt: int):
        """Let the command of a gated run end."""
        (self.directory / "gates" / f"{run} {attempt}").touch()

    @contextmanager
    def load(self, chance: random.Random, **options: Any) -> Iterator[LoadGenerator]:
        """Deliver to both hosts while the block runs."""

        def new_event(chance: random.Random, number: int) -> Event:
            return chance.choice(self.sources).new_event(chance, len(self.events) * 1_000_000 + number)

        with LoadGenerator(self.ports, new_event, chance, **options) as load:
            yield load
        self.events += load.events

    def start_gated_runs(self, count: int) -> list[str]:
        """Start runs by deliveries to both hosts, and wait until workers have claimed them. Returns their ids."""
        runs = []
        for number in range(count):
            body = b'{"gated": %d}' % time.monotonic_ns()
            event = Event(self.gated.webhook, body, automations=self.gated.always)
            answer = exchange(self.ports[number % 2], delivery_request(self.gated.webhook, body))
            assert answer is not None
            assert answer.status == 202
            event.delivery_ids.append(answer.delivery_id)
            self.events.append(event)
            with open_database(self.url) as database, database.read() as tx:
                row = tx.one("SELECT id FROM runs WHERE delivery_id = :id", id=delivery_key(answer.delivery_id))
            assert row is not None
            runs.append(run_id(RunKey(bytes(row["id"]))))
        until(lambda: all(self.runs[run].state == "running" for run in runs), "workers perform the gated runs")
        return runs

    @property
    def runs(self) -> Mapping[str, RunRow]:
        with open_database(self.url) as database, database.read() as tx:
            rows = tx.all("SELECT id, attempt, state, executor, created_at FROM runs ORDER BY id")
        runs = [
            RunRow(
                id=run_id(RunKey(bytes(row["id"]))),
                attempt=row["attempt"],
                state=row["state"],
                host=row["executor"].rsplit("-", 2)[0] if row["executor"] is not None else None,
                created_at=row["created_at"],
            )
            for row in rows
        ]
        return {row.id: row for row in runs}

    def get(self, host: HookmillHost, path: str) -> Answer:
        """Send a GET request to the API of this host. `path` is relative to the factory."""
        headers = {"Authorization": f"Bearer {next(self.tokens)}"}
        return host.service.request("GET", f"/api/v1/factories/default{path}", headers=headers)

    def output(self, host: HookmillHost, run: str) -> str:
        """The output that the API of this host shows."""
        return str(self.get(host, f"/runs/{run}/output").json["output"])

    def page(self, host: HookmillHost, run: str) -> str:
        """The page of the run in this host's dashboard."""
        headers = {"Cookie": f"{cookie_name(False)}={self.session}"}
        answer = host.service.request("GET", f"/f/default/runs/{run}", headers=headers)
        assert answer.status == 200, answer
        return answer.body.decode()


@contextmanager
def two_hosts(url: str, directory: Path, **settings: Any) -> Iterator[TwoHosts]:
    """Run a new installation until the block ends. `url` is its database, which has the schema of this version."""
    for name in ("notes", "ended"):
        (directory / name).touch()
    gates = directory / "gates"
    gates.mkdir()
    runners = {
        name: {
            "argv": ["sh", "-c", SCRIPT.format(notes=directory / "notes", ended=directory / "ended", wait=wait)],
            "time_limit_seconds": COMMAND_SECONDS_MAX,
        }
        for name, wait in (("note", "sleep 0.1"), ("gated", WAIT.format(gates=gates)))
    }
    shared = {
        "host": "0.0.0.0",
        "performs_runs": False,
        "master_key": as_text(new_master_key()),
        "runners": json.dumps(runners),
        **settings,
    }
    with ExitStack() as stack:
        network = stack.enter_context(Network(*NAMES))
        database_port = urlsplit(url).port
        assert database_port is not None
        listener = network.listen()
        stack.enter_context(TcpProxy(database_port, listener))
        account = urlsplit(url).netloc.rpartition("@")[0]
        netloc = f"{account}@{network.address}:{listener.getsockname()[1]}"
        hosts = []
        for host in network.hosts:
            port = free_port()
            service = Service(
                directory / host.name,
                database_url=urlsplit(url)._replace(netloc=netloc).geturl(),
                settings={name.upper(): str(value) for name, value in shared.items()},
                port=port,
            )
            stack.enter_context(_proxy_to(host, port))
            hosts.append(HookmillHost(host, service))
        # The first start creates the team and the factory.
        for host_with_service in hosts:
            host_with_service.start()
            host_with_service.wait_until_ready()
        yield _with_objects(hosts, url, directory)


def _proxy_to(host: Host, port: int) -> TcpProxy:
    """Forwards connections from a port of this machine to the same port of the host."""
    return TcpProxy(lambda: host.connect(port), socket.create_server(("127.0.0.1", port)))


def _with_objects(hosts: Sequence[HookmillHost], url: str, directory: Path) -> TwoHosts:
    """Create the webhooks, automations, keys and the member that the tests need."""
    with replace(hosts[0].service, database_url=url).management() as management:
        sources = create_sources(management, runner="note")
        gated = create_webhook(management, "gated")
        return TwoHosts(
            hosts=hosts,
            url=url,
            directory=directory,
            sources=sources,
            gated=Source(gated, frozenset({_gated_automation(management, gated)}), frozenset()),
            tokens=itertools.cycle(_tokens(management)),
            session=_session(management),
        )


def _gated_automation(management: Management, webhook: WebhookWithSecret) -> str:
    trigger = received(webhook.webhook.uid)
    automation = automation_created(management, operator(management), "gated", triggers=[trigger], runner="gated")
    return str(automation.id)


def _tokens(management: Management) -> list[str]:
    may = management.access.operator_of_team()
    keys = [management.keys.create(may, f"key {n}", Role.VIEWER, factory="default") for n in range(API_KEYS)]
    return [key.token.reveal() for key in keys]


def _session(management: Management) -> str:
    team = management.access.operator_of_team()
    management.members.add(team, "ada@example.com", "Ada", is_admin=True)
    link = management.sessions.create_link(team, "ada@example.com").reveal()
    return management.sessions.accept_link(link, password=PASSWORD, client=None).reveal()
