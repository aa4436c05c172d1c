"""A backup that is taken while deliveries come in, and restored: a consistent earlier state, which takes retries."""

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
from tests.faults import senders
from tests.faults.audit import audit, wait_until_runs_have_ended
from tests.faults.senders import Event, Fleet, Line
from tests.faults.sources import furnish
from tests.support.postgres import Postgres, program
from tests.support.service import serving
from tests.support.waiting import until

EVENTS_MIN = 150
SETTINGS: dict[str, Any] = {
    "deliveries_per_minute": 100_000,
    "webhooks_per_factory": 100,
    "runs_at_once": 24,
    "master_key": "A" * 43 + "=",
}


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_restored_backup_has_what_was_accepted_and_takes_retries_once(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
):
    server: Postgres | None = request.getfixturevalue("postgres_server") if kind == "postgres" else None
    url, restored_url = (server.create_database(), server.create_database()) if server is not None else (None, None)
    (tmp_path / "restored").mkdir(mode=0o700)
    backup = tmp_path / "backup" if server is not None else tmp_path / "restored" / "hookmill.db"

    with serving(tmp_path / "data", database_url=url, **SETTINGS) as service:
        with service.management() as management:
            sources = furnish(management)
        with Fleet(
            [service.port],
            lambda chance, number: chance.choice(sources).draw(chance, number),
            random.Random(5),
            senders=8,
        ) as fleet:
            until(lambda: fleet.taken >= EVENTS_MIN, "events are accepted")
            answered_before = {delivery for event in list(fleet.events) for delivery in list(event.taken_as)}
            back_up(tmp_path / "data" / "hookmill.db", url, backup)
            until(lambda: fleet.taken >= len(answered_before) + EVENTS_MIN, "further events are accepted")
            fleet.settle(30)
    if restored_url is not None:
        run("pg_restore", "--exit-on-error", "--dbname", restored_url, str(backup))
    store_url = restored_url or f"sqlite:///{backup}"
    restored = deliveries_in(store_url)
    with serving(tmp_path / "restored", database_url=restored_url, **SETTINGS) as service:
        replay(service.port, fleet.events)
        wait_until_runs_have_ended(store_url)
    findings = audit(store_url, fleet.events)
    if server is not None and url is not None and restored_url is not None:
        server.drop_database(url)
        server.drop_database(restored_url)

    assert answered_before <= restored
    assert len(restored) < len(fleet.events)
    assert findings.troubles() == {}
    assert findings.accepted == len(fleet.events)


def back_up(file: Path, url: str | None, backup: Path) -> None:
    if url is not None:
        run("pg_dump", "--format=custom", f"--file={backup}", url)
        return
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("VACUUM INTO ?", (str(backup),))


def run(name: str, *arguments: str) -> None:
    done = subprocess.run([program(name), *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def deliveries_in(url: str) -> set[str]:
    with open_database(url) as database, database.read() as tx:
        return {delivery_id(row["id"]) for row in tx.all("SELECT id FROM deliveries")}


def replay(port: int, events: Sequence[Event]) -> None:
    """Send every event once again, as senders do that retry everything of the last hour."""
    with Line(port) as line:
        for event in events:
            answer = line.ask(senders.request(event.made, event.body, headers=event.headers))
            assert answer is not None
            assert answer.status == 202
            event.taken_as[:] = [answer.delivery_id]
