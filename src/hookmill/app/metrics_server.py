"""Serves the metrics of all processes of this host to Prometheus, on an address of their own.

The worker process runs the server in a thread, so that a scrape never delays a delivery. Every connection has a
deadline, and their number is limited.
"""

import asyncio
import errno
import fcntl
import hmac
import os
import platform
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from hookmill import __version__
from hookmill import metrics as defined
from hookmill.app.metrics_files import ProcessMetrics, read_published
from hookmill.domain.errors import HookmillError, ReportFailure, StoreUnavailable
from hookmill.maintenance import DiskSpace
from hookmill.metrics import Labels, MetricDefinition, MetricKind
from hookmill.outbound.connection import in_thread
from hookmill.store.monitoring import InstallationState
from hookmill.store.private_file import open_lock_file
from hookmill.web.hosts import OwnHosts

REQUEST_SECONDS: Final = 5.0
"""The time limit of a connection, from its start to the last byte of the answer."""
HEADER_BYTES_MAX: Final = 8_192
CONNECTIONS_MAX: Final = 16
"""Further connections are closed immediately."""
LISTEN_RETRY_SECONDS: Final = 5.0
STATE_SECONDS: Final = 10.0
"""How long the state of the installation is used before it is read again."""
STATE_TIMEOUT_SECONDS: Final = 2.0
"""How long a scrape waits for the database. Prometheus waits 10 seconds for a scrape."""
CLOSE_SECONDS: Final = 2.0


class MetricsPortUnavailable(HookmillError):
    """The server can't listen on the address."""


