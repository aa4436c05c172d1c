"""The worker process: `hookmill worker`, and the worker that `serve` starts.

It performs runs and maintenance, evaluates the conditions of alarms, and sends messages about alarms and results.
"""

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from hookmill.alarm_watch import AlarmConfig, AlarmWatch
from hookmill.app import Store, log, now_us, object_store, open_store, run_file_storage
from hookmill.app.alarm_destinations import AlarmPost
from hookmill.app.metrics_files import MetricsPublisher, metrics_directory
from hookmill.app.open_files import original_open_files_limit
from hookmill.app.runner_problems import log_problems_meanwhile
from hookmill.app.stop_signals import signals_to_obey
from hookmill.app.tls import client_context
from hookmill.app.tracing import build_trace_exporter
from hookmill.app.worker_supervisor import DRAIN_SECONDS, READY, STOP
from hookmill.build import build_id
from hookmill.domain.alarm import FreeSpace
from hookmill.domain.errors import Invalid
from hookmill.domain.trace import Tracing
from hookmill.maintenance import Maintenance, PackageBound, disk_space
from hookmill.metrics import RUN_SLOTS, RUNS_IN_FLIGHT, Metrics
from hookmill.notices.sender import NoticeSender
from hookmill.runs.dispatcher import Dispatcher
from hookmill.runs.file_writer import RunFileSettings
from hookmill.runs.perform import RunSettings
from hookmill.runs.reserve import ReserveWatch
from hookmill.runs.run_secrets import RunSecretReader
from hookmill.runs.runner import Runner, UncreatedRunner
from hookmill.runs.runners import RunnerContext, RunnerSettings
from hookmill.runs.workspaces.checkouts import Checkouts
from hookmill.sandbox.reserve import FAR_RESERVES
from hookmill.settings import Settings, read_settings
from hookmill.store import timeouts
from hookmill.store.database import POSTGRES_CONNECTIONS
from hookmill.store.monitoring import InstallationState, installation_state

if TYPE_CHECKING:
    from hookmill.app.metrics_server import MetricsServer
    from hookmill.results.sender import ResultSender
    from hookmill.runs.uploads import Uploads
    from hookmill.runs.workspaces.preparation import Workspaces


UPLOAD_SECONDS: Final = 3.0
"""How long a stopping worker waits for an upload in progress."""
NOTICE_SECONDS: Final = 3.0
"""How long a stopping worker waits for a message about an alarm. A message that is cut off is sent again."""
NICENESS: Final = 10
"""The niceness of the worker that `serve` starts, and of its commands. So their priority is lower than that of the
ingress: on a busy host, the service accepted 8 % more deliveries per second than with equal priorities."""
SIGNAL_CHECK_SECONDS: Final = 0.5
"""Interval between checks for signals. A signal that arrives just before the main thread begins to wait doesn't
interrupt it."""


class StopSignal:
    """Tells a worker to stop. `grace_seconds` is the time that runs in progress have to end."""

    def __init__(self) -> None:
        # A signal handler may call `put` at any moment. `threading.Event.set` could wait forever for the event's lock.
        self._queue: SimpleQueue[None] = SimpleQueue()
        self.grace_seconds: float = DRAIN_SECONDS

    def send(self, *, grace_seconds: float = DRAIN_SECONDS) -> None:
        self.grace_seconds = grace_seconds
        self._queue.put(None)

    def wait(self) -> None:
        while True:
            with suppress(Empty):
                self._queue.get(timeout=SIGNAL_CHECK_SECONDS)
                return


