"""The faults of the drill, by name. Each fault lasts for a moment, and ends by itself."""

import contextlib
import random
import resource
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import psutil
import psycopg
from psycopg import sql

from hookmill.domain.errors import StoreUnavailable
from tests.drill.aged_log import AgedLog
from tests.drill.changing_webhook import ChangingWebhook
from tests.drill.site import DatabaseKind, Site, set_clock
from tests.faults.fault_injection import FaultyService
from tests.faults.limits import crash_postgresql_by_failed_writes, lowered_limit
from tests.faults.parts import Part, all_processes_of, kill_part, parts_of, still_running
from tests.faults.senders import LoadGenerator
from tests.support.ports import is_free
from tests.support.postgres import StopMode
from tests.support.waiting import LONG_SECONDS, until

T = TypeVar("T")
COPIES: Final = 16
CLOCK_OFFSETS_SECONDS: Final = (-3_600, -180, 180, 3_600)
RETRY_SECONDS_MAX: Final = 30.0
FILE_BYTES_MAX: Final = 4_096
"""Smaller than a page of SQLite's write-ahead log with its header."""
OPEN_FILES_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class EndedFault:
    """When the recovery begins, in monotonic seconds, and the ports that must accept deliveries again."""

    since: float
    ports: Sequence[int]


@dataclass(slots=True)
class FaultContext:
    """What a fault may use."""

    site: Site
    load: LoadGenerator
    chance: random.Random
    fault_seconds_max: float
    changing_webhook: ChangingWebhook
    aged_log: AgedLog
    unclean_stops: int = 0
    """The number of services and workers whose exit code after SIGTERM was not 0."""

    def let_last(self, factor: float = 1.0):
        """Let the fault last for a random time, up to `factor` times `fault_seconds_max`."""
        time.sleep(self.chance.uniform(0.3, 1.0) * self.fault_seconds_max * factor)

    def any_service(self) -> FaultyService:
        return self.chance.choice(self.site.services)

    def ended(self, *services: FaultyService, since: float | None = None) -> EndedFault:
        """The fault has ended. It affected these services, or without arguments all services."""
        ports = [service.port for service in services] or self.site.ports
        return EndedFault(time.monotonic() if since is None else since, ports)


Fault = Callable[[FaultContext], EndedFault]


def retry_while_unavailable(act: Callable[[], T]) -> T:
    """The result of `act`. While the database is unavailable, `act` is repeated."""
    deadline = time.monotonic() + RETRY_SECONDS_MAX
    while True:
        try:
            return act()
        except StoreUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


# Processes are killed or stopped


def kill(part: Part) -> Fault:
    def kill_process(context: FaultContext) -> EndedFault:
        service = context.any_service()
        since = time.monotonic()
        kill_part(service, part)
        return context.ended(service, since=since)

    return kill_process


def kill_service(context: FaultContext) -> EndedFault:
    service = context.any_service()
    since = time.monotonic()
    service.kill()
    context.site.restart(service)
    return context.ended(service, since=since)


def kill_supervisor(context: FaultContext) -> EndedFault:
    service = context.any_service()
    processes = all_processes_of(service)
    since = time.monotonic()
    assert service.process is not None
    service.process.kill()
    service.process.wait(LONG_SECONDS)
    until(lambda: not still_running(processes), "the processes of a killed supervisor have ended")
    until(lambda: is_free(service.port), "the port is free")
    context.site.restart(service)
    return context.ended(service, since=since)


def stop_service(context: FaultContext) -> EndedFault:
    service = context.any_service()
    since = time.monotonic()
    context.unclean_stops += service.stop() != 0
    context.site.restart(service)
    return context.ended(service, since=since)


def kill_worker(context: FaultContext) -> EndedFault:
    worker = context.chance.choice(context.site.workers)
    worker.kill()
    context.site.restart(worker)
    return context.ended()


def stop_worker(context: FaultContext) -> EndedFault:
    worker = context.chance.choice(context.site.workers)
    context.unclean_stops += worker.stop() != 0
    context.site.restart(worker)
    return context.ended()


