"""A backup from under load is restored: its state is consistent, and it accepts retries of later deliveries.

Commands that are killed leave nothing behind that looks like a backup or a restored database.
"""

import fcntl
import io
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from psycopg import sql

from hookmill import app
from hookmill.domain.ids import RunKey, delivery_id, run_id
from hookmill.store.backup.container import BackupReader, UnusableBackup
from hookmill.store.backup.records import Header, PackageFile
from hookmill.store.database import open_database
from tests.faults.audit import audit, wait_until_runs_have_ended
from tests.faults.backup_killer import (
    command_interrupted_after_commit,
    command_until,
    command_with_few_pages,
    command_without_answer_to_commit,
)
from tests.faults.senders import Event, LoadGenerator, PersistentConnection, delivery_request
from tests.faults.small_disk import SmallDisk
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
ALMOST_FULL_BYTES = 128 * 1024
"""Less than the largest body of `filled`."""
PIPE_BYTES_MIN = 2048
"""More than a backup writes before the package of `add_package`, and less than any pipe holds."""
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
    more_settings: dict[str, str] = field(default_factory=dict)

    @property
    def store_url(self) -> str:
        return self.url or f"sqlite:///{self.data_dir / 'hookmill.db'}"

    @property
    def service(self) -> Service:
        """A service that is not started, for its environment and settings."""
        settings = {name.upper(): str(value) for name, value in (SETTINGS | self.more_settings).items()}
        return Service(self.data_dir, self.url, settings, port=1)

    def command(self, *arguments: str, output: Path, seconds: float = LONG_SECONDS) -> int:
        """Run the command, which appends to the file `output`. Returns its exit code."""
        return self.start(*arguments, output=output).wait(seconds)

    def start(self, *arguments: str, output: Path) -> Command:
        return Command(list(arguments), self.service.environment(), self.data_dir.parent, output)


@pytest.fixture
def installation(tmp_path, request):
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

    def restore():
        assert copy.command("restore", "backup", "--json", output=output) == 0, output.read_text()

    return restore


def copy_with_tools_of_the_database(original: Installation, copy: Installation, directory: Path) -> Callable[[], None]:
    copy.data_dir.mkdir(mode=0o700)
    if original.url is None:
        with closing(sqlite3.connect(original.data_dir / "hookmill.db")) as connection:
            connection.execute("VACUUM INTO ?", (str(copy.data_dir / "hookmill.db"),))
        return lambda: None
    run("pg_dump", "--format=custom", f"--file={directory / 'backup'}", original.url)

    def restore():
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
    from_kind,
    to_kind,
    back_up,
    tmp_path,
    installation,
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


def run(name: str, *arguments: str):
    completed = subprocess.run([program(name), *arguments], capture_output=True, text=True, timeout=60)
    assert completed.returncode == 0, completed.stderr


def deliveries_in(url: str) -> set[str]:
    with open_database(url) as database, database.read() as tx:
        return {delivery_id(row["id"]) for row in tx.all("SELECT id FROM deliveries")}


def retry_all(port: int, events: Sequence[Event]):
    """Send every event once again, like senders that retry everything of the last hour."""
    with PersistentConnection(port) as connection:
        for event in events:
            answer = connection.exchange(delivery_request(event.webhook, event.body, headers=event.headers))
            assert answer is not None
            assert answer.status == 202
            event.delivery_ids[:] = [answer.delivery_id]


# Commands that are killed, and full disks


@pytest.fixture
def filled(installation):
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


def test_killed_backup_leaves_no_file_with_its_name(filled, tmp_path):
    kills = 0
    while run_until(filled, 1 + 7 * kills, "backup", "backup", "--json", output=tmp_path / "output") != 0:
        kills += 1
        assert not (tmp_path / "backup").exists()

    assert kills >= KILLS_MIN
    # The complete backup has removed what the killed ones have left.
    assert [path.name for path in tmp_path.glob("*backup*")] == ["backup"]
    assert filled.command("restore", "--check", "backup", output=tmp_path / "output") == 0


@pytest.mark.parametrize("kind", [only_in_proof("sqlite"), "postgres"])
def test_killed_restore_leaves_an_empty_database_and_can_be_started_again(kind, filled, installation, tmp_path):
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


@pytest.mark.parametrize("kind", [only_in_proof("sqlite"), "postgres"])
def test_restore_that_is_interrupted_after_its_commit_keeps_everything(kind, filled, installation, tmp_path):
    output = tmp_path / "output"
    add_package(filled.data_dir)
    assert filled.command("backup", "backup", "--with-run-packages", output=output) == 0, output.read_text()
    target = installation(kind, "restored")

    code = Forked(
        command_interrupted_after_commit, (("restore", "backup"),), target.service.environment(), tmp_path, output
    ).wait(LONG_SECONDS)

    assert (code, "Restored" in output.read_text()) == (0, True), output.read_text()
    assert deliveries_in(target.store_url) == deliveries_in(filled.store_url) != set()
    assert [path.name for path in target.data_dir.glob("runs/*/*")] == ["result"]


