"""A backup from under load is restored: its state is consistent, and it accepts retries of later deliveries.

Commands that are killed leave nothing behind that looks like a backup or a restored database.
"""

import random
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hookmill import app
from hookmill.domain.ids import delivery_id
from hookmill.store.database import open_database
from tests.faults.audit import audit, wait_until_runs_have_ended
from tests.faults.backup_killer import command_until
from tests.faults.senders import Event, LoadGenerator, PersistentConnection, delivery_request
from tests.faults.sources import create_sources
from tests.support.counts import only_in_proof
from tests.support.loaded import Command, Forked
from tests.support.odd_rows import fill, relations, rows_of_postgres, rows_of_sqlite
from tests.support.postgres import Postgres, program
from tests.support.service import Service, serving
from tests.support.stores import migrated_sqlite_file
from tests.support.waiting import LONG_SECONDS, until

ACCEPTED_MIN = 150
KILLS_MIN = 4
SETTINGS: dict[str, Any] = {
    "deliveries_per_minute": 100_000,
    "webhooks_per_factory": 100,
    "runs_at_once": 24,
    "master_key": "A" * 43 + "=",
}


@dataclass(slots=True)
class Installation:
    """A data directory, and a PostgreSQL database unless `url` is None."""

    data_dir: Path
    url: str | None

    @property
    def store_url(self) -> str:
        return self.url or f"sqlite:///{self.data_dir / 'hookmill.db'}"

    @property
    def service(self) -> Service:
        """A service that is not started, for its environment and settings."""
        return Service(self.data_dir, self.url, {name.upper(): str(SETTINGS[name]) for name in SETTINGS}, port=1)

    def command(self, *arguments: str, output: Path, seconds: float = LONG_SECONDS) -> int:
        """Run the command, which appends to the file `output`. Returns its exit code."""
        return self.start(*arguments, output=output).wait(seconds)

    def start(self, *arguments: str, output: Path) -> Command:
        return Command(list(arguments), self.service.environment(), self.data_dir.parent, output)


@pytest.fixture
def installation(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[str, str], Installation]]:
    """Makes an installation: `installation("sqlite", "data")`."""
    urls = []
    server: Postgres = request.getfixturevalue("postgres_server")

    def create(kind: str, name: str) -> Installation:
        if kind == "postgres":
            urls.append(server.create_database())
        return Installation(tmp_path / name, urls[-1] if kind == "postgres" else None)

    yield create
    for url in urls:
        server.drop_database(url)


def copy_with_command(original: Installation, copy: Installation, directory: Path) -> Callable[[], None]:
    output = directory / "output"
    assert original.command("backup", "backup", "--json", output=output) == 0, output.read_text()
    assert original.command("verify", "--json", output=output) == 0, output.read_text()

    def restore() -> None:
        assert copy.command("restore", "backup", "--json", output=output) == 0, output.read_text()

    return restore


def copy_with_tools_of_the_database(original: Installation, copy: Installation, directory: Path) -> Callable[[], None]:
    copy.data_dir.mkdir(mode=0o700)
    if original.url is None:
        with closing(sqlite3.connect(original.data_dir / "hookmill.db")) as connection:
            connection.execute("VACUUM INTO ?", (str(copy.data_dir / "hookmill.db"),))
        return lambda: None
    run("pg_dump", "--format=custom", f"--file={directory / 'backup'}", original.url)

    def restore() -> None:
        assert copy.url is not None
        run("pg_restore", "--exit-on-error", "--dbname", copy.url, str(directory / "backup"))

    return restore


