"""What the tests kill: a process that performs runs until it is told to stop."""

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

from hookmill.domain.run import Ended
from hookmill.runs.dispatcher import Dispatcher, DispatcherSettings
from hookmill.runs.package import Package
from hookmill.runs.runner import Abandoned, HostFault, NextInstruction, Runner
from hookmill.runs.runners import CommandRunner, PackageRunner
from hookmill.store import timeouts
from hookmill.store.database import open_database


def microseconds() -> int:
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True)
class Faulty:
    """A runner that never has what it needs."""

    grace_seconds: float = 0.0

    def run(self, package: Package, next_instruction: NextInstruction) -> Ended | Abandoned:
        raise HostFault("No process left.")


def perform_until_told(order: dict[str, Any], control: Connection) -> None:
    """Says its executor's id first, and, when it stops in good order, where it connected to and what failed."""
    connections = _note_connections()
    failures: list[str] = []
    recoveries: list[str] = []
    database = open_database(order["url"], idle_seconds=timeouts.WORKER_IDLE_SECONDS)
    if order["freeze"]:
        _freeze_in_transactions(**order["freeze"])
    runners: dict[str, Runner] = {"package": PackageRunner(), "faulty": Faulty()}
    if command := order["command"]:
        runners["command"] = CommandRunner(argv=tuple(command), grace_seconds=order["grace"])
    settings = DispatcherSettings(data=Path(order["data"]), runners=runners, **order["settings"])
    dispatcher = Dispatcher(
        database,
        settings,
        microseconds,
        report_failure=lambda where, error: failures.append(f"{where}: {error!r}"),
        report_recovery=lambda where, what: recoveries.append(f"{where}: {what}"),
    )
    try:
        dispatcher.launch()
    except BaseException:
        control.send({"trouble": traceback.format_exc()})
        raise
    control.send({"executor": dispatcher.executor})
    control.recv()
    dispatcher.shutdown(0)
    database.close()
    control.send({"connections": connections, "failures": failures, "recoveries": recoveries})


def _freeze_in_transactions(statement: str, order: str) -> None:
    """Stop this process, once, after a statement that begins like this one, as soon as the file `order` exists."""

    def freeze(*event_arguments: Any) -> None:
        executed = " ".join(event_arguments[2].split())
        if executed.startswith(statement) and Path(order).exists():
            Path(order).unlink()
            os.kill(os.getpid(), signal.SIGSTOP)

    event.listen(Engine, "after_cursor_execute", freeze)


def _note_connections() -> list[str]:
    noted: list[str] = []

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.bind"):
            noted.append(f"{event} {arguments[1:]}")

    sys.addaudithook(note)
    return noted