def test_restore_whose_commit_is_not_answered_keeps_everything(filled, installation, tmp_path):
    output = tmp_path / "output"
    add_package(filled.data_dir)
    assert filled.command("backup", "backup", "--with-run-packages", output=output) == 0, output.read_text()
    target = installation("postgres", "restored")

    code = Forked(
        command_without_answer_to_commit, (("restore", "backup"),), target.service.environment(), tmp_path, output
    ).wait(LONG_SECONDS)

    assert (code, "may be complete" in output.read_text()) == (1, True), output.read_text()
    assert deliveries_in(target.store_url) == deliveries_in(filled.store_url) != set()
    assert [path.name for path in target.data_dir.glob("runs/*/*")] == ["result"]


def test_backup_says_when_its_output_is_full(filled, tmp_path):
    errors = tmp_path / "errors"
    full = Command(["backup", "-"], filled.service.environment(), tmp_path, Path("/dev/full"), errors)

    assert full.wait(LONG_SECONDS) == 1
    assert b"standard output can't be written: No space left on device." in errors.read_bytes()


@pytest.fixture
def stalled_backup(filled):
    """A backup that has filled the pipe that is its standard output, and waits until the test reads from it."""
    add_package(filled.data_dir)
    with subprocess.Popen(
        [Path(sys.executable).with_name("hookmill"), "backup", "-", "--with-run-packages"],
        env=filled.service.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A shell starts background jobs, such as the tests themselves, with SIGINT ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        # In the session of the tests, its low priority could leave it no processor time.
        start_new_session=True,
    ) as command:
        try:
            until(lambda: bytes_to_read(command) > PIPE_BYTES_MIN, "the backup fills the pipe")
            yield command
        finally:
            command.kill()


def bytes_to_read(command: subprocess.Popen[bytes]) -> int:
    assert command.stdout is not None
    size = bytearray(4)
    fcntl.ioctl(command.stdout, termios.FIONREAD, size)
    return int.from_bytes(size, sys.byteorder)


def test_backup_whose_reader_stalls_can_be_interrupted(stalled_backup):
    stalled_backup.send_signal(signal.SIGINT)

    assert stalled_backup.wait(LONG_SECONDS) == 1
    assert stalled_backup.stderr is not None
    assert b"The backup was interrupted. Its output is incomplete." in stalled_backup.stderr.read()


def test_rotation_ends_a_backup_before_any_row_is_written(stalled_backup, filled):
    with closing(sqlite3.connect(filled.data_dir / "hookmill.db")) as connection, connection:
        connection.execute("UPDATE metadata SET value = ? WHERE name = 'master key'", (b"another",))
    output, errors = stalled_backup.communicate(timeout=LONG_SECONDS)

    assert stalled_backup.returncode == 1
    assert b"The master key was rotated when the backup began. Its output is incomplete." in errors
    records = BackupReader(io.BytesIO(output), "The backup").records()
    assert isinstance(next(records), Header)
    assert isinstance(next(records), PackageFile)
    with pytest.raises(UnusableBackup, match="is cut"):
        next(records)


def add_package(data_dir: Path):
    """Add the package of a run, with a file that can't be compressed and is larger than `ALMOST_FULL_BYTES`."""
    package = data_dir / "runs" / run_id(RunKey(bytes(16)))
    package.mkdir(parents=True)
    (package / "result").write_bytes(os.urandom(4 * ALMOST_FULL_BYTES))


def test_full_disk_ends_a_backup_and_keeps_the_previous_one(filled, tmp_path):
    output = tmp_path / "output"
    with SmallDisk(tmp_path) as disk:
        target = disk.directory / "backup"
        assert filled.command("backup", str(target), output=output) == 0, output.read_text()
        previous = target.read_bytes()
        add_package(filled.data_dir)
        if disk.is_mounted:
            disk.fill(free_bytes=ALMOST_FULL_BYTES)
            filled.more_settings = {"free_space_min_mb": "0"}
        else:
            filled.more_settings = {"free_space_min_mb": "1000000000"}
        arguments = ("backup", "--force", "--with-run-packages", str(target))
        failed = filled.command(*arguments, output=output)
        files = {path.name for path in disk.directory.iterdir()}
        kept = target.read_bytes()
        disk.free()
        filled.more_settings = {"free_space_min_mb": "0"}
        repeated = filled.command(*arguments, output=output)
        assert filled.command("restore", "--check", str(target), output=output) == 0

    text = output.read_text()
    assert failed == 1
    assert str(disk.directory) in text
    assert "Nothing was written. Free disk space, or write the backup to another disk." in text
    assert "Traceback" not in text
    assert kept == previous
    assert files <= {"backup", "filler"}
    assert repeated == 0, text