class StateReader:
    """Reads the state of the installation in a thread, when a scrape asks for it, at most every `STATE_SECONDS`."""

    def __init__(self, read: Callable[[], InstallationState], report_failure: ReportFailure) -> None:
        self._read = read
        self._report_failure = report_failure
        self._reading: Future[InstallationState | None] | None = None
        self._began_at = 0.0

    def latest(self) -> InstallationState | None:
        """The state; None if the database does not answer in time. Blocks up to `STATE_TIMEOUT_SECONDS`.

        One thread at a time may call this.
        """
        is_old = time.monotonic() - self._began_at >= STATE_SECONDS
        if self._reading is None or (is_old and self._reading.done()):
            self._began_at, self._reading = time.monotonic(), in_thread(self._read_or_report)
        with suppress(TimeoutError):
            return self._reading.result(STATE_TIMEOUT_SECONDS)
        return None

    def _read_or_report(self) -> InstallationState | None:
        try:
            return self._read()
        except StoreUnavailable:
            # The metric `hookmill_database_up` shows this.
            return None
        except Exception as error:
            self._report_failure("metrics", error)
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSource:
    """Where the values of the metrics come from."""

    directory: Path
    """The directory of the published metrics of processes."""
    read_state: Callable[[], InstallationState | None]
    """Returns the state of the installation; None if the database does not answer."""
    read_disk: Callable[[], DiskSpace]
    """Returns the free space for the data directory. May raise `OSError`."""
    database_kind: str
    build_id: str
    now_us: Callable[[], int]
    """Microseconds since 1970."""

    def render(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        registry = CollectorRegistry()
        registry.register(_ListCollector([*self._of_processes(), *self._of_installation(), *self._of_host()]))
        return generate_latest(registry)

    def _of_processes(self) -> Iterable[Metric]:
        published = read_published(self.directory)
        ages = [ProcessMetrics(process.name, {defined.PUBLISHED_AGE.name: [((), [age])]}) for process, age in published]
        processes = [*(process for process, _ in published), *ages]
        for definition in defined.PROCESS_METRICS:
            yield _family(
                definition,
                [
                    ((process.name, *labels), numbers)
                    for process in processes
                    for labels, numbers in process.values.get(definition.name, ())
                    if len(labels) == len(definition.labels) and len(numbers) == _value_count(definition)
                ],
                process_label=True,
            )

    def _of_installation(self) -> Iterable[Metric]:
        state = self.read_state()
        yield _gauge(defined.DATABASE_UP, state is not None)
        if state is None:
            return
        age = (self.now_us() - state.oldest_ready_at) / 1_000_000 if state.oldest_ready_at is not None else 0.0
        yield _gauge(defined.RUNS_READY, state.ready_runs)
        yield _family(defined.RUNS_HELD, [((hold.name.lower(),), [count]) for hold, count in state.held_runs.items()])
        yield _gauge(defined.RUNS_RUNNING, state.running_runs)
        # The clock may have been set back.
        yield _gauge(defined.OLDEST_READY_RUN_AGE, max(age, 0.0))
        yield _gauge(defined.WORKERS, state.live_workers)
        yield _gauge(defined.PENDING_UPLOADS, state.pending_uploads)
        yield _family(defined.OPEN_ALARMS, [((kind.value,), [count]) for kind, count in state.open_alarms.items()])
        yield _family(defined.DATABASE_BYTES, [((part,), [size]) for part, size in state.bytes_by_part.items()])

    def _of_host(self) -> Iterable[Metric]:
        yield _family(
            defined.BUILD_INFO, [((__version__, self.build_id, platform.python_version(), self.database_kind), [1])]
        )
        try:
            disk = self.read_disk()
        except OSError:
            return
        yield _gauge(defined.DISK_FREE_BYTES, disk.free_bytes)
        yield _gauge(defined.DISK_FREE_BYTES_MIN, disk.free_bytes_min)
        if disk.free_inodes is not None:
            yield _gauge(defined.DISK_FREE_INODES, disk.free_inodes)
        yield _gauge(defined.DISK_FULL, not disk.has_room)


class _ListCollector(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _value_count(definition: MetricDefinition) -> int:
    # Of a histogram: the counts of its buckets, then that of the bucket +Inf, and the sum.
    return len(definition.bounds) + 2 if definition.kind is MetricKind.HISTOGRAM else 1


def _gauge(definition: MetricDefinition, value: float) -> Metric:
    return _family(definition, [((), [value])])


def _family(
    definition: MetricDefinition, values: Iterable[tuple[Labels, list[float]]], *, process_label: bool = False
) -> Metric:
    label_names = [*(("process",) if process_label else ()), *definition.labels]
    if definition.kind is MetricKind.HISTOGRAM:
        histogram = HistogramMetricFamily(definition.name, definition.meaning, labels=label_names)
        bounds = [*(str(bound) for bound in definition.bounds), "+Inf"]
        for labels, (*counts, total) in values:
            histogram.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), total)
        return histogram
    of_kind = CounterMetricFamily if definition.kind is MetricKind.COUNTER else GaugeMetricFamily
    family = of_kind(definition.name, definition.meaning, labels=label_names)
    for labels, (number,) in values:
        family.add_metric(labels, number)
    return family


