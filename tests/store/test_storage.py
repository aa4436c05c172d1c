"""What is stored, and how it is counted in a log with many rows."""

import os
import random
import re
import shutil
from pathlib import Path
from unittest.mock import patch

import pytest

from hookmill.app import usable_bytes
from hookmill.domain.delivery import Label
from hookmill.domain.ids import time_ordered_key
from hookmill.domain.storage_forecast import DAY_US, StoredData
from hookmill.store import recent_rows
from hookmill.store.identity_segments import SEGMENT_ROWS
from hookmill.store.recent_rows import DELIVERIES, RUN_FILES, RUNS, TimeOrderedTable, count_rows
from hookmill.store.storage import stored_data
from tests.store.managed_store import ManagedStore
from tests.store.query_plans import gather_statistics, statement_plans
from tests.support.counts import count

DAY = 86_400
MANY_ROWS = 40_000
RUNS_COUNTED = 60


def data_of(store: ManagedStore, package_bytes: int | None = None) -> StoredData:
    path = Path(store.url.removeprefix("sqlite:///")) if store.database.on_sqlite else None
    with store.database.read() as tx:
        return stored_data(tx, store.clock.now, path=path, package_bytes=lambda _run: package_bytes)


def test_recent_and_older_rows_are_counted(store: ManagedStore):
    webhook = store.webhook()
    for at in (-10 * DAY, -6.5 * DAY, -3 * DAY):
        store.admit(store.plan(webhook, at=at, body=b'"four"'))
    store.admit(store.rejection(webhook, Label.REJECTED_AUTH, at=-2 * DAY))
    run = store.run("aut_1")
    store.clock.advance(seconds=1)
    store.admit(store.plan(webhook, at=-60, runs=[run]))
    with store.database.write() as tx:
        tx.run(
            "INSERT INTO run_files (run_id, name, attempt, size, host, content) VALUES (:run, :name, 1, 9, 'a', :name)",
            run=run.key,
            name=b"output",
        )

    data = data_of(store, package_bytes=4_096)

    assert (data.deliveries, data.accepted, data.payload_bytes) == (4, 3, 14)
    assert (data.older_deliveries, data.older_payload_bytes) == (1, 6)
    assert (data.leaving_deliveries, data.leaving_payload_bytes) == (1, 6)
    assert (data.runs, data.run_file_bytes, data.package_bytes) == (1, 6, 4_096)
    assert data.recent_since == pytest.approx(store.clock.now - 6.5 * DAY_US, abs=2_000_000)
    assert data.database_bytes > 100_000
    assert not data.is_estimate


def test_empty_log_has_no_recent_rows(store: ManagedStore):
    data = data_of(store)

    assert (data.recent_since, data.deliveries, data.package_bytes) == (None, 0, 0)


def add_many(store: ManagedStore) -> int:
    """Add `MANY_ROWS` deliveries of a week: a third in bursts at the full hour. Returns the bytes of their payloads."""
    webhook = store.webhook()
    chance = random.Random(3)
    rows = []
    total = 0
    for _ in range(MANY_ROWS):
        hour = chance.randrange(7 * 24)
        seconds = chance.uniform(0, 300 if chance.random() < 0.3 else 3_600)
        at = store.clock.now - 7 * DAY_US + round((hour * 3_600 + seconds) * 1_000_000)
        label = Label.ACCEPTED if chance.random() < 0.8 else Label.REJECTED_AUTH
        size = chance.randrange(100, 2_000)
        total += size if label is Label.ACCEPTED else 0
        rows.append((time_ordered_key(at, os.urandom(8)), webhook.no, at, int(label), size))
    place = "?" if store.database.on_sqlite else "%s"
    with store.database.write() as tx:
        tx.bulk_many(
            "INSERT INTO deliveries (id, webhook_no, received_at, label, rate_limit, size) "
            f"VALUES ({place}, {place}, {place}, {place}, 1, {place})",
            rows,
        )
    return total


