"""The service as one command: an HTTP server's processes, and a worker beside them."""

import fcntl
import multiprocessing
import os
import stat
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from functools import partial
from http.client import HTTPConnection, HTTPException
from typing import IO, Final

from granian import Granian
from granian.constants import HTTPModes, Interfaces, Loops, RuntimeModes
from granian.http import HTTP1Settings
from granian.log import LogLevels

from hookmill.app import log
from hookmill.app.fork_server import ForkServer
from hookmill.app.ingress_process import WRITER, IngressService
from hookmill.app.open_files import connections_max
from hookmill.app.prctl import protect_memory
from hookmill.app.worker_process import work_beside_serve
from hookmill.app.worker_supervisor import DRAIN_SECONDS, WORKER, WorkerSupervisor
from hookmill.domain.errors import Conflict
from hookmill.settings import Settings
from hookmill.store.admission import writer
from hookmill.store.private_file import open_lock_file

HEADER_MILLISECONDS: Final = 10_000
"""How long a request's header lines may take to arrive."""
HEADER_BYTES: Final = 32 * 1024
AGAIN_SECONDS: Final = 1.0


def serve(settings: Settings, announce: Callable[[], None]) -> None:
    """Serve until told to stop. `announce` is called once the service answers."""
    log.configure(settings)
    _warn_of_open_data(settings)
    # Before anything is forked, which inherits it.
    protect_memory()
    with ExitStack() as held:
        held.callback(log.event, "stopped", what="serve")
        # Before the lock, which the processes that it starts must not hold, and before there are threads.
        jobs = {
            WRITER: partial(writer.main, url=settings.store_url()),
            WORKER: partial(work_beside_serve, settings=settings),
        }
        forks = held.enter_context(closing(ForkServer(jobs)))
        if not settings.on_postgres:
            held.enter_context(_hold_data(settings))
        worker = held.enter_context(closing(WorkerSupervisor(forks)))
        has_served = threading.Event()
        told = (settings, worker, has_served, announce)
        threading.Thread(target=_announce_when_ready, args=told, daemon=True).start()
        _serve_until_told(settings, forks, has_served)


def _serve_until_told(settings: Settings, forks: ForkServer, has_served: threading.Event) -> None:
    """The server gives up when one of its processes ends twice within seconds. A service that has served does not: a
    request that can end a process must not be able to end them all."""
    supervisor = os.getpid()
    # What the ingress is made of is handed on by forking, which is no longer the default everywhere.
    multiprocessing.set_start_method("fork", force=True)
    while True:
        server = Granian(
            "the ingress",
            interface=Interfaces.ASGI,
            address=settings.host,
            port=settings.port,
            workers=settings.processes,
            http=HTTPModes.http1,
            http1_settings=HTTP1Settings(header_read_timeout=HEADER_MILLISECONDS, max_buffer_size=HEADER_BYTES),
            websockets=False,
            loop=Loops.uvloop,
            runtime_mode=RuntimeModes.st,
            backlog=2048,
            backpressure=connections_max(),
            log_access=False,
            log_level=LogLevels.warning,
            respawn_failed_workers=True,
            respawn_interval=0.5,
            workers_kill_timeout=DRAIN_SECONDS + 5,
        )
        try:
            server.serve(target_loader=lambda: IngressService(settings, forks, supervisor), wrap_loader=False)
        except SystemExit:
            if not has_served.is_set() and not server.interrupt_signal:
                raise
        if server.interrupt_signal:
            return
        log.trouble("ingress", "the ingress ended again and again; starting it anew")
        time.sleep(AGAIN_SECONDS)
        if server.interrupt_signal:
            return


def _warn_of_open_data(settings: Settings) -> None:
    directory = settings.data_dir.absolute()
    mode = stat.S_IMODE(directory.stat().st_mode)
    # Other accounts may pass through where a runner has a `user`.
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        log.warning(
            "data directory", f"{directory} is open to every user of this machine (mode {mode:o}): run chmod o-rw on it"
        )


def _hold_data(settings: Settings) -> IO[bytes]:
    """Keep other services off this data directory: SQLite takes deliveries from one only. Raises `Conflict`.

    The server's processes inherit the lock, so it is held for as long as any of them lives.
    """
    lock = open_lock_file(settings.data_dir / "serve.lock")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise Conflict(
            f"Another `hookmill serve` runs with the data in {settings.data_dir.absolute()}. Stop it first, "
            "or set HOOKMILL_DATA_DIR to another directory."
        ) from None
    return lock


def _announce_when_ready(
    settings: Settings, worker: WorkerSupervisor, has_served: threading.Event, announce: Callable[[], None]
) -> None:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104 - asked of, not bound
    # However long that takes: what a first start says is said once, and a secret is in it.
    # Somebody sits before a start, and nobody before a database that stays away.
    began = time.monotonic()
    while not _is_ready(host, settings.port):
        time.sleep(0.05 if time.monotonic() < began + 60 else 1.0)
    has_served.set()
    worker.wait_until_ready()
    announce()


def _is_ready(host: str, port: int) -> bool:
    with closing(HTTPConnection(host, port, timeout=2)) as connection, suppress(OSError, HTTPException):
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    return False