@pytest.mark.parametrize(
    ("from_kind", "to_kind", "back_up"),
    [
        ("sqlite", "postgres", copy_with_command),
        only_in_proof("postgres", "sqlite", copy_with_command),
        *(
            only_in_proof(kind, kind, back_up)
            for kind in ("sqlite", "postgres")
            for back_up in (copy_with_command, copy_with_tools_of_the_database)
        ),
    ],
)
def test_restored_backup_is_consistent_and_accepts_retries_once(
    from_kind: str,
    to_kind: str,
    back_up: Callable[[Installation, Installation, Path], Callable[[], None]],
    tmp_path: Path,
    installation: Callable[[str, str], Installation],
):
    original, copy = installation(from_kind, "data"), installation(to_kind, "restored")
    with serving(original.data_dir, database_url=original.url, **SETTINGS) as service:
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
            restore = back_up(original, copy, tmp_path)
            until(lambda: load.accepted >= len(answered_before) + ACCEPTED_MIN, "further events are accepted")
            load.drain(30)
    restore()
    restored = deliveries_in(copy.store_url)
    with serving(copy.data_dir, database_url=copy.url, **SETTINGS) as service:
        if back_up is copy_with_command:
            until(lambda: "was restored from a backup" in service.log(), "the start says what a restore means")
        retry_all(service.port, load.events)
        wait_until_runs_have_ended(copy.store_url)
        assert copy.command("verify", output=tmp_path / "verified") == 0, (tmp_path / "verified").read_text()
    result = audit(copy.store_url, load.events)

    assert answered_before <= restored
    assert len(restored) < len(load.events)
    assert result.violations() == {}
    assert result.accepted == len(load.events)


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


# Commands that are killed, and full disks


@pytest.fixture
def filled(installation: Callable[[str, str], Installation]) -> Installation:
    """An installation on SQLite that has a few rows in each table."""
    filled = installation("sqlite", "data")
    filled.data_dir.mkdir(mode=0o700)
    shutil.copy(migrated_sqlite_file(), filled.data_dir / "hookmill.db")
    settings = filled.service.read_settings()
    store = app.open_store(settings, create=True)
    app.build_management(settings, store).factories.set_up()
    store.close()
    fill(filled.data_dir / "hookmill.db")
    return filled


def run_until(installation: Installation, step: int, *arguments: str, output: Path) -> int:
    process = Forked(
        command_until, (step, arguments), installation.service.environment(), installation.data_dir.parent, output
    )
    code = process.wait(LONG_SECONDS)
    assert code in (0, -signal.SIGKILL), output.read_text()
    return code


def test_killed_backup_leaves_no_file_with_its_name(filled: Installation, tmp_path: Path):
    kills = 0
    while run_until(filled, 1 + 7 * kills, "backup", "backup", "--json", output=tmp_path / "output") != 0:
        kills += 1
        assert not (tmp_path / "backup").exists()

    assert kills >= KILLS_MIN
    # The complete backup has removed what the killed ones have left.
    assert [path.name for path in tmp_path.glob("*backup*")] == ["backup"]
    assert filled.command("restore", "--check", "backup", output=tmp_path / "output") == 0


@pytest.mark.parametrize("kind", [only_in_proof("sqlite"), "postgres"])
def test_killed_restore_leaves_an_empty_database_and_can_be_started_again(
    kind: str, filled: Installation, installation: Callable[[str, str], Installation], tmp_path: Path
):
    output = tmp_path / "output"
    assert filled.command("backup", "backup", output=output) == 0, output.read_text()
    target = installation(kind, "restored")
    kills = 0
    while run_until(target, 1 + 7 * kills, "restore", "backup", "--json", output=output) != 0:
        kills += 1
        if target.url is not None and relations(target.url) != []:
            # It was killed after the COMMIT.
            break
        assert not (target.data_dir / "hookmill.db").exists()

    assert kills >= KILLS_MIN
    expected = rows_of_sqlite(filled.data_dir / "hookmill.db")
    rows = rows_of_postgres(target.url) if target.url is not None else rows_of_sqlite(target.data_dir / "hookmill.db")
    assert rows["deliveries"] == expected["deliveries"]
    assert rows["payloads"] == expected["payloads"]
    assert {path.name for path in target.data_dir.iterdir()} <= {"hookmill.db"}


def test_backup_says_when_its_output_is_full(filled: Installation, tmp_path: Path):
    errors = tmp_path / "errors"
    full = Command(["backup", "-"], filled.service.environment(), tmp_path, Path("/dev/full"), errors)

    assert full.wait(LONG_SECONDS) == 1
    assert b"standard output can't be written: No space left on device." in errors.read_bytes()