@pytest.mark.parametrize("full", ["database", "packages"])
def test_restore_to_a_full_disk_changes_nothing_and_can_be_started_again(full, filled, tmp_path):
    output, backup = tmp_path / "output", str(tmp_path / "backup")
    if full == "packages":
        add_package(filled.data_dir)
    assert filled.command("backup", backup, "--with-run-packages", output=output) == 0, output.read_text()
    with SmallDisk(tmp_path) as disk:
        target = Installation(disk.directory / "data", None)
        if disk.is_mounted:
            disk.fill(free_bytes=ALMOST_FULL_BYTES)
            failed = target.command("restore", backup, output=output)
        else:
            failed = Forked(
                command_with_few_pages, (20, ("restore", backup)), target.service.environment(), tmp_path, output
            ).wait(LONG_SECONDS)
        text = output.read_text()
        files = [path for path in target.data_dir.rglob("*") if path.is_file()]
        disk.free()
        repeated = target.command("restore", backup, output=output)
        assert (
            rows_of_sqlite(target.data_dir / "hookmill.db")["payloads"]
            == (rows_of_sqlite(filled.data_dir / "hookmill.db")["payloads"])
        )

    assert failed == 1
    assert f"because the disk of {target.data_dir} is full. Nothing was changed. Free disk space" in text
    assert "Traceback" not in text
    assert files == []
    assert repeated == 0, output.read_text()


def test_restore_while_the_disk_of_postgresql_is_full_can_be_started_again(filled, postgres_server, tmp_path):
    output = tmp_path / "output"
    assert filled.command("backup", "backup", output=output) == 0, output.read_text()
    with small_postgres_database(postgres_server, tmp_path) as (url, fill_disk, free_disk):
        target = Installation(tmp_path / "restored", url)
        assert target.command("migrate", output=output) == 0, output.read_text()
        fill_disk()
        failed = target.command("restore", "backup", output=output)
        text = output.read_text()
        free_disk()
        deliveries = deliveries_in(url)
        repeated = target.command("restore", "backup", output=output)
        assert rows_of_postgres(url)["payloads"] == rows_of_sqlite(filled.data_dir / "hookmill.db")["payloads"]

    assert failed == 1
    # On a full disk, PostgreSQL may already refuse the connection.
    reasons = (
        "because the disk of PostgreSQL is full. Nothing was changed. Free disk space",
        "No space left on device\nCheck that it runs, that its disk has free space",
    )
    assert any(reason in text for reason in reasons), text
    assert "Traceback" not in text
    assert deliveries == set()
    assert repeated == 0, output.read_text()


@contextmanager
def small_postgres_database(
    server: Postgres, directory: Path
) -> Iterator[tuple[str, Callable[[], None], Callable[[], None]]]:
    """A database whose tables are on a small file system, and functions that fill and free it.

    If that is not possible, a trigger raises the error of a full disk.
    """
    url = server.create_database()
    database = sql.Identifier(url.rpartition("/")[2])
    space = sql.Identifier("small_disk")
    # The account of the server can't enter the directories of tests.
    with tempfile.TemporaryDirectory() as parent, SmallDisk(Path(parent)) as disk:
        Path(parent).chmod(0o711)
        is_small = disk.is_mounted and move_to_disk(server, database, space, disk.directory / "space")

        def execute(*statements: str):
            with psycopg.connect(url, autocommit=True) as connection:
                for statement in statements:
                    connection.execute(statement.encode())

        try:
            yield (
                url,
                (lambda: disk.fill(free_bytes=ALMOST_FULL_BYTES)) if is_small else lambda: execute(*FULL_DISK_TRIGGER),
                disk.free if is_small else lambda: execute("DROP TRIGGER full_disk ON payloads"),
            )
        finally:
            disk.free()
            server.drop_database(url)
            if is_small:
                with psycopg.connect(server.admin_url, autocommit=True) as connection:
                    connection.execute(sql.SQL("DROP TABLESPACE {}").format(space))


FULL_DISK_TRIGGER = (
    """
    CREATE FUNCTION raise_full_disk() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$
    """,
    "CREATE TRIGGER full_disk BEFORE INSERT ON payloads EXECUTE FUNCTION raise_full_disk()",
)


def move_to_disk(server: Postgres, database: sql.Identifier, space: sql.Identifier, directory: Path) -> bool:
    """Move the database to a tablespace in this directory. Returns False if the server can't do it."""
    with psycopg.connect(server.admin_url, autocommit=True) as connection:
        try:
            account = psutil.Process(connection.info.backend_pid).uids().real
            directory.mkdir()
            os.chown(directory, account, -1)
            connection.execute(sql.SQL("CREATE TABLESPACE {} LOCATION {}").format(space, sql.Literal(str(directory))))
        except (psutil.NoSuchProcess, psycopg.Error):
            return False
        connection.execute(sql.SQL("ALTER DATABASE {} SET TABLESPACE {}").format(database, space))
    return True
