"""A process that performs runs and keeps house: `hookmill worker`, and the one that `serve` starts beside the
ingress."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from hookmill.app import Store, log, now_us, open_store
from hookmill.housekeeping import Housekeeping
from hookmill.runs.engine import Engine, EngineSettings
from hookmill.runs.runners import CommandRunner, PackageRunner
from hookmill.settings import PACKAGE_RUNNER, Settings, read_settings

DRAIN_SECONDS: Final = 10
"""How long runs under way may take to end when the service is told to stop."""
STOPPING_SECONDS: Final = 10
"""How long, after that, the process may take to leave what is not over for the next start."""
_READY: Final = "ready"
_LEAVE: Final = "leave"


class Stop:
    """When to end, and how long what is under way may take then."""

    def __init__(self) -> None:
        self._told = threading.Event()
        self.grace_seconds: float = DRAIN_SECONDS

    def tell(self, *, grace_seconds: float = DRAIN_SECONDS) -> None:
        self.grace_seconds = grace_seconds
        self._told.set()

    def wait(self) -> None:
        self._told.wait()


def work(settings: Settings, stop: Stop, ready: Callable[[], None] = lambda: None) -> None:
    """Perform runs and keep house until told to stop. `ready` is called once runs are performed."""
    log.configure(settings)
    # What a run came to is found out again, should a power cut take it; a run's start is synced with its delivery.
    store = open_store(settings, syncs=False)
    engine = _engine(settings, store) if settings.performs_runs else None
    housekeeping = Housekeeping(store.database, settings.data_dir / "runs", now_us, failed=log.failure)
    try:
        if engine is not None:
            engine.launch()
        ready()
        stop.wait()
    finally:
        if engine is not None:
            engine.shutdown(stop.grace_seconds)
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
        failed=log.failure,
    )


def work_until_told() -> None:
    """A worker of its own: it ends, with what it does, when the operator says so."""
    stop = Stop()
    for told in (signal.SIGTERM, signal.SIGINT):
        signal.signal(told, lambda *_: stop.tell())
    work(read_settings(), stop)


def work_beside_serve() -> None:
    """The worker that `serve` starts. It ends when its standard input does.

    Without a word before that, `serve` was killed, and the next one waits for this worker's place: runs are left to it.
    """
    stop = Stop()
    for told in (signal.SIGTERM, signal.SIGINT):
        signal.signal(told, signal.SIG_IGN)

    def listen() -> None:
        stop.tell(grace_seconds=DRAIN_SECONDS if _LEAVE in sys.stdin.read() else 0)

    threading.Thread(target=listen, daemon=True).start()
    work(read_settings(), stop, ready=lambda: print(_READY, flush=True))


WORKER: Final = (
    # A Ctrl-C at the terminal reaches every process of the service; the worker ends when `serve` lets it go.
    "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "from hookmill.app.worker_process import work_beside_serve; work_beside_serve()"
)


class Companion:
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
        with suppress(BrokenPipeError), self._process.stdin as line:
            line.write(_LEAVE.encode())
        try:
            self._process.wait(DRAIN_SECONDS + STOPPING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _start(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, "-P", "-c", WORKER],
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
            log.trouble("worker", f"the worker process ended with {code}; starting another")
            self._process = self._start()
