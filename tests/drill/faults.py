"""The faults of the drill, by name. Each one happens, lasts for a moment, and ends."""

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
PATIENCE_SECONDS: Final = 30.0
FILE_BYTES_MAX: Final = 4_096
"""Less than a page of SQLite's write-ahead log with its header."""
OPEN_FILES_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A fault that is over: since when, in monotonic seconds, and the ports that must accept deliveries again."""

    since: float
    ports: Sequence[int]


@dataclass(slots=True)
class Scene:
    """What a fault may touch."""

    site: Site
    load: LoadGenerator
    chance: random.Random
    hold_seconds_max: float
    changing: ChangingWebhook
    aged: AgedLog
    unclean_stops: int = 0

    def hold(self, factor: float = 1.0) -> None:
        time.sleep(self.chance.uniform(0.3, 1.0) * self.hold_seconds_max * factor)

    def any_service(self) -> FaultyService:
        return self.chance.choice(self.site.services)

    def over(self, *services: FaultyService, since: float | None = None) -> Disturbance:
        """The fault has ended. Without services, it has touched all of them."""
        ports = [service.port for service in services] or self.site.ports
        return Disturbance(time.monotonic() if since is None else since, ports)


Fault = Callable[[Scene], Disturbance]


def patiently(act: Callable[[], T]) -> T:
    """The result of `act`, which is repeated while the store is unavailable."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return act()
        except StoreUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


# Processes end


def killed(part: Part) -> Fault:
    def kill(scene: Scene) -> Disturbance:
        service = scene.any_service()
        since = time.monotonic()
        kill_part(service, part)
        return scene.over(service, since=since)

    return kill


def killed_service(scene: Scene) -> Disturbance:
    service = scene.any_service()
    since = time.monotonic()
    service.kill()
    scene.site.restart(service)
    return scene.over(service, since=since)


def killed_supervisor(scene: Scene) -> Disturbance:
    service = scene.any_service()
    processes = all_processes_of(service)
    since = time.monotonic()
    assert service.process is not None
    service.process.kill()
    service.process.wait(LONG_SECONDS)
    until(lambda: not still_running(processes), "the processes of a killed supervisor have ended")
    until(lambda: is_free(service.port), "the port is free")
    scene.site.restart(service)
    return scene.over(service, since=since)


def stopped_service(scene: Scene) -> Disturbance:
    service = scene.any_service()
    since = time.monotonic()
    scene.unclean_stops += service.stop() != 0
    scene.site.restart(service)
    return scene.over(service, since=since)


def killed_worker(scene: Scene) -> Disturbance:
    worker = scene.chance.choice(scene.site.workers)
    worker.kill()
    scene.site.restart(worker)
    return scene.over()


def stopped_worker(scene: Scene) -> Disturbance:
    worker = scene.chance.choice(scene.site.workers)
    scene.unclean_stops += worker.stop() != 0
    scene.site.restart(worker)
    return scene.over()


# Processes stand still


@contextlib.contextmanager
def suspended(process: psutil.Process) -> Iterator[None]:
    process.suspend()
    try:
        yield
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()


def paused(part: Part) -> Fault:
    def pause(scene: Scene) -> Disturbance:
        service = scene.any_service()
        process = until(lambda: parts_of(service)[part], f"the service has a {part}")[0]
        with suspended(process):
            scene.hold()
        return scene.over(service)

    return pause


def paused_worker(scene: Scene) -> Disturbance:
    worker = scene.chance.choice(scene.site.workers)
    assert worker.process is not None
    with suspended(psutil.Process(worker.process.pid)):
        # Long enough, sometimes, for the other worker to take it for dead.
        scene.hold(factor=4)
    return scene.over()


# The host


def without_files(scene: Scene) -> Disturbance:
    service = scene.any_service()
    ingress = until(lambda: parts_of(service)[Part.INGRESS], "the service has an ingress")[0]
    with lowered_limit(ingress.pid, resource.RLIMIT_NOFILE, OPEN_FILES_MAX):
        scene.hold()
    return scene.over(service)


def wrong_clock(scene: Scene) -> Disturbance:
    host = scene.chance.choice(scene.site.hosts)
    set_clock(host, scene.chance.choice(CLOCK_OFFSETS_SECONDS))
    try:
        scene.hold()
    finally:
        set_clock(host, 0)
    return scene.over()


# SQLite


def _sqlite_file(scene: Scene) -> Path:
    return scene.site.services[0].data_dir / "hookmill.db"


def full_disk(scene: Scene) -> Disturbance:
    pages = Path(scene.site.services[0].faults["PAGES"])
    with closing(sqlite3.connect(_sqlite_file(scene))) as connection:
        prepared = pages.with_suffix(".new")
        prepared.write_text(str(connection.execute("PRAGMA page_count").fetchone()[0]))
    prepared.rename(pages)
    try:
        scene.hold()
    finally:
        pages.unlink()
    return scene.over()


def unwritable_files(scene: Scene) -> Disturbance:
    service = scene.any_service()
    writer = until(lambda: parts_of(service)[Part.WRITER], "the service has a writer")[0]
    with lowered_limit(writer.pid, resource.RLIMIT_FSIZE, FILE_BYTES_MAX):
        scene.hold()
    return scene.over(service)


