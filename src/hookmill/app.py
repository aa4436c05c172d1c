"""Where everything is wired: settings → store → ingress, engine and housekeeping → the web application."""

import asyncio
import gc
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Final

import structlog
from granian import Granian
from granian.constants import HTTPModes, Interfaces, Loops, RuntimeModes
from granian.http import HTTP1Settings
from granian.log import LogLevels

from hookmill.domain.errors import HookmillError, Invalid, StoreUnavailable
from hookmill.housekeeping import DiskGuard, Housekeeping
from hookmill.ingress import Ingress, Limits
from hookmill.management import House, Management
from hookmill.runs.engine import Engine, EngineSettings
from hookmill.runs.runners import CommandRunner, PackageRunner
from hookmill.settings import PACKAGE_RUNNER, Settings, read_settings
from hookmill.store import facts
from hookmill.store.database import Database, open_database
from hookmill.store.group_commit import GroupCommit, in_a_process
from hookmill.store.migrate import migrate
from hookmill.store.sealing import MasterKey, master_key_from_file, master_key_from_text
from hookmill.store.snapshot import Snapshot
from hookmill.web.ingress import IngressDoor, Receive, Scope, Send
from hookmill.web.routes import Routes

HEADER_MILLISECONDS: Final = 10_000
"""How long a request's header lines may take to arrive."""
HEADER_BYTES: Final = 32 * 1024
DRAIN_SECONDS: Final = 10
"""How long requests and runs under way may take to end when the service is told to stop."""
STOPPING_SECONDS: Final = 10
REFUSALS_SECONDS: Final = 1.0
"""How often the counters of attempts without a log row are written down."""


def now_us() -> int:
    """µs since 1970: the one clock of the service."""
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True)
class Store:
    """An open database and the key to its secrets."""

    database: Database
    key: MasterKey

    def close(self) -> None:
        self.database.close()


def open_store(settings: Settings, *, create: bool = False) -> Store:
    """Open what the settings name. `create` makes what isn't there yet, at this version's schema, as a first start
    does."""
    data_dir = settings.data_dir
    if create:
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    elif not settings.on_postgres and not (data_dir / "hookmill.db").exists():
        raise Invalid(
            f"There is no Hookmill data in {data_dir.absolute()}. Start `hookmill serve` once, "
            "or set HOOKMILL_DATA_DIR to where its data is."
        )
    key = _master_key(settings, create=create)
    database = open_database(settings.store_url())
    try:
        if create:
            migrate(database)
        with database.write() as tx:
            facts.bind_master_key(tx, key)
    except BaseException:
        database.close()
        raise
    return Store(database, key)


def _master_key(settings: Settings, *, create: bool) -> MasterKey:
    if settings.master_key is not None:
        return master_key_from_text(settings.master_key.get_secret_value())
    path = settings.data_dir / "master.key"
    if not create and not path.exists():
        raise Invalid(f"The master key {path} is missing. Restore it, or set HOOKMILL_MASTER_KEY.")
    return master_key_from_file(path)


def management(settings: Settings, store: Store) -> Management:
    house = House(
        public_url=settings.public_url(),
        webhooks_per_factory=settings.webhooks_per_factory,
        runner_names=settings.runner_names(),
        default_runner=settings.default_runner,
    )
    return Management(store.database, store.key, house, now_us)


def configure_logging(settings: Settings) -> None:
    """JSON lines on standard error. Events are named by us and hold no header, body, token or path of a request."""
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def _log_trouble(where: str, why: str) -> None:
    structlog.get_logger().error("failed", where=where, why=why)


def _log_failure(where: str, error: BaseException) -> None:
    # The text of any other error may quote what was being written.
    _log_trouble(where, str(error) if isinstance(error, HookmillError) else f"a fault of type {type(error).__name__}")


