"""The supervisor of `hookmill serve`: it starts the HTTP server's processes, the fork server and a worker."""

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
from typing import Final

from granian import Granian
from granian.constants import HTTPModes, Interfaces, Loops, RuntimeModes
from granian.http import HTTP1Settings
from granian.log import LogLevels

from hookmill.app import log, operator_socket
from hookmill.app.fork_server import ForkServer
from hookmill.app.http_server import HttpServer, block_stop_signals, serve_until_interrupted
from hookmill.app.http_server_log import LOGGING
from hookmill.app.ingress_process import WRITER, IngressService
from hookmill.app.metrics_files import MetricsPublisher, metrics_directory
from hookmill.app.open_files import allowed_connections
from hookmill.app.worker_process import work_beside_serve
from hookmill.app.worker_supervisor import DRAIN_SECONDS, WORKER, WorkerStatus, WorkerSupervisor
from hookmill.build import build_id
from hookmill.domain.errors import Conflict
from hookmill.metrics import Metrics
from hookmill.settings import Settings
from hookmill.store.admission import writer
from hookmill.store.database import sqlite_path
from hookmill.store.private_file import locked_directory, open_lock_file
from hookmill.store.sqlite_files import pin

HEADER_MILLISECONDS: Final = 10_000
"""The time limit for the header lines of a request."""
HEADER_BYTES: Final = 32 * 1024
STOP_SECONDS: Final = DRAIN_SECONDS + 5
"""The time that the ingress processes have to end when the service stops. Then they are killed."""


def serve(settings: Settings, announce: Callable[[], None]) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP. `announce` is called once the service is ready."""
    block_stop_signals()
    metrics = Metrics()
    log.configure(settings, metrics)
    _warn_of_exposed_directory(settings)
    log.unusable_proxies()
    with ExitStack() as resources:
        resources.callback(log.event, "stopped", what="serve")
        if not settings.on_postgres:
            # Before the fork server, whose processes inherit it.
            pin(sqlite_path(settings.store_url()))
        # The fork server is created before the lock, because its processes must not inherit the lock; and before all
        # threads, because only a process without threads can be forked safely.
        jobs = {
            WRITER: partial(writer.main, url=settings.store_url()),
            WORKER: partial(work_beside_serve, settings=settings, build=build_id()),
        }
        fork_server = resources.enter_context(closing(ForkServer(jobs)))
        if not settings.on_postgres:
            _lock_data_directory(settings, resources)
        listener = resources.enter_context(operator_socket.listening(settings))
        worker_status = WorkerStatus()
        worker = resources.enter_context(closing(WorkerSupervisor(fork_server, worker_status)))
        if settings.metrics_port is not None:
            publisher = MetricsPublisher(
                metrics_directory(settings.data_dir), "supervisor", metrics, report_failure=log.failure
            )
            resources.enter_context(closing(publisher))
        ready_event = threading.Event()
        threading.Thread(
            target=_announce_when_ready, args=(settings, worker, ready_event, announce), daemon=True
        ).start()
        supervisor_pid = os.getpid()
        # The ingress processes inherit `IngressService` and its arguments by forking, which is not the default on every
        # system.
        multiprocessing.set_start_method("fork", force=True)
        # If the server ends before it was ready, the service ends too. Once it has been ready, it is restarted, because
        # a request that can end one process must not be able to end the service.
        serve_until_interrupted(
            partial(_create_server, settings),
            partial(IngressService, settings, fork_server, worker_status, supervisor_pid, listener),
            is_restartable=ready_event.is_set,
        )


def _create_server(settings: Settings) -> HttpServer:
    return Granian(
        # Only a label: the application is created in each process.
        "the ingress",
        interface=Interfaces.ASGI,
        address=settings.host,
        port=settings.port,
        workers=settings.processes,
        http=HTTPModes.http1,
        http1_settings=HTTP1Settings(header_read_timeout=HEADER_MILLISECONDS, max_buffer_size=HEADER_BYTES),
        websockets=False,
        loop=Loops.uvloop,
        # A single-threaded runtime.
        runtime_mode=RuntimeModes.st,
        backlog=2048,
        backpressure=allowed_connections(),
        log_access=False,
        log_level=LogLevels.warning,
        log_dictconfig=LOGGING,
        respawn_failed_workers=True,
        respawn_interval=0.5,
        workers_kill_timeout=STOP_SECONDS,
    )


def _warn_of_exposed_directory(settings: Settings) -> None:
    directory = settings.data_dir.absolute()
    mode = stat.S_IMODE(directory.stat().st_mode)
    # Execute permission is allowed: the accounts of runners with a `user` must traverse the directory.
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        log.warning(
            "data directory", f"every user of this host can open {directory} (mode {mode:o}): run chmod o-rw on it"
        )


def _lock_data_directory(settings: Settings, resources: ExitStack) -> None:
    """Lock the data directory, because only one service may write to SQLite. Raises `Conflict` if it is locked.

    The ingress processes inherit the open files, and with them the locks. If this process is killed, the locks are held
    until the last ingress process has ended.
    """
    lock = resources.enter_context(open_lock_file(settings.data_dir / "serve.lock"))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        resources.enter_context(locked_directory(settings.data_dir))
    except BlockingIOError:
        raise Conflict(
            f"Another `hookmill serve` uses the data directory {settings.data_dir.absolute()}. Stop it, or set "
            "HOOKMILL_DATA_DIR to another directory."
        ) from None


def _announce_when_ready(
    settings: Settings, worker: WorkerSupervisor, ready_event: threading.Event, announce: Callable[[], None]
) -> None:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104 - a client's target, not bound
    # There is no deadline: the announcement of a first start contains a secret that is printed only once.
    started_at = time.monotonic()
    while not _is_ready(host, settings.port):
        # After a minute, the database is probably unavailable, and frequent checks are useless.
        time.sleep(0.05 if time.monotonic() < started_at + 60 else 1.0)
    ready_event.set()
    worker.wait_until_ready()
    announce()


def _is_ready(host: str, port: int) -> bool:
    with closing(HTTPConnection(host, port, timeout=2)) as connection, suppress(OSError, HTTPException):
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    return False
