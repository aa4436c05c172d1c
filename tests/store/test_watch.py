"""The commit watch reports every commit. On SQLite, it reports nothing else."""

import shutil
import sqlite3

import pytest

from hookmill.domain.errors import StoreUnavailable
from hookmill.store.database import Database, open_database
from hookmill.store.watch import CommitWatch


def commit(database: Database):
    with database.write() as tx:
        tx.run("UPDATE alembic_version SET version_num = version_num")


@pytest.fixture
def database(sqlite_store):
    with open_database(sqlite_store) as database:
        yield database


@pytest.fixture
def watch(database):
    watch = CommitWatch(database)
    yield watch
    watch.close()


def test_first_check_reports_a_commit(watch):
    assert watch.has_new_commit()
    assert not watch.has_new_commit()


def test_each_commit_of_any_connection_is_reported_once(database, watch):
    watch.has_new_commit()
    commit(database)
    assert (watch.has_new_commit(), watch.has_new_commit()) == (True, False)

    with open_database(database.url) as other:
        commit(other)
        assert (watch.has_new_commit(), watch.has_new_commit()) == (True, False)


def test_reads_and_rollbacks_are_not_reported(database, watch):
    watch.has_new_commit()
    with database.read() as tx:
        tx.all("SELECT * FROM webhooks")
    with pytest.raises(ZeroDivisionError), database.write() as tx:
        tx.run("UPDATE alembic_version SET version_num = version_num")
        _ = 1 / 0

    assert not watch.has_new_commit()


def test_commit_after_a_check_is_reported_by_the_next_check(database, watch):
    watch.has_new_commit()
    commit(database)
    assert watch.has_new_commit()
    commit(database)

    assert watch.has_new_commit()


def test_commit_is_reported_after_a_checkpoint(database, watch):
    watch.has_new_commit()
    commit(database)
    with sqlite3.connect(database.path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()

    assert watch.has_new_commit()


def test_damaged_database_reports_a_commit_at_every_check(sqlite_store, tmp_path):
    damaged = tmp_path / "hookmill.db"
    shutil.copy(sqlite_store.removeprefix("sqlite:///"), damaged)
    damaged.write_bytes(b"no database at all" * 1000)
    with open_database(f"sqlite:///{damaged}") as database:
        watch = CommitWatch(database)

        assert [watch.has_new_commit() for _ in range(3)] == [True] * 3
        with pytest.raises(StoreUnavailable), database.read() as tx:
            tx.one("SELECT 1 FROM runs")