class IngressService:
    """One ingress process: what the ASGI server starts, feeds and stops."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._routes: Routes | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._routes is not None:
            await self._routes(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._start()
        except Exception as error:
            _log_failure("start", error)
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _start(self) -> None:
        settings = self._settings
        configure_logging(settings)
        self._store = store = open_store(settings)
        self._snapshot = Snapshot(store.database, store.key, failed=_log_failure)
        self._group_commit = GroupCommit(in_a_process(settings.store_url()), failed=_log_trouble)
        await self._group_commit.open()
        self._ingress = Ingress(
            self._snapshot,
            self._group_commit,
            Limits(
                deliveries_per_minute=settings.deliveries_per_minute,
                failed_authentications_per_minute=settings.failed_authentications_per_minute,
            ),
            has_room=DiskGuard(settings.data_dir, settings.free_space_min_mb * 1024 * 1024),
        )
        self._routes = Routes(IngressDoor(self._ingress, now_us), self._is_ready)
        self._counting = asyncio.create_task(self._write_down_refusals())
        _quiet_the_collector()

    async def _write_down_refusals(self) -> None:
        while True:
            await asyncio.sleep(REFUSALS_SECONDS)
            self._ingress.write_down_refusals()

    async def _stop(self) -> None:
        """In the order of dependence: what writes stops before what it writes to."""
        self._counting.cancel()
        self._ingress.write_down_refusals()
        await self._group_commit.close()
        self._snapshot.close()
        self._store.close()

    def _is_ready(self) -> bool:
        try:
            with self._store.database.read() as tx:
                return tx.one("SELECT 1 AS one") is not None
        except StoreUnavailable:
            return False


def _quiet_the_collector() -> None:
    """What is there at the start stays; the garbage of a delivery is freed by counting. A full collection took 40
    ms."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 1_000)


def asgi() -> IngressService:
    """What the server's processes load."""
    return IngressService(read_settings())


def work(settings: Settings, stop: threading.Event, ready: Callable[[], None] = lambda: None) -> None:
    """Perform runs and keep house until `stop` is set. `ready` is called once runs are performed."""
    configure_logging(settings)
    store = open_store(settings)
    engine = _engine(settings, store) if settings.performs_runs else None
    housekeeping = Housekeeping(store.database, settings.data_dir / "runs", now_us, failed=_log_failure)
    try:
        if engine is not None:
            engine.launch()
        ready()
        stop.wait()
    finally:
        if engine is not None:
            engine.shutdown(DRAIN_SECONDS)
        housekeeping.close()
        store.close()


def _engine(settings: Settings, store: Store) -> Engine:
    commands = {
        name: CommandRunner(
            argv=runner.argv,
            time_limit_seconds=runner.time_limit_seconds,
            environment=runner.environment,
            pass_environment=runner.pass_environment,
            output_bytes_max=runner.output_bytes_max,
        )
        for name, runner in settings.runners.items()
    }
    return Engine(
        store.database,
        EngineSettings(
            data=settings.data_dir,
            runners={PACKAGE_RUNNER: PackageRunner(), **commands},
            concurrency=settings.runs_at_once,
            attempts_max=settings.run_attempts_max,
        ),
        now_us,
        failed=_log_failure,
    )


def work_until_told() -> None:
    """A worker of its own: it ends, with what it does, when the operator says so."""
    stop = threading.Event()
    for told in (signal.SIGTERM, signal.SIGINT):
        signal.signal(told, lambda *_: stop.set())
    work(read_settings(), stop)


def work_beside_serve() -> None:
    """The worker that `serve` starts. It ends when `serve` closes its standard input, however `serve` ended."""
    stop = threading.Event()
    for told in (signal.SIGTERM, signal.SIGINT):
        signal.signal(told, signal.SIG_IGN)

    def listen() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
    work(read_settings(), stop, ready=lambda: print(_READY, flush=True))


_READY: Final = "ready"


class _Companion:
    """The worker process beside the ingress: kept alive while the service is, and let go with it.

    It is not part of the ingress process, whose interpreter every request needs: a run's work must not be felt there.
    """

    def __init__(self) -> None:
        self._leaving = threading.Event()
        self._ready = threading.Event()
        self._process = self._start()
        self._watch = threading.Thread(target=self._keep_alive, daemon=True)
        self._watch.start()

    def close(self) -> None:
        self._leaving.set()
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(DRAIN_SECONDS + STOPPING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _start(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, "-c", "from hookmill.app import work_beside_serve; work_beside_serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def wait_until_ready(self, seconds: float) -> bool:
        return self._ready.wait(seconds)

    def _keep_alive(self) -> None:
        while True:
            assert self._process.stdout is not None
            if self._process.stdout.readline():
                self._ready.set()
            code = self._process.wait()
            if self._leaving.wait(1.0):
                return
            _log_trouble("worker", f"the worker process ended with {code}; starting another")
            self._process = self._start()


def serve(settings: Settings, announce: Callable[[], None]) -> None:
    """Serve until told to stop. `announce` is called once the service answers."""
    server = Granian(
        "hookmill.app:asgi",
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
    configure_logging(settings)
    companion = _Companion()
    threading.Thread(target=_announce_when_ready, args=(settings, companion, announce), daemon=True).start()
    try:
        server.serve()
    finally:
        companion.close()


def _announce_when_ready(settings: Settings, companion: _Companion, announce: Callable[[], None]) -> None:
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