def work(
    settings: Settings,
    stop: StopSignal,
    report_ready: Callable[[], None] = lambda: None,
    *,
    build: str,
    started_by_serve: bool = False,
) -> None:
    """Perform runs, send their results, and do maintenance until `stop` is sent. `report_ready` is called once the
    worker performs runs. `build` is the id of the build with which the service was started.

    The setting `performs_runs` applies only to a worker that `serve` started. `hookmill worker` always performs runs,
    so that all hosts can share one configuration.
    """
    metrics = Metrics()
    log.configure(settings, metrics)
    if not started_by_serve:
        log.unusable_proxies()
    # On SQLite, commits of the worker don't wait for the disk: if a power failure loses a run's result, the run is
    # performed again. New runs are not lost, because the commits of the ingress wait for the disk.
    store = open_store(
        settings,
        syncs=False,
        connections=POSTGRES_CONNECTIONS + settings.runs_at_once,
        idle_seconds=timeouts.WORKER_IDLE_SECONDS,
    )
    log.watch_outages(store.database)
    uploads = _build_uploads(settings, store)
    trace_exporter = build_trace_exporter(settings, "hookmill-worker", metrics)
    dispatcher = None
    reserve_watch = None
    result_sender = None
    if settings.performs_runs or not started_by_serve:
        # Without `performs_runs`, the process need not have the credentials of destinations.
        result_sender = _build_result_sender(settings, store)
        tracing = trace_exporter.tracing if trace_exporter is not None else None
        reserve_watch = ReserveWatch(settings.host_reserve(), report_failure=log.failure, report_recovery=log.recovery)
        dispatcher = _build_dispatcher(settings, store, uploads, result_sender, reserve_watch, metrics, tracing)
    if started_by_serve:
        # The service waits until these modules are loaded, so the niceness is set only now. It must be set before the
        # first thread starts, because Linux sets the niceness of one thread.
        os.nice(NICENESS)
    maintenance = Maintenance(
        store.database,
        settings.data_dir / "runs",
        now_us,
        bound=PackageBound(
            store.database,
            settings.data_dir / "runs",
            settings.host_reserve(),
            settings.packages_max_bytes,
            _checkouts(settings).remove_least_used_mirrors,
        ),
        metrics=metrics,
        report_failure=log.failure,
    )
    alarm_watch = AlarmWatch(
        store.database,
        AlarmConfig(
            public_url=settings.public_url(),
            thresholds=settings.alarm_thresholds,
            base_url=settings.base_url,
            read_free_space=partial(_free_space, settings),
        ),
        now_us,
        report_failure=log.failure,
    )
    notice_sender = NoticeSender(
        store.database, store.master_keys, AlarmPost(settings, now_us), now_us, report_failure=log.failure
    )
    metrics_threads: list[MetricsPublisher | MetricsServer] = []
    try:
        if settings.metrics_port is not None:
            metrics_threads += _serve_metrics(settings, settings.metrics_port, store, dispatcher, metrics, build)
        if trace_exporter is not None:
            trace_exporter.start()
        if reserve_watch is not None:
            reserve_watch.start()
        if dispatcher is not None:
            dispatcher.launch()
        if uploads is not None:
            uploads.start()
        notice_sender.start()
        if dispatcher is not None and result_sender is not None:
            result_sender.executor = dispatcher.executor
            result_sender.start()
        report_ready()
        if dispatcher is not None:
            log_problems_meanwhile(settings, store.database)
        stop.wait()
    finally:
        if dispatcher is not None:
            dispatcher.shutdown(stop.grace_seconds)
        if reserve_watch is not None:
            reserve_watch.close()
        if uploads is not None:
            uploads.close(min(UPLOAD_SECONDS, stop.grace_seconds))
        notice_sender.close(min(NOTICE_SECONDS, stop.grace_seconds))
        if result_sender is not None:
            result_sender.close(min(NOTICE_SECONDS, stop.grace_seconds))
        maintenance.close()
        alarm_watch.close()
        if trace_exporter is not None:
            trace_exporter.close()
        for metrics_thread in metrics_threads:
            metrics_thread.close()
        store.close()


def _free_space(settings: Settings) -> FreeSpace:
    space = disk_space(settings.data_dir, settings.free_space_min_bytes)
    return FreeSpace(
        free_bytes=space.free_bytes,
        free_inodes=space.free_inodes,
        is_below_reserve=settings.host_reserve().disk_shortage() is not None,
    )


