"""A process that performs runs, and that tests kill, freeze and stop."""

import os
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

from hookmill.domain.run import Ended, Run
from hookmill.runs.dispatcher import Dispatcher
from hookmill.runs.package import Package
from hookmill.runs.perform import RunSettings
from hookmill.runs.runner import Abandoned, HostFault, NextInstruction, Runner
from hookmill.runs.runners import CommandRunner, HttpSettings, PackageRunner, RunnerContext
from hookmill.store import timeouts
from hookmill.store.database import open_database
from tests.support.agent_platform import SECRET


def microseconds() -> int:
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True)
class FaultyRunner:
    """A runner that reports a fault of the host for every run."""

    grace_seconds: float = 0.0

    def end_earlier_attempts(self, run: Run) -> None: ...

    def run(self, package: Package, next_instruction: NextInstruction) -> Ended | Abandoned:
        raise HostFault("No process left.")


def run_worker(options: dict[str, Any], control: Connection):
    """Perform runs until a message arrives at `control`, then stop in an orderly way.

    The first message to `control` is the executor's id, or the error because of which the worker did not start. The
    last one has the network connections that the worker opened, its failures and its recoveries.
    """
    connections = _record_connections()
    failures: list[str] = []
    recoveries: list[str] = []
    database = open_database(options["url"], idle_seconds=timeouts.WORKER_IDLE_SECONDS)
    if options["freeze"]:
        _freeze_in_transaction(**options["freeze"])
    runners: dict[str, Runner] = {"package": PackageRunner(), "faulty": FaultyRunner()}
    if command := options["command"]:
        runners["command"] = CommandRunner(argv=tuple(command), grace_seconds=options["grace"])
    if url := options["platform_url"]:
        os.environ["PLATFORM_SECRET"] = SECRET
        http = HttpSettings(url=url, allow_http=True, secret_from="PLATFORM_SECRET")
        runners["http"] = http.create_runner(RunnerContext(database=database, public_url="https://hooks.test"))
    settings = RunSettings(data=Path(options["data"]), runners=runners, **options["settings"])
    dispatcher = Dispatcher(
        database,
        settings,
        microseconds,
        report_failure=lambda component, error: failures.append(f"{component}: {error!r}"),
        report_recovery=lambda component, message: recoveries.append(f"{component}: {message}"),
    )
    try:
        dispatcher.launch()
    except BaseException:
        control.send({"error": traceback.format_exc()})
        raise
    control.send({"executor": dispatcher.executor})
    control.recv()
    dispatcher.shutdown(0)
    database.close()
    control.send({"connections": connections, "failures": failures, "recoveries": recoveries})


def _freeze_in_transaction(statement: str, trigger_file: str):
    """Freeze this process once, after a SQL statement with this beginning, as soon as the file exists."""

    def freeze(*event_arguments: Any):
        executed = " ".join(event_arguments[2].split())
        if executed.startswith(statement) and Path(trigger_file).exists():
            Path(trigger_file).unlink()
            os.kill(os.getpid(), signal.SIGSTOP)

    event.listen(Engine, "after_cursor_execute", freeze)


def _record_connections() -> list[str]:
    connections: list[str] = []

    def record(event: str, arguments: tuple[Any, ...]):
        if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.bind"):
            connections.append(f"{event} {arguments[1:]}")

    sys.addaudithook(record)
    return connections