def locked_sqlite(scene: Scene) -> Disturbance:
    with closing(sqlite3.connect(_sqlite_file(scene), isolation_level=None, timeout=10)) as holder:
        # Only the service may checkpoint.
        holder.execute("PRAGMA wal_autocheckpoint = 0")
        holder.execute("BEGIN IMMEDIATE")
        scene.hold(factor=1.5)
        holder.execute("ROLLBACK")
    return scene.over()


# PostgreSQL


def restarted_postgresql(mode: StopMode) -> Fault:
    def restart(scene: Scene) -> Disturbance:
        assert scene.site.server is not None
        scene.site.server.restart(mode)
        return scene.over()

    return restart


def crashed_postgresql(scene: Scene) -> Disturbance:
    has_crashed = crash_postgresql_by_failed_writes(scene.site.url)
    assert has_crashed, "no server process has failed to write its log"
    return scene.over()


def _administer(scene: Scene, *statements: str) -> None:
    """Execute the statements, in which `{}` is the database, and end all its sessions."""
    server = scene.site.server
    assert server is not None
    name = sql.Identifier(scene.site.url.rpartition("/")[2])
    with psycopg.connect(server.admin_url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(sql.SQL(statement).format(name))
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
            [scene.site.url.rpartition("/")[2]],
        )


def ended_sessions(scene: Scene) -> Disturbance:
    _administer(scene)
    return scene.over()


def read_only(scene: Scene) -> Disturbance:
    _administer(scene, "ALTER DATABASE {} SET default_transaction_read_only = on")
    try:
        scene.hold()
    finally:
        _administer(scene, "ALTER DATABASE {} RESET default_transaction_read_only")
    return scene.over()


def locked_postgresql(scene: Scene) -> Disturbance:
    with psycopg.connect(scene.site.url) as holder:
        lock = scene.chance.choice(("SELECT no FROM webhooks FOR UPDATE", "LOCK TABLE deliveries IN EXCLUSIVE MODE"))
        holder.execute(lock.encode())
        scene.hold(factor=1.5)
        holder.rollback()
    return scene.over()


def _network_of_one_host(scene: Scene) -> tuple[Any, list[FaultyService]]:
    """A host's link to the database, and the service if the host is one."""
    number = scene.chance.randrange(len(scene.site.hosts))
    return scene.site.shims[number], [*scene.site.services][number : number + 1]


def cut_network(scene: Scene) -> Disturbance:
    shim, services = _network_of_one_host(scene)
    shim.close_connections()
    return scene.over(*services)


def silent_network(scene: Scene) -> Disturbance:
    shim, services = _network_of_one_host(scene)
    shim.stall()
    try:
        scene.hold(factor=2)
    finally:
        shim.resume()
    return scene.over(*services)


def abandoned_connections(scene: Scene) -> Disturbance:
    shim, services = _network_of_one_host(scene)
    shim.abandon_connections()
    return scene.over(*services)


# Senders, managers and maintenance


def copies_at_one_instant(scene: Scene) -> Disturbance:
    scene.load.send_copies(COPIES)
    return scene.over()


def changed_webhook(scene: Scene) -> Disturbance:
    with ExitStack() as stack:
        management = patiently(lambda: stack.enter_context(scene.site.management()))
        scene.changing.change(management, scene.chance, patiently)
    return scene.over()


def pruned_log(scene: Scene) -> Disturbance:
    scene.aged.grow_and_prune(patiently)
    return scene.over()


_OF_BOTH: Final[Mapping[str, Fault]] = {
    "ingress killed": killed(Part.INGRESS),
    "writer killed": killed(Part.WRITER),
    "fork server killed": killed(Part.FORKS),
    "service killed and started": killed_service,
    "supervisor killed and started": killed_supervisor,
    "service stopped and started": stopped_service,
    "ingress paused": paused(Part.INGRESS),
    "writer paused": paused(Part.WRITER),
    "ingress without open files": without_files,
    "clock of a host wrong": wrong_clock,
    "copies at one instant": copies_at_one_instant,
    "secret rotated, webhook disabled": changed_webhook,
    "retention during load": pruned_log,
}
FAULTS: Final[Mapping[DatabaseKind, Mapping[str, Fault]]] = {
    DatabaseKind.SQLITE: {
        **_OF_BOTH,
        "worker killed": killed(Part.WORKER),
        "worker paused": paused(Part.WORKER),
        "disk full": full_disk,
        "writes fail": unwritable_files,
        "database locked": locked_sqlite,
    },
    DatabaseKind.POSTGRESQL: {
        **_OF_BOTH,
        "worker killed": killed_worker,
        "worker stopped and started": stopped_worker,
        "worker paused": paused_worker,
        "database restarted (fast)": restarted_postgresql("fast"),
        "database restarted (immediate)": restarted_postgresql("immediate"),
        "database crashed, its log unwritable": crashed_postgresql,
        "database read-only": read_only,
        "sessions ended by the server": ended_sessions,
        "rows or tables locked": locked_postgresql,
        "connections cut": cut_network,
        "network silent": silent_network,
        "connections that stay silent": abandoned_connections,
    },
}
SLOW: Final = frozenset({"connections that stay silent"})
"""Faults that take the service more than ten seconds to notice."""
