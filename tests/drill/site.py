"""The installation of a drill: its services and workers, each with its own clock and its own proxy to the database."""

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import psycopg

from hookmill.management import Management
from tests.faults.fault_injection import FaultyService
from tests.faults.parts import wait_until_announced
from tests.faults.tcp_proxy import TcpProxy
from tests.support.loaded import Command
from tests.support.ports import free_port
from tests.support.postgres import PostgresServer
from tests.support.waiting import until

SHARED_KEY: Final = "A" * 43 + "="
RUNNER: Final = "note"
RUN_SECONDS: Final = 0.1
SETTINGS: Final[dict[str, Any]] = {
    "deliveries_per_minute": 100_000,
    "failed_authentications_per_minute": 100_000,
    "webhooks_per_factory": 100,
    "runs_at_once": 8,
    "run_attempts_max": 100,
    "master_key": SHARED_KEY,
}


class DatabaseKind(Enum):
    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"


class WorkerHost(FaultyService):
    """A `hookmill worker`, which has no port."""

    def start(self) -> "WorkerHost":
        """Start the worker, and wait until it performs runs."""
        self.port = self.port or free_port()
        self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.process = Command(["worker"], self.environment(), self.data_dir, self.log_path)
        until(self._is_registered, lambda: f"the worker has started: {self.log()[-1_000:]}")
        return self

    def _is_registered(self) -> bool:
        assert self.database_url is not None
        assert self.process is not None
        with psycopg.connect(self.database_url) as connection:
            # The id of an executor contains the number of its process.
            rows = connection.execute("SELECT 1 FROM executors WHERE id LIKE %s", [f"%-{self.process.pid}-%"])
            return rows.fetchone() is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """SQLite: one service that performs its runs. PostgreSQL: two services and two workers."""

    kind: DatabaseKind
    url: str
    """The URL of the database, without a proxy."""
    services: Sequence[FaultyService]
    workers: Sequence[WorkerHost]
    proxies: Sequence[TcpProxy]
    """One for each of `hosts`. None with SQLite."""
    server: PostgresServer | None
    notes: Path
    """The file to which each performed attempt of a run adds a line: the run's id and the attempt's number."""

    @property
    def hosts(self) -> Sequence[FaultyService]:
        return [*self.services, *self.workers]

    @property
    def ports(self) -> list[int]:
        return [service.port for service in self.services]

    def management(self) -> AbstractContextManager[Management]:
        service = self.services[0]
        return (service if self.server is None else replace(service, database_url=self.url)).management()

    def restart(self, host: FaultyService):
        """Start a host that has ended, and wait until it can recover from the next fault."""
        logged_before = len(host.log())
        host.start()
        if host in self.services:
            wait_until_announced(host, since=logged_before)

    def require_hosts(self):
        """Fail if a host has ended by itself."""
        ended = [host for host in self.hosts if host.process is None or host.process.poll() is not None]
        assert not ended, "\n".join(f"{host.data_dir.name} has ended: {host.log()[-1_000:]}" for host in ended)

    def stop(self) -> int:
        """Send SIGTERM to every host. Returns the number of hosts with another exit code than 0."""
        return sum(host.stop() != 0 for host in self.hosts)


@contextmanager
def running_site(kind: DatabaseKind, directory: Path) -> Iterator[Site]:
    """Run a new installation with its files in `directory`, and kill all its processes when the block ends."""
    notes = directory / "notes"
    notes.touch()
    script = f'echo "$HOOKMILL_RUN_ID $HOOKMILL_ATTEMPT" >> {notes}; sleep {RUN_SECONDS}'
    settings = SETTINGS | {"runners": json.dumps({RUNNER: {"argv": ["sh", "-c", script]}})}
    with ExitStack() as stack:
        if kind is DatabaseKind.SQLITE:
            service = _start_host(stack, FaultyService, directory / "service", None, settings)
            url = service.read_settings().store_url()
            yield Site(kind=kind, url=url, services=[service], workers=[], proxies=[], server=None, notes=notes)
            return
        server = stack.enter_context(PostgresServer.start())
        url = server.create_database()
        proxies = [stack.enter_context(TcpProxy(_port_of(url))) for _ in range(4)]
        urls = [url.replace(f":{_port_of(url)}/", f":{proxy.port}/") for proxy in proxies]
        settings["performs_runs"] = False
        services = [
            _start_host(stack, FaultyService, directory / f"service-{number}", urls[number], settings)
            for number in range(2)
        ]
        workers = [
            _start_host(stack, WorkerHost, directory / f"worker-{number}", urls[2 + number], settings)
            for number in range(2)
        ]
        yield Site(kind=kind, url=url, services=services, workers=workers, proxies=proxies, server=server, notes=notes)


def _start_host(
    stack: ExitStack, host_type: type[FaultyService], data_dir: Path, url: str | None, settings: dict[str, Any]
) -> Any:
    # Only SQLite has a limit on pages.
    faults = ("CLOCK", "PAGES") if url is None else ("CLOCK",)
    host = host_type(
        data_dir,
        database_url=url,
        settings={name.upper(): str(value) for name, value in settings.items()},
        faults={name: str(data_dir.with_suffix(f".{name.lower()}")) for name in faults},
    )
    set_clock(host, 0)
    stack.callback(_kill_if_running, host)
    host.start()
    if host_type is FaultyService:
        wait_until_announced(host)
    return host


def _kill_if_running(host: FaultyService):
    if host.process is not None and host.process.poll() is None:
        # SIGKILL also ends a paused process.
        host.kill()


def set_clock(host: FaultyService, seconds: int):
    """Let the host's clock differ from this machine's clock by this many seconds."""
    path = Path(host.faults["CLOCK"])
    path.touch()
    with path.open("r+b") as file:
        file.write(seconds.to_bytes(8, "little", signed=True))


def _port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port
