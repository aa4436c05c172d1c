"""The ASGI application of one ingress process."""

import asyncio
import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable
from importlib.util import find_spec
from typing import Final

from hookmill.app import Store, build_management, log, now_us, open_store
from hookmill.app.connections import StalledConnectionCloser
from hookmill.app.fork_server import ForkServer
from hookmill.app.http_server import pass_on_first_signal
from hookmill.app.metrics_files import MetricsPublisher, ProcessMetrics, metrics_directory
from hookmill.app.open_files import allowed_connections
from hookmill.app.operator_socket import OperatorServer
from hookmill.app.tracing import build_trace_exporter
from hookmill.app.worker_supervisor import WorkerStatus
from hookmill.app.worker_watch import WorkerWatch
from hookmill.domain.errors import StoreUnavailable
from hookmill.ingress import Ingress, Limits
from hookmill.maintenance import DiskGuard
from hookmill.management import Management
from hookmill.metrics import DELIVERIES_WAITING, SNAPSHOT_AGE, SNAPSHOT_WEBHOOKS, Metrics
from hookmill.settings import Settings
from hookmill.store import dialect
from hookmill.store.admission.group_commit import GroupCommit
from hookmill.store.admission.snapshot import Snapshot
from hookmill.web.asgi import Receive, Scope, Send
from hookmill.web.ingress import IngressEndpoint
from hookmill.web.routes import MANAGEMENT_REQUESTS_MAX, Application, Routes

WRITER: Final = "writer"
WRITE_DROPPED_SECONDS: Final = 1.0
"""Interval between writes of the counters of dropped attempts."""
CHECK_MASTER_KEYS_SECONDS: Final = 1.0
"""Interval between checks whether this process has begun to use another master key."""
CHECK_DISK_SECONDS: Final = 1.0
CHECK_SUPERVISOR_SECONDS: Final = 0.5
"""Interval between checks whether the supervisor is alive."""
WORKER_WATCH_SECONDS: Final = 1.0
"""How long a message about a stopped worker may delay the end of this process."""
GIL_SWITCH_SECONDS: Final = 0.002