# Processes are paused


@contextlib.contextmanager
def suspended(process: psutil.Process) -> Iterator[None]:
    process.suspend()
    try:
        yield
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()


def pause(part: Part) -> Fault:
    def pause_process(context: FaultContext) -> EndedFault:
        service = context.any_service()
        with suspended(_process_of(service, part)):
            context.let_last()
        return context.ended(service)

    return pause_process


def _process_of(service: FaultyService, part: Part) -> psutil.Process:
    return until(lambda: parts_of(service)[part], f"the service has a process of the kind {part}")[0]


def pause_worker(context: FaultContext) -> EndedFault:
    worker = context.chance.choice(context.site.workers)
    assert worker.process is not None
    with suspended(psutil.Process(worker.process.pid)):
        # Sometimes, this is so long that the other worker requeues its runs.
        context.let_last(factor=4)
    return context.ended()


# The host is out of file descriptors, or its clock is wrong


def exhaust_open_files(context: FaultContext) -> EndedFault:
    service = context.any_service()
    with lowered_limit(_process_of(service, Part.INGRESS).pid, resource.RLIMIT_NOFILE, OPEN_FILES_MAX):
        context.let_last()
    return context.ended(service)


def shift_clock(context: FaultContext) -> EndedFault:
    host = context.chance.choice(context.site.hosts)
    set_clock(host, context.chance.choice(CLOCK_OFFSETS_SECONDS))
    try:
        context.let_last()
    finally:
        set_clock(host, 0)
    return context.ended()


# SQLite


def _sqlite_file(context: FaultContext) -> Path:
    return context.site.services[0].data_dir / "hookmill.db"


def fill_disk(context: FaultContext) -> EndedFault:
    pages = Path(context.site.services[0].faults["PAGES"])
    with closing(sqlite3.connect(_sqlite_file(context))) as connection:
        prepared = pages.with_suffix(".new")
        prepared.write_text(str(connection.execute("PRAGMA page_count").fetchone()[0]))
    prepared.rename(pages)
    try:
        context.let_last()
    finally:
        pages.unlink()
    return context.ended()


def let_writes_fail(context: FaultContext) -> EndedFault:
    service = context.any_service()
    with lowered_limit(_process_of(service, Part.WRITER).pid, resource.RLIMIT_FSIZE, FILE_BYTES_MAX):
        context.let_last()
    return context.ended(service)


def lock_sqlite(context: FaultContext) -> EndedFault:
    with closing(sqlite3.connect(_sqlite_file(context), isolation_level=None, timeout=10)) as holder:
        # Checkpoints by several connections could corrupt the WAL.
        holder.execute("PRAGMA wal_autocheckpoint = 0")
        holder.execute("BEGIN IMMEDIATE")
        context.let_last(factor=1.5)
        holder.execute("ROLLBACK")
    return context.ended()


def move_database_away(context: FaultContext) -> EndedFault:
    path = _sqlite_file(context)
    away = path.with_name("away.db")
    path.rename(away)
    context.let_last()
    away.rename(path)
    return context.ended()


# PostgreSQL


def restart_postgresql(mode: StopMode) -> Fault:
    def restart_server(context: FaultContext) -> EndedFault:
        assert context.site.server is not None
        context.site.server.restart(mode)
        return context.ended()

    return restart_server


def crash_postgresql(context: FaultContext) -> EndedFault:
    has_crashed = crash_postgresql_by_failed_writes(context.site.url)
    assert has_crashed, "no server process has failed to write its log"
    return context.ended()


def _administer(context: FaultContext, *statements: str):
    """Execute the statements, in which `{}` is the name of the database. Then end all its sessions."""
    server = context.site.server
    assert server is not None
    name = sql.Identifier(context.site.url.rpartition("/")[2])
    with psycopg.connect(server.admin_url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(sql.SQL(statement).format(name))
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
            [context.site.url.rpartition("/")[2]],
        )


def end_sessions(context: FaultContext) -> EndedFault:
    _administer(context)
    return context.ended()