def test_long_log_is_estimated_from_few_rows(store: ManagedStore):
    payload_bytes = add_many(store)
    gather_statistics(store.database)

    data = data_of(store)
    with patch.object(recent_rows, "EXACT_ROWS_MAX", MANY_ROWS), store.database.read() as tx:
        exact = count_rows(tx, DELIVERIES, store.clock.now - 7 * DAY_US, store.clock.now)
    plans = statement_plans(store.database, lambda tx: count_rows(tx, DELIVERIES, 0, store.clock.now))

    print(data.deliveries, data.payload_bytes / payload_bytes)
    assert data.is_estimate
    assert data.deliveries == pytest.approx(MANY_ROWS, rel=0.15)
    assert data.accepted == pytest.approx(MANY_ROWS * 0.8, rel=0.15)
    assert data.payload_bytes == pytest.approx(payload_bytes, rel=0.15)
    assert (exact.rows, exact.byte_count, exact.is_estimate) == (MANY_ROWS, payload_bytes, False)
    assert len(plans) > recent_rows.SLICES
    assert_reads_key_range(plans, "id")


def assert_reads_key_range(plans: list[str], key: str) -> None:
    for plan in plans:
        assert re.search(rf"({key}>\? AND {key}<\?)|Index Cond: \(\({key} >= ", plan), plan
        assert " TEMP B-TREE" not in plan
        assert "Sort" not in plan


@pytest.mark.parametrize("table", [RUNS, RUN_FILES], ids=lambda table: table.name)
def test_runs_and_files_are_counted_within_their_time_range(store: ManagedStore, table: TimeOrderedTable):
    webhook = store.webhook()
    begin = store.clock.now
    for _ in range(RUNS_COUNTED):
        store.clock.advance(seconds=60)
        run = store.run("aut_1")
        store.admit(store.plan(webhook, runs=[run]))
        with store.database.write() as tx:
            tx.run(
                """
                INSERT INTO run_files (run_id, name, attempt, size, host, content)
                VALUES (:run, :name, 1, 2, 'a', :name)
                """,
                run=run.key,
                name=b"ab",
            )
    gather_statistics(store.database)

    with patch.object(recent_rows, "EXACT_ROWS_MAX", RUNS_COUNTED // 2), store.database.read() as tx:
        counted = count_rows(tx, table, begin, store.clock.now + 1)
    with patch.object(recent_rows, "EXACT_ROWS_MAX", RUNS_COUNTED // 2):
        plans = statement_plans(
            store.database, lambda tx: count_rows(tx, table, begin, store.clock.now + 1), table=f"FROM {table.name}"
        )

    assert counted.is_estimate
    assert counted.rows == pytest.approx(RUNS_COUNTED, rel=0.5)
    assert len(plans) > recent_rows.SLICES
    assert_reads_key_range(plans, table.key)


def test_bytes_of_an_identity_are_those_of_the_database(store: ManagedStore):
    number = count(100_000, usually=10_000)
    webhook_numbers = [store.webhook(f"source-{position}").no for position in range(5)]
    place = "?" if store.database.on_sqlite else "%s"
    before = identities_size(store)
    for begin in range(0, number, 200):
        rows = [
            (
                position // SEGMENT_ROWS + 1,
                webhook_numbers[position % 5],
                os.urandom(16),
                os.urandom(16),
                store.clock.now + position,
            )
            for position in range(begin, begin + 200)
        ]
        with store.database.write() as tx:
            tx.bulk_many(
                "INSERT INTO identities (segment, webhook_no, digest, delivery_id, kind, claimed_at) "
                f"VALUES ({place}, {place}, {place}, {place}, 1, {place})",
                rows,
            )

    measured = (identities_size(store) - before) / number

    print(f"{measured:.1f} bytes for each identity")
    assert data_of(store).identity_bytes == pytest.approx(measured, rel=0.2)


def identities_size(store: ManagedStore) -> int:
    with store.database.read() as tx:
        row = tx.one(
            """
            SELECT (page_count - freelist_count) * page_size AS size
            FROM pragma_page_count, pragma_freelist_count, pragma_page_size
            """
            if tx.on_sqlite
            else "SELECT pg_total_relation_size('identities') AS size"
        )
    assert row is not None
    return int(row["size"])


def test_usable_space_excludes_the_reserve(tmp_path: Path):
    free_bytes = shutil.disk_usage(tmp_path).free
    database = tmp_path / "hookmill.db"

    usable = usable_bytes(database, free_bytes // 2)

    assert usable == pytest.approx(free_bytes / 2, rel=0.2)
    assert usable_bytes(database, free_bytes * 2) == 0
    assert usable_bytes(tmp_path / "missing" / "hookmill.db", 0) is None
    assert usable_bytes(None, 0) is None
