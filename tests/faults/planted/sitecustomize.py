"""Plants a fault in one process of a service under test, before its command begins. Only PYTHONPATH leads here.

The product knows nothing of it: the command, the wiring and the other processes are the real ones.
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


def _trace(command: list[str]) -> None:
    """Begin `hookmill serve` again under strace, with everything that it starts."""
    os.execvp(command[0], [*command, sys.executable, "-m", "hookmill", "serve"])


def _set_pragmas(statements: str) -> None:
    """Have these run on every connection that writes, after the product's own."""
    from sqlalchemy import Engine, event

    from hookmill.store import sqlite_engine as module

    make_engine = module.sqlite_engine

    def make(url: str, *, writes: bool, **choices: bool) -> Engine:
        engine = make_engine(url, writes=writes, **choices)
        if writes:

            @event.listens_for(engine, "connect")
            def _prepare(connection: Any, _record: object) -> None:
                connection.executescript(statements)

        return engine

    module.sqlite_engine = make


def _limit_pages(order: Path) -> None:
    """As many pages as the file says are all the disk there is."""
    from hookmill.store.database import Database, Transaction

    write = Database.write

    @contextmanager
    def limited(database: Database) -> Iterator[Transaction]:
        with write(database) as tx:
            pages = int(order.read_text()) if order.exists() else 1_000_000_000
            tx.connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
            yield tx

    Database.write = limited  # type: ignore[assignment, method-assign]


def _fail_at_steps(order: Path) -> None:
    """Die, stop or raise, once, at the step whose number or name is in the file. A step is a statement of a transaction
    that admits, then its COMMIT, then the moment after it."""
    from sqlalchemy import CursorResult
    from sqlalchemy.exc import OperationalError

    from hookmill.store.database import Database, Transaction

    write, bulk = Database.write, Transaction.bulk
    passed = 0

    def step(name: str) -> None:
        nonlocal passed
        passed += 1
        try:
            ordered = json.loads(order.read_text())
        except FileNotFoundError:
            return
        if ordered["step"] not in (passed, name):
            return
        order.with_suffix(".struck").write_text(name)
        order.unlink()
        if ordered["how"] == "raise":
            raise OperationalError(name, None, Exception("planted"))
        os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[ordered["how"]])

    def struck_bulk(tx: Transaction, sql: str, values: tuple[Any, ...]) -> CursorResult[Any]:
        # Counts of dropped attempts are written along the way, and also where nothing is admitted.
        if "INTO dropped_attempts" not in sql:
            step(" ".join(sql.split()[:3]))
        return bulk(tx, sql, values)

    @contextmanager
    def struck(database: Database) -> Iterator[Transaction]:
        nonlocal passed
        passed = 0
        with write(database) as tx:
            yield tx
            if passed:
                step("COMMIT")
        if passed:
            with _translated():
                step("after COMMIT")

    Transaction.bulk = struck_bulk  # type: ignore[assignment, method-assign]
    Database.write = struck  # type: ignore[assignment, method-assign]


def _translated() -> AbstractContextManager[None]:
    from hookmill.store import database

    return database._raising_unavailable()


def _trace_the_writer(command: list[str], channel: socket.socket, url: str) -> None:
    """Begin the writing process again under strace."""
    os.set_inheritable(channel.fileno(), True)
    again = (
        "import socket, sys; from hookmill.store.admission.writer import main; "
        "main(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])"
    )
    os.execvp(command[0], [*command, sys.executable, "-c", again, str(channel.fileno()), url])


def _hold_up_the_api(gate: Path) -> None:
    """The API is not built before the file is there."""
    from hookmill.web import api

    build = api.build

    def held(*given: Any, **named: Any) -> Any:
        gate.with_suffix(".reached").touch()
        while not gate.exists():
            time.sleep(0.01)
        return build(*given, **named)

    api.build = held


def _shift_the_clock(file: Path) -> None:
    """Add the seconds in the file, a signed number of 8 bytes, to the clock of the service and of all processes that it
    forks."""
    time_ns = time.time_ns
    with file.open("rb") as opened:
        # Reading it needs no further open file, which a service may lack.
        seconds = mmap.mmap(opened.fileno(), 8, prot=mmap.PROT_READ)

    def shifted() -> int:
        return time_ns() + int.from_bytes(seconds[:8], "little", signed=True) * 1_000_000_000

    time.time_ns = shifted


def _plant_in_the_writer() -> None:
    from hookmill.store.admission import writer

    main = writer.main

    def planted(channel: socket.socket, url: str) -> None:
        if statements := os.environ.get("HOOKMILL_TEST_PRAGMAS"):
            _set_pragmas(statements)
        if pages := os.environ.get("HOOKMILL_TEST_PAGES"):
            _limit_pages(Path(pages))
        if steps := os.environ.get("HOOKMILL_TEST_STEPS"):
            _fail_at_steps(Path(steps))
        if command := os.environ.pop("HOOKMILL_TEST_TRACE_WRITER", ""):
            _trace_the_writer(command.split(), channel, url)
        main(channel, url)

    writer.main = planted


if command := os.environ.pop("HOOKMILL_TEST_TRACE", ""):
    _trace(command.split())
if gate := os.environ.get("HOOKMILL_TEST_API_GATE"):
    _hold_up_the_api(Path(gate))
if clock := os.environ.get("HOOKMILL_TEST_CLOCK"):
    _shift_the_clock(Path(clock))
_plant_in_the_writer()
