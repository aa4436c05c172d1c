"""A process that performs runs and keeps house: `hookmill worker`, and the one that `serve` starts beside the
ingress."""

import os
import platform
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from hookmill.app import Store, log, now_us, open_store
from hookmill.app.open_files import limit_before
from hookmill.app.prctl import protect_memory
from hookmill.app.worker_supervisor import DRAIN_SECONDS, LEAVE, READY
from hookmill.domain.errors import Invalid
from hookmill.domain.run import PACKAGE_RUNNER
from hookmill.maintenance import Maintenance
from hookmill.settings import Settings, read_settings

if TYPE_CHECKING:
    from hookmill.runs.engine import Engine
    from hookmill.runs.runners.command import UnixAccount


STANDS_BACK: Final = 10
"""The niceness of the worker beside the ingress, and of what it starts: deliveries come first on a machine that has
more to do than it can. A busy service took 8 % more of them a second than with both at the same priority."""


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


def work(
    settings: Settings, stop: Stop, ready: Callable[[], None] = lambda: None, *, beside_the_ingress: bool = False
) -> None:
    """Perform runs and keep house until told to stop. `ready` is called once runs are performed.

    `performs_runs` is about the worker beside the ingress: one of its own performs runs whatever that says, so that
    hosts of both kinds can share one configuration.
    """
    log.configure(settings)
    protect_memory()
    # What a run came to is found out again, should a power cut take it; a run's start is synced with its delivery.
    store = open_store(settings, syncs=False)
    engine = _engine(settings, store) if settings.performs_runs or not beside_the_ingress else None
    if beside_the_ingress:
        # Once all is loaded, which nobody should wait for, and before there are threads: each has its own.
        os.nice(STANDS_BACK)
    maintenance = Maintenance(store.database, settings.data_dir / "runs", now_us, failed=log.failure)
    try:
        if engine is not None:
            engine.launch()
        ready()
        stop.wait()
    finally:
        if engine is not None:
            engine.shutdown(stop.grace_seconds)
        maintenance.close()
        store.close()


def _engine(settings: Settings, store: Store) -> "Engine":
    # It takes a second to load, and a process that only keeps house needs none of it.
    with _no_program_for_architecture():
        from hookmill.runs.engine import Engine, EngineSettings
    from hookmill.runs.runners import CommandRunner, PackageRunner
    from hookmill.runs.runners.command import unix_account

    commands = {
        name: CommandRunner(
            argv=runner.argv,
            time_limit_seconds=runner.time_limit_seconds,
            environment=runner.environment,
            pass_environment=runner.pass_environment,
            output_bytes_max=runner.output_bytes_max,
            account=unix_account(runner.user) if runner.user is not None else None,
            open_files_max=limit_before(),
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
        recovered=lambda where, what: log.event("recovered", where=where, what=what),
    )


@contextmanager
def _no_program_for_architecture() -> Iterator[None]:
    """A library of the engine calls `platform.architecture` when it is loaded. That runs the program `file` with this
    process's environment, and so with its keys, where others of the same account can read it."""
    architecture = platform.architecture
    platform.architecture = partial(architecture, executable="")
    try:
        yield
    finally:
        platform.architecture = architecture


def refuse_unusable_accounts(settings: Settings) -> None:
    """Raises `Invalid` for a runner whose user this service can't run commands as. Changes nothing."""
    _accounts(settings)


def admit_accounts(settings: Settings) -> None:
    """Let the accounts that runners name reach their packages. Changes modes, so the data directory must be known to be
    the service's. Raises `Invalid` for an account that can't reach its packages."""
    from hookmill.runs.package import allow_traversal, make_packages_directory
    from hookmill.runs.runner import reason_of
    from hookmill.runs.runners.command import check_reachable

    packages = settings.data_dir.absolute() / "runs"
    for name, account in _accounts(settings).items():
        if account.is_own:
            continue
        try:
            make_packages_directory(packages)
            allow_traversal(packages)
            check_reachable(packages, account)
        except OSError as error:
            raise Invalid(
                f"The runner {name!r}: {packages.parent} can't be prepared for its user: {reason_of(error)} "
                f"({error.filename}). Repair it, or take the runner's user away."
            ) from None
        except Invalid as error:
            raise Invalid(f"The runner {name!r}: {error}") from None


def _accounts(settings: Settings) -> "dict[str, UnixAccount]":
    """By the names of the runners that have a user."""
    from hookmill.runs.runners.command import unix_account

    accounts = {}
    for name, runner in settings.runners.items():
        if runner.user is not None:
            try:
                accounts[name] = unix_account(runner.user)
            except Invalid as error:
                raise Invalid(f"The runner {name!r}: {error}") from None
    return accounts


def work_until_told() -> None:
    """A worker of its own: it ends, with what it does, when the operator says so."""
    stop = Stop()
    for told in (signal.SIGTERM, signal.SIGINT):
        signal.signal(told, lambda *_: stop.tell())
    work(read_settings(), stop)
    log.event("stopped", what="worker")


def work_beside_serve(line: socket.socket, settings: Settings) -> None:
    """The worker that `serve` starts. It ends when its line does.

    Without a word before that, `serve` was killed, and the next one waits for this worker's place: runs are left to it.
    """
    stop = Stop()

    def say(word: bytes) -> None:
        with suppress(OSError):
            line.sendall(word)

    def listen() -> None:
        told = b""
        # Of a line that is closed before all was read that this end said, the system says that it was reset.
        with suppress(OSError):
            told = line.recv(len(LEAVE))
        stop.tell(grace_seconds=DRAIN_SECONDS if told == LEAVE else 0)

    say(b"%d\n" % os.getpid())
    threading.Thread(target=listen, daemon=True).start()
    work(settings, stop, ready=lambda: say(READY), beside_the_ingress=True)
