"""Runs `hookmill backup` or `restore` with small batches, and kills it at a chosen step, interrupts it, cuts its
connection, or lets its disk be full.

The steps are: a record of the backup was written or read; a transaction is about to be committed; a transaction was
committed. The functions `command_…` each run in a process of their own.
"""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hookmill.cli import main
from hookmill.domain.errors import StoreUnavailable
from hookmill.store.backup.container import BackupReader, BackupWriter
from hookmill.store.backup.records import Record
from hookmill.store.database import Database, Transaction
from hookmill.store.rows import tables


def command_until(step: int, arguments: Sequence[str]):
    """Run the command. The process kills itself at the step with this number, if there are so many."""
    tables.BATCH_ROWS = 3  # type: ignore[misc]
    write, add, records = Database.write, BackupWriter.add, BackupReader.records
    steps_reached = 0

    def reach():
        nonlocal steps_reached
        steps_reached += 1
        if step == steps_reached:
            os.kill(os.getpid(), signal.SIGKILL)

    @contextmanager
    def write_in_steps(database: Database) -> Iterator[Transaction]:
        with write(database) as tx:
            yield tx
            reach()
        reach()

    def add_in_steps(writer: BackupWriter, record: Record):
        add(writer, record)
        reach()

    def records_in_steps(reader: BackupReader) -> Iterator[Record]:
        for record in records(reader):
            reach()
            yield record

    Database.write = write_in_steps  # type: ignore[assignment, method-assign]
    BackupWriter.add = add_in_steps  # type: ignore[assignment, method-assign]
    BackupReader.records = records_in_steps  # type: ignore[assignment, method-assign]
    main(list(arguments))


def command_interrupted_after_commit(arguments: Sequence[str]):
    """Run the command. The process gets SIGINT after each transaction that it has committed."""
    write = Database.write

    @contextmanager
    def interrupted(database: Database) -> Iterator[Transaction]:
        with write(database) as tx:
            yield tx
        os.kill(os.getpid(), signal.SIGINT)

    Database.write = interrupted  # type: ignore[assignment, method-assign]
    main(list(arguments))


def command_without_answer_to_commit(arguments: Sequence[str]):
    """Run the command. Each transaction is committed, and the connection is lost before the answer arrives."""
    write = Database.write

    @contextmanager
    def losing(database: Database) -> Iterator[Transaction]:
        with write(database) as tx:
            yield tx
        raise StoreUnavailable("server closed the connection unexpectedly")

    Database.write = losing  # type: ignore[assignment, method-assign]
    main(list(arguments))


def command_with_few_pages(pages: int, arguments: Sequence[str]):
    """Run the command. A SQLite database that it writes has at most so many pages, as on a full disk."""
    write = Database.write

    @contextmanager
    def limited(database: Database) -> Iterator[Transaction]:
        with write(database) as tx:
            if tx.on_sqlite:
                tx.connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
            yield tx

    Database.write = limited  # type: ignore[assignment, method-assign]
    main(list(arguments))
