"""Injects faults into processes of a service under test, before its command begins.

`FaultyService` adds this file to PYTHONPATH. The command and all code without a fault are the real ones.
"""

import json
import mmap
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any


def _trace(command: list[str]):
    """Replace this process with `hookmill serve` under strace. strace also traces the processes that it starts."""
    os.execvp(command[0], [*command, sys.executable, "-m", "hookmill", "serve"])


def _set_pragmas(statements: str):
    """Execute these statements on every new connection that writes, after those of the service."""
    from sqlalchemy import Engine, event

    from hookmill.store import sqlite_engine as module

    original = module.sqlite_engine

    def sqlite_engine(path: Path, files: Any, *, writes: bool, **options: bool) -> Engine:
        engine = original(path, files, writes=writes, **options)
        if writes:

            @event.listens_for(engine, "connect")
            def _prepare(connection: Any, _record: object):
                connection.executescript(statements)

        return engine

    module.sqlite_engine = sqlite_engine


def _limit_pages(limit_file: Path):
    """While the file exists, it contains the maximum number of pages in the database, as on a full disk."""
    from hookmill.store.database import Database, Transaction

    write = Database.write

    @contextmanager
    def limited(database: Database) -> Iterator[Transaction]:
        with write(database) as tx:
            pages = int(limit_file.read_text()) if limit_file.exists() else 1_000_000_000
            tx.connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
            yield tx

    Database.write = limited  # type: ignore[assignment, method-assign]


def _fail_at_steps(order_file: Path):
    """Fail once, at the step whose number or name is in the file: by SIGKILL, SIGSTOP or an exception.

    A step is a statement of a transaction that admits deliveries, its COMMIT, or the moment after its COMMIT.
    """
    from sqlalchemy import CursorResult
    from sqlalchemy.exc import OperationalError

    from hookmill.store.database import Database, Transaction

    write, bulk = Database.write, Transaction.bulk
    steps_reached = 0

    def reach(name: str):
        nonlocal steps_reached
        steps_reached += 1
        try:
            order = json.loads(order_file.read_text())
        except FileNotFoundError:
            return
        if order["step"] not in (steps_reached, name):
            return
        # The test polls for this file and removes it: it must never see it without its content.
        prepared = order_file.with_suffix(".failing")
        prepared.write_text(name)
        order_file.unlink()
        prepared.rename(order_file.with_suffix(".failed"))
        if order["how"] == "raise":
            raise OperationalError(name, None, Exception("injected"))
        os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[order["how"]])

    def bulk_in_steps(tx: Transaction, sql: str, values: tuple[Any, ...]) -> CursorResult[Any]:
        # Counts of dropped attempts are also written by transactions that admit nothing.
        if "INTO dropped_attempts" not in sql:
            reach(" ".join(sql.split()[:3]))
        return bulk(tx, sql, values)

    @contextmanager
    def write_in_steps(database: Database) -> Iterator[Transaction]:
        nonlocal steps_reached
        steps_reached = 0
        with write(database) as tx:
            yield tx
            if steps_reached:
                reach("COMMIT")
        if steps_reached:
            with _raising_unavailable():
                reach("after COMMIT")

    Transaction.bulk = bulk_in_steps  # type: ignore[assignment, method-assign]
    Database.write = write_in_steps  # type: ignore[assignment, method-assign]


def _raising_unavailable() -> AbstractContextManager[None]:
    from hookmill.store import database

    return database.raising_unavailable()


def _trace_writer(command: list[str], channel: socket.socket, url: str):
    """Replace the writer process with the same process under strace."""
    os.set_inheritable(channel.fileno(), True)
    code = (
        "import socket, sys; from hookmill.store.admission.writer import main; "
        "main(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])"
    )
    os.execvp(command[0], [*command, sys.executable, "-c", code, str(channel.fileno()), url])


def _delay_api(gate: Path):
    """Build the API only when the file exists."""
    from hookmill.web import api

    build = api.build

    def build_late(*arguments: Any, **options: Any) -> Any:
        gate.with_suffix(".reached").touch()
        while not gate.exists():
            time.sleep(0.01)
        return build(*arguments, **options)

    api.build = build_late


def _shift_clock(path: Path):
    """Add the seconds in the file, a signed number of 8 bytes, to the clock of the service and of its forks."""
    time_ns = time.time_ns
    with path.open("rb") as file:
        # A test may limit the open files of the service. Reading from memory needs none.
        seconds = mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ)

    def shifted() -> int:
        return time_ns() + int.from_bytes(seconds[:8], "little", signed=True) * 1_000_000_000

    time.time_ns = shifted


def _inject_into_writer():
    from hookmill.store.admission import writer

    main = writer.main

    def main_with_faults(channel: socket.socket, url: str):
        if statements := os.environ.get("HOOKMILL_TEST_PRAGMAS"):
            _set_pragmas(statements)
        if pages := os.environ.get("HOOKMILL_TEST_PAGES"):
            _limit_pages(Path(pages))
        if steps := os.environ.get("HOOKMILL_TEST_STEPS"):
            _fail_at_steps(Path(steps))
        if command := os.environ.pop("HOOKMILL_TEST_TRACE_WRITER", ""):
            _trace_writer(command.split(), channel, url)
        main(channel, url)

    writer.main = main_with_faults


if command := os.environ.pop("HOOKMILL_TEST_TRACE", ""):
    _trace(command.split())
if gate := os.environ.get("HOOKMILL_TEST_API_GATE"):
    _delay_api(Path(gate))
if clock := os.environ.get("HOOKMILL_TEST_CLOCK"):
    _shift_clock(Path(clock))
_inject_into_writer()