def make_read_only(context: FaultContext) -> EndedFault:
    _administer(context, "ALTER DATABASE {} SET default_transaction_read_only = on")
    try:
        context.let_last()
    finally:
        _administer(context, "ALTER DATABASE {} RESET default_transaction_read_only")
    return context.ended()


def lock_postgresql(context: FaultContext) -> EndedFault:
    with psycopg.connect(context.site.url) as holder:
        lock = context.chance.choice(("SELECT no FROM webhooks FOR UPDATE", "LOCK TABLE deliveries IN EXCLUSIVE MODE"))
        holder.execute(lock.encode())
        context.let_last(factor=1.5)
        holder.rollback()
    return context.ended()


def _proxy_of_any_host(context: FaultContext) -> tuple[Any, list[FaultyService]]:
    """The proxy between a host and the database, and the host if it is a service."""
    number = context.chance.randrange(len(context.site.hosts))
    return context.site.proxies[number], [*context.site.services][number : number + 1]


def close_connections(context: FaultContext) -> EndedFault:
    proxy, services = _proxy_of_any_host(context)
    proxy.close_connections()
    return context.ended(*services)


def stall_network(context: FaultContext) -> EndedFault:
    proxy, services = _proxy_of_any_host(context)
    proxy.stall()
    try:
        context.let_last(factor=2)
    finally:
        proxy.resume()
    return context.ended(*services)


def abandon_connections(context: FaultContext) -> EndedFault:
    proxy, services = _proxy_of_any_host(context)
    proxy.abandon_connections()
    return context.ended(*services)


# Events that are no faults, but race with deliveries


def send_copies(context: FaultContext) -> EndedFault:
    context.load.send_copies(COPIES)
    return context.ended()


def change_webhook(context: FaultContext) -> EndedFault:
    with ExitStack() as stack:
        management = retry_while_unavailable(lambda: stack.enter_context(context.site.management()))
        context.changing_webhook.change(management, context.chance, retry_while_unavailable)
    return context.ended()


def prune_log(context: FaultContext) -> EndedFault:
    context.aged_log.grow_and_prune(retry_while_unavailable)
    return context.ended()


_OF_BOTH: Final[Mapping[str, Fault]] = {
    "ingress killed": kill(Part.INGRESS),
    "writer killed": kill(Part.WRITER),
    "fork server killed": kill(Part.FORKS),
    "service killed and started": kill_service,
    "supervisor killed and started": kill_supervisor,
    "service stopped and started": stop_service,
    "ingress paused": pause(Part.INGRESS),
    "writer paused": pause(Part.WRITER),
    "ingress without open files": exhaust_open_files,
    "clock of a host wrong": shift_clock,
    "copies at one instant": send_copies,
    "secret rotated, webhook disabled": change_webhook,
    "retention during load": prune_log,
}
FAULTS: Final[Mapping[DatabaseKind, Mapping[str, Fault]]] = {
    DatabaseKind.SQLITE: {
        **_OF_BOTH,
        "worker killed": kill(Part.WORKER),
        "worker paused": pause(Part.WORKER),
        "disk full": fill_disk,
        "writes fail": let_writes_fail,
        "database locked": lock_sqlite,
        "database moved away": move_database_away,
    },
    DatabaseKind.POSTGRESQL: {
        **_OF_BOTH,
        "worker killed": kill_worker,
        "worker stopped and started": stop_worker,
        "worker paused": pause_worker,
        "database restarted (fast)": restart_postgresql("fast"),
        "database restarted (immediate)": restart_postgresql("immediate"),
        "database crashed, its log unwritable": crash_postgresql,
        "database read-only": make_read_only,
        "sessions ended by the server": end_sessions,
        "rows or tables locked": lock_postgresql,
        "connections cut": close_connections,
        "network silent": stall_network,
        "connections that stay silent": abandon_connections,
    },
}
SLOW: Final = frozenset({"connections that stay silent"})
"""Faults that the service needs more than ten seconds to notice."""
