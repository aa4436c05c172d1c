"""A backup from under load is restored: its state is consistent, and it accepts retries of later deliveries."""

import random
import sqlite3
import subprocess
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hookmill.domain.ids import delivery_id
from hookmill.store.database import open_database
from tests.faults.audit import audit, wait_until_runs_have_ended
from tests.faults.senders import Event, LoadGenerator, PersistentConnection, delivery_request
from tests.faults.sources import create_sources
from tests.support.postgres import Postgres, program
from tests.support.service import serving
from tests.support.waiting import until

ACCEPTED_MIN = 150
SETTINGS: dict[str, Any] = {
    "deliveries_per_minute": 100_000,
    "webhooks_per_factory": 100,
    "runs_at_once": 24,
    "master_key": "A" * 43 + "=",
}


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_restored_backup_is_consistent_and_accepts_retries_once(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
):
    server: Postgres | None = request.getfixturevalue("postgres_server") if kind == "postgres" else None
    url, restored_url = (server.create_database(), server.create_database()) if server is not None else (None, None)
    (tmp_path / "restored").mkdir(mode=0o700)
    backup = tmp_path / "backup" if server is not None else tmp_path / "restored" / "hookmill.db"

    with serving(tmp_path / "data", database_url=url, **SETTINGS) as service:
        with service.management() as management:
            sources = create_sources(management)
        with LoadGenerator(
            [service.port],
            lambda chance, number: chance.choice(sources).new_event(chance, number),
            random.Random(5),
            senders=8,
        ) as load:
            until(lambda: load.accepted >= ACCEPTED_MIN, "events are accepted")
            answered_before = {delivery for event in list(load.events) for delivery in list(event.delivery_ids)}
            back_up(tmp_path / "data" / "hookmill.db", url, backup)
            until(lambda: load.accepted >= len(answered_before) + ACCEPTED_MIN, "further events are accepted")
            load.drain(30)
    if restored_url is not None:
        run("pg_restore", "--exit-on-error", "--dbname", restored_url, str(backup))
    store_url = restored_url or f"sqlite:///{backup}"
    restored = deliveries_in(store_url)
    with serving(tmp_path / "restored", database_url=restored_url, **SETTINGS) as service:
        retry_all(service.port, load.events)
        wait_until_runs_have_ended(store_url)
    result = audit(store_url, load.events)
    if server is not None and url is not None and restored_url is not None:
        server.drop_database(url)
        server.drop_database(restored_url)

    assert answered_before <= restored
    assert len(restored) < len(load.events)
    assert result.violations() == {}
    assert result.accepted == len(load.events)


def back_up(sqlite_file: Path, url: str | None, backup: Path) -> None:
    if url is not None:
        run("pg_dump", "--format=custom", f"--file={backup}", url)
        return
    with closing(sqlite3.connect(sqlite_file)) as connection:
        connection.execute("VACUUM INTO ?", (str(backup),))


def run(name: str, *arguments: str) -> None:
    completed = subprocess.run([program(name), *arguments], capture_output=True, text=True, timeout=60)
    assert completed.returncode == 0, completed.stderr


def deliveries_in(url: str) -> set[str]:
    with open_database(url) as database, database.read() as tx:
        return {delivery_id(row["id"]) for row in tx.all("SELECT id FROM deliveries")}


def retry_all(port: int, events: Sequence[Event]) -> None:
    """Send every event once again, like senders that retry everything of the last hour."""
    with PersistentConnection(port) as connection:
        for event in events:
            answer = connection.exchange(delivery_request(event.webhook, event.body, headers=event.headers))
            assert answer is not None
            assert answer.status == 202
            event.delivery_ids[:] = [answer.delivery_id]