def _serve_metrics(
    settings: Settings, port: int, store: Store, dispatcher: Dispatcher | None, metrics: Metrics, build: str
) -> "list[MetricsPublisher | MetricsServer]":
    """Start to publish the metrics of this process, and to serve those of all processes. The caller closes both."""
    # Imported here, because most services have no metrics.
    from hookmill.app.metrics_server import MetricsServer, MetricsSource, StateReader

    def measure() -> None:
        if dispatcher is not None:
            metrics.number(RUNS_IN_FLIGHT).value = dispatcher.runs_in_flight
            metrics.number(RUN_SLOTS).value = settings.runs_at_once

    def read_state() -> InstallationState:
        with store.database.read() as tx:
            return installation_state(tx, now_us(), database_files)

    data_dir = settings.data_dir
    database_files: dict[str, Path] = {}
    if (path := store.database.path) is not None:
        database_files = {"main": path, "wal": path.with_name(f"{path.name}-wal")}
    source = MetricsSource(
        directory=metrics_directory(data_dir),
        read_state=StateReader(read_state, log.failure).latest,
        read_disk=lambda: disk_space(data_dir, settings.free_space_min_bytes),
        database_kind="postgresql" if settings.on_postgres else "sqlite",
        build_id=build,
        now_us=now_us,
    )
    token = settings.metrics_token
    return [
        MetricsPublisher(source.directory, "worker", metrics, measure=measure, report_failure=log.failure),
        MetricsServer(
            settings.metrics_host,
            port,
            token.get_secret_value() if token is not None else None,
            source.render,
            lock=data_dir / "metrics.lock",
            report_failure=log.failure,
            report_recovery=log.recovery,
            report_shared=lambda text: log.event("metrics", what=text),
        ),
    ]


def _build_uploads(settings: Settings, store: Store) -> "Uploads | None":
    """The uploads to the object store, if the settings name one.

    They are also needed to remove objects that were stored under earlier settings.
    """
    objects = object_store(settings)
    if objects is None:
        return None
    from hookmill.runs.uploads import Uploads

    return Uploads(
        store.database,
        objects,
        host=socket.gethostname(),
        packages=settings.data_dir.absolute() / "runs",
        clock=now_us,
        report_failure=log.failure,
        report_recovery=log.recovery,
    )


def _build_result_sender(settings: Settings, store: Store) -> "ResultSender | None":
    """What sends the results of runs, if the settings have destinations for them."""
    if not settings.destinations:
        return None
    from hookmill.results.delivery import ResultDelivery
    from hookmill.results.sender import ResultSender

    delivery = ResultDelivery(
        settings.destinations,
        tls=partial(client_context, settings.results_ca_file, "results_ca_file"),
        now_us=now_us,
    )
    return ResultSender(
        store.database, delivery.send, now_us, public_url=settings.public_url(), report_failure=log.failure
    )


def _build_dispatcher(
    settings: Settings,
    store: Store,
    uploads: "Uploads | None",
    result_sender: "ResultSender | None",
    reserve_watch: ReserveWatch,
    metrics: Metrics,
    tracing: Tracing | None,
) -> Dispatcher:
    runners = settings.all_runners()
    for name, runner in runners.items():
        if (warning := runner.warning()) is not None:
            log.warning(f"runner {name}", warning)
    context = RunnerContext(
        open_files_max=original_open_files_limit(),
        database=store.database,
        reserve_watch=reserve_watch,
        public_url=settings.public_url(),
    )
    run_files = None
    if settings.stores_run_files and (storage := run_file_storage(settings)) is not None:
        run_files = RunFileSettings(
            storage=storage,
            limits=settings.run_file_limits,
            wake_uploads=uploads.wake if uploads is not None else None,
        )
    return Dispatcher(
        store.database,
        RunSettings(
            data=settings.data_dir,
            runners={name: _create_runner(name, runner, context) for name, runner in runners.items()},
            reserve_watch=reserve_watch,
            slots=settings.runs_at_once,
            attempts_max=settings.run_attempts_max,
            retry_rules={name: runner.retry for name, runner in runners.items() if runner.retry is not None},
            secrets=RunSecretReader(master_keys=store.master_keys, rules=settings.secret_rules()),
            run_files=run_files,
            workspaces=_build_workspaces(settings, store),
            destinations=settings.destination_rules(),
            wake_results=result_sender.wake if result_sender is not None else lambda: None,
        ),
        now_us,
        metrics=metrics,
        tracing=tracing,
        report_failure=log.failure,
        report_recovery=log.recovery,
    )