class IngressService:
    """The service's ASGI application, from start to stop."""

    def __init__(
        self,
        settings: Settings,
        fork_server: ForkServer,
        worker_status: WorkerStatus,
        supervisor_pid: int,
        operator_listener: socket.socket | None = None,
    ) -> None:
        """When the process `supervisor_pid` ends, so does the process of this service.

        `operator_listener` is the socket of `operator_socket`.
        """
        self._settings = settings
        self._worker_status = worker_status
        self._supervisor_pid = supervisor_pid
        self._fork_server = fork_server
        self._operator_listener = operator_listener
        self._operator_server: OperatorServer | None = None
        self._routes: Routes | None = None
        self._management_store: Store | None = None
        self._management: Management | None = None
        self._management_store_lock = threading.Lock()

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        # The server passes requests only after the lifespan's startup has set `_routes`. The second condition is for
        # the type checker.
        if scope["type"] == "lifespan" or self._routes is None:
            return self._run_lifespan(receive, send)
        return self._routes(scope, receive, send)

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._start()
        except Exception as error:
            log.failure("start", error)
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _start(self) -> None:
        settings = self._settings
        metrics = Metrics()
        log.configure(settings, metrics)
        pass_on_first_signal()
        self._tasks = [asyncio.create_task(self._end_with_supervisor())]
        self._store = store = open_store(settings)
        log.watch_outages(store.database)
        self._snapshot = Snapshot(store.database, store.master_keys, report_failure=log.failure)
        self._group_commit = GroupCommit(self._start_writer, metrics=metrics, report_failure=log.failure)
        await self._group_commit.open()
        self._disk_guard = DiskGuard(
            settings.data_dir.absolute(),
            settings.free_space_min_bytes,
            report_failure=log.failure,
            report_recovery=log.recovery,
        )
        self._trace_exporter = build_trace_exporter(settings, "hookmill-ingress", metrics)
        if self._trace_exporter is not None:
            self._trace_exporter.start()
        self._ingress = Ingress(
            self._snapshot,
            self._group_commit,
            Limits(
                deliveries_per_minute=settings.deliveries_per_minute,
                failed_authentications_per_minute=settings.failed_authentications_per_minute,
            ),
            has_room=self._disk_guard,
            public_url=settings.public_url(),
            trusted_proxies=settings.proxy_networks(),
            metrics=metrics,
            tracing=self._trace_exporter.tracing if self._trace_exporter is not None else None,
            report_failure=log.failure,
        )
        self._routes = Routes(
            IngressEndpoint(self._ingress, now_us, metrics=metrics),
            self._is_ready,
            self._build_api,
            self._build_dashboard,
            self._build_mcp if find_spec("mcp") is not None else None,
            public_url=settings.public_url(),
            report_failure=log.failure,
            management_requests_max=min(MANAGEMENT_REQUESTS_MAX, allowed_connections() // 2),
            worker_starts=lambda: self._worker_status.can_start,
        )
        if self._operator_listener is not None:
            self._operator_server = OperatorServer(
                self._operator_listener, settings, store.master_keys, self._build_operator_api
            )
            await self._operator_server.start()
        self._connection_closer = StalledConnectionCloser(settings.port, allowed_connections(), log.failure)
        for repeated in (self._write_dropped, self._check_disk, self._log_new_master_keys):
            self._tasks.append(asyncio.create_task(repeated()))
        self._worker_watch = WorkerWatch(settings, store, report_failure=log.failure)
        self._worker_watch.start()
        self._metrics = metrics
        self._publisher: MetricsPublisher | None = None
        if settings.metrics_port is not None:
            self._publisher = MetricsPublisher(
                metrics_directory(settings.data_dir),
                "ingress",
                metrics,
                measure=self._measure,
                children=self._metrics_of_writer,
                report_failure=log.failure,
            )
        _tune_the_interpreter()

    def _measure(self) -> None:
        self._metrics.number(DELIVERIES_WAITING).value = self._group_commit.waiting_count
        self._metrics.number(SNAPSHOT_WEBHOOKS).value = self._snapshot.webhook_count
        self._metrics.number(SNAPSHOT_AGE).value = self._snapshot.age_seconds

    def _metrics_of_writer(self) -> list[ProcessMetrics]:
        usage = self._group_commit.writer_usage
        return [ProcessMetrics.of_usage(WRITER, usage)] if usage is not None else []

    def _start_writer(self, channel: socket.socket) -> None:
        self._fork_server.start(WRITER, channel)

    async def _write_dropped(self) -> None:
        while True:
            await asyncio.sleep(WRITE_DROPPED_SECONDS)
            self._ingress.write_dropped()

    async def _check_disk(self) -> None:
        """Log a full disk, and replaced files of SQLite, even if no deliveries arrive; and when this is over."""
        while True:
            self._disk_guard()
            try:
                self._store.database.verify_files()
            except StoreUnavailable as error:
                log.failure("database", error)
            await asyncio.sleep(CHECK_DISK_SECONDS)

    async def _log_new_master_keys(self) -> None:
        """Log each master key that this process starts to use. Deliveries and management requests load them."""
        logged_ids = set(self._store.master_keys.ids)
        while True:
            await asyncio.sleep(CHECK_MASTER_KEYS_SECONDS)
            stores = [store for store in (self._store, self._management_store) if store is not None]
            for key_id in {key_id for store in stores for key_id in store.master_keys.ids} - logged_ids:
                log.event("loaded a master key", key=key_id)
                logged_ids.add(key_id)

    async def _end_with_supervisor(self) -> None:
        """End this process after its supervisor. Otherwise, it would share the port with the next service."""
        while os.getppid() == self._supervisor_pid:  # noqa: ASYNC110 - no event signals that a process was orphaned
            await asyncio.sleep(CHECK_SUPERVISOR_SECONDS)
        log.error("supervisor", "the supervisor of this process ended; ending too")
        os.kill(os.getpid(), signal.SIGKILL)

    async def _stop(self) -> None:
        # A part stops before the parts that it sends to.
        for task in self._tasks:
            task.cancel()
        self._connection_closer.close()
        if self._operator_server is not None:
            await self._operator_server.close()
        self._ingress.write_dropped()
        await self._group_commit.close()
        self._snapshot.close()
        await asyncio.to_thread(self._worker_watch.close, WORKER_WATCH_SECONDS)
        if self._trace_exporter is not None:
            await asyncio.to_thread(self._trace_exporter.close)
        if self._publisher is not None:
            await asyncio.to_thread(self._publisher.close)
        self._store.close()
        if self._management_store is not None:
            self._management_store.close()

    def _open_management_store(self) -> Store:
        """A second store for management, so that deliveries never wait for a connection that management uses."""
        with self._management_store_lock:
            if self._management_store is None:
                self._management_store = open_store(self._settings)
            return self._management_store

    def _build_operator_api(self, user_id: int) -> Application:
        from hookmill.web.api import build_for_operator

        return build_for_operator(self._management_for_api(), user_id, now_us=now_us, report_failure=log.failure)

    def _management_for_api(self) -> Management:
        store = self._open_management_store()
        with self._management_store_lock:
            if self._management is None:
                self._management = build_management(self._settings, store)
            return self._management

    def _build_api(self) -> Application:
        # Imported on the first request, to save time and memory in services that are not managed over HTTP.
        from hookmill.web.api import build

        api = build(
            self._management_for_api(),
            trusted_proxies=self._settings.proxy_networks(),
            now_us=now_us,
            report_failure=log.failure,
        )
        # Like `_tune_the_interpreter`, this excludes permanent objects from garbage collection.
        gc.freeze()
        return api

    def _build_dashboard(self) -> Application:
        from hookmill.app.effective_settings import effective_settings
        from hookmill.app.identity_provider import identity_provider
        from hookmill.web.dashboard import build

        settings = self._settings
        dashboard = build(
            build_management(settings, self._open_management_store()),
            trusted_proxies=settings.proxy_networks(),
            now_us=now_us,
            report_failure=log.failure,
            is_https=settings.public_url().startswith("https:"),
            settings=effective_settings(settings),
            has_room=self._disk_guard,
            provider=identity_provider(settings, now_us),
        )
        gc.freeze()
        return dashboard

    def _build_mcp(self, api: Application) -> Application:
        from hookmill.web.mcp.endpoint import McpEndpoint

        endpoint = McpEndpoint(api, public_url=self._settings.public_url(), report_failure=log.failure)
        gc.freeze()
        return endpoint

    def _is_ready(self) -> bool:
        if not self._group_commit.is_ready:
            return False
        # A new version or new settings with which no worker starts must not replace those that work. But if a worker
        # stops starting later, accepted deliveries wait for it, and without `/readyz` they would be lost at the proxy.
        if not self._worker_status.can_start and not self._worker_status.has_been_ready:
            return False
        # On PostgreSQL, a proxy can send the deliveries to another host. On SQLite there is no other host, and a proxy
        # that leaves out this one would also make the dashboard unreachable.
        if self._settings.on_postgres and not self._disk_guard():
            return False
        try:
            return dialect.accepts_writes(self._store.database)
        except StoreUnavailable:
            return False


def _tune_the_interpreter() -> None:
    """Exclude permanent objects from garbage collection, and collect rarely: a full collection took 40 ms.

    Reference counting frees the objects of a delivery.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 1_000)
    # The server's threads need the GIL twice for each request, and get it whenever the event loop waits. So a much
    # shorter interval gains nothing: with a tenth of this one, each delivery took 4 to 15 % more processor time.
    sys.setswitchinterval(GIL_SWITCH_SECONDS)