class MetricsServer:
    """Listens on an address in a thread, until `close`. A fault of the server never ends the worker.

    If the port is in use, `report_failure` is called once, and the server tries again every `LISTEN_RETRY_SECONDS`.
    `report_recovery` is called when it then listens. If another worker of the same data directory uses the port, it
    also serves the metrics of this one, so `report_shared` is called instead.
    """

    def __init__(
        self,
        host: str,
        port: int,
        token: str | None,
        render: Callable[[], bytes],
        *,
        lock: Path,
        report_failure: ReportFailure,
        report_recovery: Callable[[str, str], None],
        report_shared: Callable[[str], None] = lambda _: None,
    ) -> None:
        """With a `token`, a request must have it as a bearer token. `lock`: a file in the data directory."""
        self._lock = lock
        self._report_shared = report_shared
        self._host = host
        self._port = port
        self._token = token.encode() if token is not None else None
        self._render = render
        self._report_failure = report_failure
        self._report_recovery = report_recovery
        self._own_hosts = OwnHosts("")
        self._connection_count = 0
        self._rendering: asyncio.Future[bytes] | None = None
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="metrics server", daemon=True)
        self._thread.start()

    def close(self) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join(CLOSE_SECONDS)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _run(self) -> None:
        try:
            self._task = self._loop.create_task(self._serve())
            with suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._task)
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        has_failed = False
        while True:
            try:
                server = await asyncio.start_server(self._handle, self._host, self._port, limit=HEADER_BYTES_MAX)
            except OSError as error:
                if not has_failed:
                    self._report_unavailable(error)
                has_failed = True
                await asyncio.sleep(LISTEN_RETRY_SECONDS)
                continue
            if has_failed:
                self._report_recovery("metrics", f"They are served on {self._host} port {self._port}.")
            async with server:
                with ExitStack() as resources:
                    # The lock only improves the text in the log of another worker.
                    with suppress(OSError):
                        lock = resources.enter_context(open_lock_file(self._lock))
                        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    await server.serve_forever()

    def _report_unavailable(self, error: OSError) -> None:
        where = f"{self._host} port {self._port}"
        if error.errno == errno.EADDRINUSE and self._is_other_worker_serving():
            self._report_shared(f"Another worker of this data directory serves the metrics of both on {where}.")
            return
        self._report_failure(
            "metrics",
            MetricsPortUnavailable(
                f"The metrics can't be served on {where}: {_reason_of(error)}. Stop the process that uses the port, or "
                f"change metrics_host or metrics_port. The service tries again every {LISTEN_RETRY_SECONDS:g} s."
            ),
        )

    def _is_other_worker_serving(self) -> bool:
        try:
            with open_lock_file(self._lock) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno == errno.EWOULDBLOCK
        return False

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connection_count += 1
        try:
            if self._connection_count <= CONNECTIONS_MAX:
                async with asyncio.timeout(REQUEST_SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(await self._response(head))
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        except (TimeoutError, OSError, EOFError, asyncio.LimitOverrunError):
            # The client was too slow, disconnected, or sent something else than a short request.
            pass
        except Exception as error:
            self._report_failure("metrics", error)
        finally:
            self._connection_count -= 1
            writer.transport.abort()

    async def _response(self, head: bytes) -> bytes:
        request_line, *header_lines = head.decode("latin-1").split("\r\n")
        method, _, target = request_line.partition(" ")
        headers = [
            (name.strip().lower().encode("latin-1"), value.strip().encode("latin-1"))
            for name, colon, value in (line.partition(":") for line in header_lines)
            if colon
        ]
        if self._token is None and not self._own_hosts.includes(headers):
            return _plain(421, "Misdirected Request", "Use an IP address, or set metrics_token.")
        if not self._is_authorized(headers):
            return _plain(401, "Unauthorized", "Send metrics_token as a bearer token.", "WWW-Authenticate: Bearer")
        if target.partition(" ")[0].partition("?")[0] != "/metrics":
            return _plain(404, "Not Found", "The metrics are at /metrics.")
        if method != "GET":
            return _plain(405, "Method Not Allowed", "Use GET.", "Allow: GET")
        return _response(200, "OK", CONTENT_TYPE_PLAIN_0_0_4, await self._rendered())

    def _is_authorized(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        if self._token is None:
            return True
        credentials = [value for name, value in headers if name == b"authorization"]
        if len(credentials) != 1:
            return False
        scheme, _, token = credentials[0].partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)

    async def _rendered(self) -> bytes:
        """The metrics. Requests that arrive while they are rendered share the result."""
        if self._rendering is None:
            self._rendering = asyncio.ensure_future(asyncio.to_thread(self._render))
            self._rendering.add_done_callback(self._forget_rendering)
        return await asyncio.shield(self._rendering)

    def _forget_rendering(self, rendering: asyncio.Future[bytes]) -> None:
        self._rendering = None
        if not rendering.cancelled():
            # If every client has disconnected, nobody else retrieves the exception.
            rendering.exception()


def _reason_of(error: OSError) -> str:
    # The text of asyncio also has the address.
    return os.strerror(error.errno) if error.errno is not None else "unknown"


def _plain(status: int, reason: str, text: str, *more_headers: str) -> bytes:
    return _response(status, reason, "text/plain; charset=utf-8", f"{text}\n".encode(), *more_headers)


def _response(status: int, reason: str, content_type: str, body: bytes, *more_headers: str) -> bytes:
    head = [
        f"HTTP/1.1 {status} {reason}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
        *more_headers,
    ]
    return "\r\n".join([*head, "", ""]).encode() + body
