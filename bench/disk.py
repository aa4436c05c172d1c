"""Measures the bytes that a delivery and a run write to the disk, and those that stay in the database.

The bytes written are those of the whole disk, so nothing else may write to it meanwhile. They include the write-ahead
log, the journal of the file system, and the checkpoint at the end.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from dataclasses import replace

import psycopg

from bench import grown, load, runs, service
from bench.load import Body, Plan
from bench.machine import bytes_written_to_disk
from bench.service import NotMeasured, Service, Storage
from bench.table import Row

BODY_BYTES = 1_000
SECONDS = 10.0
STEADY_RATE_PER_SECOND = 100.0
"""So slow that nearly every delivery has a transaction and a sync of its own."""
RUNS = 2_000


def measure(storage: Storage) -> Iterator[Row]:
    """Deliveries of 1 KB, flat out and one by one, and then deliveries of which each starts a run."""
    what = f"Disk, {storage.value}"
    try:
        with service.serving(storage, webhooks=grown.WEBHOOKS, environment=grown.NO_LIMIT) as running:
            load.run(_plan(running, grown.WARM_UP_SECONDS))
            for name, rate in (
                ("a delivery, flat out", None),
                (f"a delivery, steady {STEADY_RATE_PER_SECOND:,.0f}/s", STEADY_RATE_PER_SECOND),
            ):
                with _Disk(running) as disk:
                    record = load.run(_plan(running, SECONDS, rate))
                yield disk.row(f"{what}, {name}", round(record.requests_per_second * record.seconds))
            with _Disk(running) as disk:
                assert running.settings is not None
                runs.send_matching(running, running.webhooks, RUNS)
                runs.wait_for_runs(running.settings.store_url(), RUNS)
            yield disk.row(f"{what}, a small delivery and its run", RUNS)
    except NotMeasured as reason:
        yield Row(what=what, remark=str(reason))


class _Disk:
    """What is written while the block runs."""

    def __init__(self, running: Service) -> None:
        assert running.settings is not None
        self._database_url = running.settings.database_url
        self._data_dir = running.settings.data_dir

    def __enter__(self) -> _Disk:
        self._size_before = self._checkpoint()
        try:
            self._written_before = bytes_written_to_disk(self._data_dir)
        except OSError:
            raise NotMeasured("the directory for temporary files is not on a disk") from None
        return self

    def __exit__(self, *_: object) -> None:
        self._growth = self._checkpoint() - self._size_before
        self._written = bytes_written_to_disk(self._data_dir) - self._written_before

    def row(self, what: str, count: int) -> Row:
        written_kb, kept_kb = (figure / count / 1_000 for figure in (self._written, self._growth))
        return Row(
            what=what,
            remark=f"{written_kb:.1f} KB written for each of {count:,}; {kept_kb:.1f} KB stay in the database",
        )

    def _checkpoint(self) -> int:
        """Write everything to the disk, and return the size of the database in bytes."""
        if self._database_url is not None:
            with psycopg.connect(self._database_url.get_secret_value(), autocommit=True) as postgres:
                postgres.execute("CHECKPOINT")
                row = postgres.execute("SELECT pg_database_size(current_database())").fetchone()
        else:
            sqlite = sqlite3.connect(self._data_dir / "hookmill.db", timeout=10)
            sqlite.execute("PRAGMA wal_checkpoint(PASSIVE)")
            row = sqlite.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()
            sqlite.close()
        os.sync()
        assert row is not None
        return int(row[0])


def _plan(running: Service, seconds: float, rate_per_second: float | None = None) -> Plan:
    """Bodies that match no automation, for all webhooks in turn. Without a rate, flat out."""
    body = Body(before='{"kind":"other","id":"', after=f'","text":"{"x" * (BODY_BYTES - 64)}"}}')
    return replace(grown.plan(running, seconds, rate_per_second), bodies=[body])
