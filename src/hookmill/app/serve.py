"""The service as one command: an HTTP server's processes, and a worker beside them."""

import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Final

from granian import Granian
from granian.constants import HTTPModes, Interfaces, Loops, RuntimeModes
from granian.http import HTTP1Settings
from granian.log import LogLevels

from hookmill.app import log
from hookmill.app.worker_process import DRAIN_SECONDS, Companion
from hookmill.settings import Settings

HEADER_MILLISECONDS: Final = 10_000
"""How long a request's header lines may take to arrive."""
HEADER_BYTES: Final = 32 * 1024


def serve(settings: Settings, announce: Callable[[], None]) -> None:
    """Serve until told to stop. `announce` is called once the service answers."""
    server = Granian(
        "hookmill.app.ingress_process:asgi",
        factory=True,
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
        log_access=False,
        log_level=LogLevels.warning,
        respawn_failed_workers=True,
        respawn_interval=0.5,
        workers_kill_timeout=DRAIN_SECONDS + 5,
    )
    log.configure(settings)
    companion = Companion()
    threading.Thread(target=_announce_when_ready, args=(settings, companion, announce), daemon=True).start()
    try:
        server.serve()
    finally:
        companion.close()


def _announce_when_ready(settings: Settings, companion: Companion, announce: Callable[[], None]) -> None:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104 - asked of, not bound
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        connection = HTTPConnection(host, settings.port, timeout=2)
        try:
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200 and companion.wait_until_ready(deadline - time.monotonic()):
                announce()
                return
        except OSError:
            time.sleep(0.05)
        finally:
            connection.close()
