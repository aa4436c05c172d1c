"""The PostgreSQL servers of other tests: real, separate, and removed at the end."""

import os
import pwd
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.support.postgres import (
    Installation,
    Postgres,
    PostgresServer,
    PostgresUnavailable,
    find_installation,
)

REMOVAL_SECONDS = 30


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer.start() as server:
        yield server


def test_database_of_a_test_is_real_and_empty(postgres_url: str):
    with psycopg.connect(postgres_url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()

        assert connection.info.server_version >= 150_000
        assert tables == []


def test_database_with_open_connections_can_be_dropped(postgres_server: Postgres):
    url = postgres_server.create_database()
    with psycopg.connect(url) as connection:
        postgres_server.drop_database(url)

        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(url)


def test_databases_of_a_server_are_separate(server: PostgresServer):
    one, other = server.create_database(), server.create_database()
    _insert_word(one, "hello")

    with psycopg.connect(other) as connection, pytest.raises(psycopg.errors.UndefinedTable):
        connection.execute("SELECT word FROM words")


def test_copy_of_a_database_has_its_rows(server: PostgresServer):
    original = server.create_database()
    _insert_word(original, "hello")

    copy = server.create_database(template=original)

    assert _words(copy) == ["hello"]


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_committed_rows_survive_a_restart(server: PostgresServer, mode):
    url = server.create_database()
    _insert_word(url, "hello")

    server.restart(mode)

    assert _words(url) == ["hello"]


def test_connections_fail_while_the_server_is_down(server: PostgresServer):
    url = server.create_database()

    with server.down(), pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)

    psycopg.connect(url).close()


def test_wrong_password_is_rejected(server: PostgresServer):
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(server.admin_url, password="wrong")


def test_server_syncs_to_disk_by_default(server: PostgresServer):
    with PostgresServer.start(fsync=False, max_connections=30) as unsynced:
        assert (_setting(server, "fsync"), _setting(server, "max_connections")) == ("on", "200")
        assert (_setting(unsynced, "fsync"), _setting(unsynced, "max_connections")) == ("off", "30")


def test_server_does_not_run_as_root(server: PostgresServer):
    account = psutil.Process(_pid(server)).username()

    assert account == ("nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name)


def test_stopped_server_leaves_no_process_and_no_directory():
    with PostgresServer.start() as server:
        directory, process = _directory(server), psutil.Process(_pid(server))
        assert directory.exists()

    assert not directory.exists()
    assert not _is_running(process)


def test_restart_of_a_permanently_stopped_server_fails():
    with PostgresServer.start() as server:
        pass

    with pytest.raises(PostgresUnavailable, match="stopped already"):
        server.restart()


def test_server_ends_when_the_process_that_started_it_is_killed():
    owner = subprocess.Popen([sys.executable, "-c", _OWNER], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner.stdout:
        directory, pid = owner.stdout.readline().split()
    server = psutil.Process(int(pid))

    owner.kill()
    owner.wait()

    assert _is_removed_soon(Path(directory))
    assert not _is_running(server)


def test_installation_that_is_too_old_is_skipped(tmp_path: Path):
    old = _fake_installation(tmp_path / "old", "postgres (PostgreSQL) 14.20")
    new = _fake_installation(tmp_path / "new", "postgres (PostgreSQL) 17.6")

    assert find_installation([old, new]) == new


def test_missing_installation_is_reported_with_instructions(tmp_path: Path):
    old = _fake_installation(tmp_path, "postgres (PostgreSQL) 14.20")

    with pytest.raises(PostgresUnavailable, match=r"version 14.*make setup"):
        find_installation([old])


_OWNER = """
import time
from tests.support.postgres import PostgresServer
from tests.support.test_postgres import _directory, _pid
server = PostgresServer.start()
print(_directory(server), _pid(server), flush=True)
time.sleep(60)
"""


def _insert_word(url: str, word: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE words (word TEXT)")
        connection.execute("INSERT INTO words VALUES (%s)", [word])


def _words(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        return [word for (word,) in connection.execute("SELECT word FROM words")]


def _setting(server: PostgresServer, name: str) -> str:
    with psycopg.connect(server.admin_url) as connection:
        row = connection.execute("SELECT current_setting(%s)", [name]).fetchone()
    assert row is not None
    return str(row[0])


def _directory(server: PostgresServer) -> Path:
    return Path(_setting(server, "data_directory")).parent


def _pid(server: PostgresServer) -> int:
    """The server's main process, which is the parent of all its other processes."""
    with psycopg.connect(server.admin_url) as connection:
        return psutil.Process(connection.info.backend_pid).ppid()


def _is_running(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def _is_removed_soon(directory: Path) -> bool:
    deadline = time.monotonic() + REMOVAL_SECONDS
    while directory.exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _fake_installation(root: Path, version: str) -> Installation:
    root.mkdir(exist_ok=True)
    for program in ("initdb", "postgres"):
        (root / program).write_text(f"#!/bin/sh\necho '{version}'\n")
        (root / program).chmod(0o755)
    return Installation(bin=root)