def _create_runner(name: str, settings: RunnerSettings, context: RunnerContext) -> Runner:
    """The runner. If it can't be created, only its own runs wait.

    The start of the service refuses such settings. But the host may have changed since.
    """
    try:
        return settings.create_runner(context)
    except Exception as error:
        log.failure(f"runner {name}", error)
        return UncreatedRunner(name, partial(settings.create_runner, context))


def _checkouts(settings: Settings) -> Checkouts:
    return Checkouts(settings.data_dir.absolute(), settings.host_reserve().room_for_workspace)


def _build_workspaces(settings: Settings, store: Store) -> "Workspaces":
    """Create the object that makes the workspaces of runs. Remove mirrors that are no longer used."""
    from hookmill.runs.workspaces.preparation import RepositoryPlaces, Workspaces

    checkouts = _checkouts(settings)
    try:
        checkouts.remove_unused_mirrors(settings.repositories.items(), now_us() / 1e6)
    except OSError as error:
        log.failure("runs", error)
    return Workspaces(
        repositories=settings.repositories,
        runners=frozenset(name for name, runner in settings.all_runners().items() if runner.uses_workspace),
        checkouts=checkouts,
        database=store.database,
        master_keys=store.master_keys,
        places=RepositoryPlaces(settings.runs_at_once),
    )


def refuse_unusable_runners(settings: Settings) -> None:
    """Raises `Invalid` if this process can't use a runner, or could never start a run. Changes nothing."""
    if (problem := settings.host_reserve().problem()) is not None:
        raise Invalid(problem)
    for name, runner in settings.all_runners().items():
        with _naming_runner(name):
            runner.refuse_unusable()


def remove_mirrors_from_full_disk(settings: Settings) -> None:
    """Remove mirrors of repositories, which are only a cache, if the disk has no reserve.

    SQLite can't open a database on a full disk, and only a service that has started removes anything else.
    """
    reserve = settings.host_reserve()
    if reserve.disk_shortage() is not None:
        _checkouts(settings).remove_least_used_mirrors(lambda: reserve.disk_shortage(reserves=FAR_RESERVES) is None)


def prepare_host(settings: Settings) -> None:
    """Prepare the host for the runners. Raises `Invalid`.

    This changes file modes, so call it only after the data directory is verified.
    """
    packages = settings.data_dir.absolute() / "runs"
    for name, runner in settings.all_runners().items():
        with _naming_runner(name):
            runner.prepare_host(packages)


@contextmanager
def _naming_runner(name: str) -> Iterator[None]:
    """Begin the text of an `Invalid` with the runner's name."""
    try:
        yield
    except Invalid as error:
        raise Invalid(f"The runner {name!r}: {error}") from None


def work_until_signalled(announce: Callable[[], None]) -> None:
    """Run `hookmill worker`, until SIGTERM, SIGINT or SIGHUP.

    `announce` is called once these signals have handlers, so that they end the worker like a shutdown of the service.
    """
    build = build_id()
    stop = StopSignal()
    for number in signals_to_obey():
        signal.signal(number, lambda *_: stop.send())
    announce()
    work(read_settings(), stop, build=build)
    log.event("stopped", what="worker")


def work_beside_serve(channel: socket.socket, settings: Settings, build: str) -> None:
    """Run the worker that `serve` starts. It stops when `serve` sends `STOP` or the channel is closed.

    If the channel is closed without `STOP`, `serve` was killed. The worker then stops its commands, without time to
    drain. The next `serve` starts a worker, which waits for this worker's lock, and starts their runs again.
    """
    stop = StopSignal()

    def send_message(message: bytes) -> None:
        with suppress(OSError):
            channel.sendall(message)

    def wait_for_stop() -> None:
        message = b""
        # recv() raises a connection reset if `serve` closes the channel before it has read all messages.
        with suppress(OSError):
            message = channel.recv(len(STOP))
        stop.send(grace_seconds=DRAIN_SECONDS if message == STOP else 0)

    send_message(b"%d\n" % os.getpid())
    threading.Thread(target=wait_for_stop, daemon=True).start()
    work(settings, stop, report_ready=lambda: send_message(READY), build=build, started_by_serve=True)
