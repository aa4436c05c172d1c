"""One ingress process: what the HTTP server starts, feeds and stops."""

import asyncio
import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable
from typing import Final

from hookmill.app import Store, log, management, now_us, open_store
from hookmill.app.connections import Connections
from hookmill.app.fork_server import ForkServer
from hookmill.app.open_files import connections_max
from hookmill.domain.errors import StoreUnavailable
from hookmill.ingress import Ingress, Limits
from hookmill.maintenance import DiskGuard
from hookmill.settings import Settings
from hookmill.store import dialect
from hookmill.store.admission.group_commit import GroupCommit
from hookmill.store.admission.snapshot import Snapshot
from hookmill.web.asgi import Receive, Scope, Send
from hookmill.web.ingress import IngressEndpoint
from hookmill.web.routes import MANAGEMENT_REQUESTS_MAX, Application, Routes

WRITER: Final = "writer"
REFUSALS_SECONDS: Final = 1.0
"""How often the counters of attempts without a log row are written down."""
MASTER_KEYS_SECONDS: Final = 1.0
"""How soon the log says that this process took up another master key."""
ORPHANED_SECONDS: Final = 0.5
"""How soon this process notices that its supervisor was killed."""
SWITCH_SECONDS: Final = 0.002


class IngressService:
    """The service's ASGI application, from start to stop."""

    def __init__(self, settings: Settings, forks: ForkServer, supervisor: int) -> None:
        """`supervisor`: the number of the process that starts this one, and must not end before it."""
        self._settings = settings
        self._supervisor = supervisor
        self._forks = forks
        self._routes: Routes | None = None
        self._managed_store: Store | None = None
        self._opening = threading.Lock()

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "lifespan" or self._routes is None:
            return self._live(receive, send)
        return self._routes(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
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
        log.configure(settings)
        self._orphaned = asyncio.create_task(self._end_with(self._supervisor))
        self._store = store = open_store(settings)
        self._snapshot = Snapshot(store.database, store.key, failed=log.failure)
        self._group_commit = GroupCommit(self._start_writer, failed=log.trouble)
        await self._group_commit.open()
        self._has_room = DiskGuard(settings.data_dir, settings.free_space_min_mb * 1024 * 1024)
        self._ingress = Ingress(
            self._snapshot,
            self._group_commit,
            Limits(
                deliveries_per_minute=settings.deliveries_per_minute,
                failed_authentications_per_minute=settings.failed_authentications_per_minute,
            ),
            has_room=self._has_room,
            public_url=settings.public_url(),
            trusted_proxies=settings.proxy_networks(),
        )
        self._routes = Routes(
            IngressEndpoint(self._ingress, now_us),
            self._is_ready,
            self._api,
            self._dashboard,
            public_url=settings.public_url(),
            failed=log.failure,
            management_requests_max=min(MANAGEMENT_REQUESTS_MAX, connections_max() // 2),
        )
        self._connections = Connections(settings.port, connections_max(), log.failure)
        self._counting = asyncio.create_task(self._write_dropped())
        self._noticing = asyncio.create_task(self._tell_of_master_keys())
        _tune_the_interpreter()

    def _start_writer(self, line: socket.socket) -> None:
        self._forks.start(WRITER, line)

    async def _write_dropped(self) -> None:
        while True:
            await asyncio.sleep(REFUSALS_SECONDS)
            self._ingress.write_dropped()

    async def _tell_of_master_keys(self) -> None:
        """A key that is rotated to is taken up by whoever first meets it: deliveries, the API or the dashboard."""
        known = set(self._store.key.ids)
        while True:
            await asyncio.sleep(MASTER_KEYS_SECONDS)
            stores = [store for store in (self._store, self._managed_store) if store is not None]
            for key_id in {key_id for store in stores for key_id in store.key.ids} - known:
                log.event("took up a master key", key=key_id)
                known.add(key_id)

    async def _end_with(self, supervisor: int) -> None:
        """The server's own processes outlive a supervisor that was killed, and its port would be served by two."""
        while os.getppid() == supervisor:  # noqa: ASYNC110 - nothing tells a process that it was orphaned
            await asyncio.sleep(ORPHANED_SECONDS)
        log.trouble("supervisor", "the process that started this one is gone; ending")
        os.kill(os.getpid(), signal.SIGKILL)

    async def _stop(self) -> None:
        """In the order of dependence: what writes stops before what it writes to."""
        self._counting.cancel()
        self._noticing.cancel()
        self._orphaned.cancel()
        self._connections.close()
        self._ingress.write_dropped()
        await self._group_commit.close()
        self._snapshot.close()
        self._store.close()
        if self._managed_store is not None:
            self._managed_store.close()

    def _managed(self) -> Store:
        """The store once more, for management: however long people's questions take, deliveries wait for no connection
        of theirs."""
        with self._opening:
            if self._managed_store is None:
                self._managed_store = open_store(self._settings)
            return self._managed_store

    def _api(self) -> Application:
        # A service that nobody manages over HTTP needs neither the time nor the memory.
        from hookmill.web.api import build

        api = build(
            management(self._settings, self._managed()),
            trusted_proxies=self._settings.proxy_networks(),
            now_us=now_us,
            failed=log.failure,
        )
        # As at the start: a full collection would go through all of it, for nothing.
        gc.freeze()
        return api

    def _dashboard(self) -> Application:
        from hookmill.app.effective_settings import effective_settings
        from hookmill.web.dashboard import build

        settings = self._settings
        dashboard = build(
            management(settings, self._managed()),
            trusted_proxies=settings.proxy_networks(),
            now_us=now_us,
            failed=log.failure,
            is_https=settings.public_url().startswith("https:"),
            facts={
                "settings": effective_settings(settings),
                "packages": (settings.data_dir / "runs").absolute(),
                "has_room": self._has_room,
            },
        )
        gc.freeze()
        return dashboard

    def _is_ready(self) -> bool:
        if not self._group_commit.is_ready:
            return False
        try:
            return dialect.takes_writes(self._store.database)
        except StoreUnavailable:
            return False


def _tune_the_interpreter() -> None:
    """What is there at the start stays, and a delivery's garbage is freed by counting. A full collection took 40 ms."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 1_000)
    # The server's own threads need the interpreter twice for each request, and get it whenever the loop waits. Taken
    # away from the loop ten times as often, it cost 4 to 15 % more processor time for each delivery.
    sys.setswitchinterval(SWITCH_SECONDS)
