"""Whoever watches a store hears of every commit, and of nothing else where that can be told."""

import shutil
import sqlite3

import pytest

from hookmill.domain.errors import StoreUnavailable
from hookmill.store.database import Database, open_database
from hookmill.store.watch import CommitWatch


def commit(database: Database) -> None:
    with database.write() as tx:
        tx.run("UPDATE alembic_version SET version_num = version_num")


@pytest.fixture
def watched(sqlite_store):
    with open_database(sqlite_store) as database:
        yield database


@pytest.fixture
def watch(watched):
    watch = CommitWatch(watched)
    yield watch
    watch.close()


def test_the_first_answer_is_that_there_may_be_something(watch):
    assert watch.has_new_commit()
    assert not watch.has_new_commit()


def test_each_commit_of_any_connection_is_reported_once(watched, watch):
    watch.has_new_commit()
    commit(watched)
    assert (watch.has_new_commit(), watch.has_new_commit()) == (True, False)

    with open_database(watched.url) as other:
        commit(other)
        assert (watch.has_new_commit(), watch.has_new_commit()) == (True, False)


def test_readings_and_what_was_rolled_back_are_no_news(watched, watch):
    watch.has_new_commit()
    with watched.read() as tx:
        tx.all("SELECT * FROM webhooks")
    with pytest.raises(ZeroDivisionError), watched.write() as tx:
        tx.run("UPDATE alembic_version SET version_num = version_num")
        _ = 1 / 0

    assert not watch.has_new_commit()


def test_a_commit_after_the_question_is_reported_by_the_next(watched, watch):
    watch.has_new_commit()
    commit(watched)
    assert watch.has_new_commit()
    commit(watched)

    assert watch.has_new_commit()


def test_a_checkpoint_hides_no_commit(watched, watch):
    watch.has_new_commit()
    commit(watched)
    with sqlite3.connect(watched.path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()

    assert watch.has_new_commit()


def test_a_damaged_store_never_reports_that_nothing_changed(sqlite_store, tmp_path):
    damaged = tmp_path / "hookmill.db"
    shutil.copy(sqlite_store.removeprefix("sqlite:///"), damaged)
    damaged.write_bytes(b"no database at all" * 1000)
    with open_database(f"sqlite:///{damaged}") as database:
        watch = CommitWatch(database)

        assert [watch.has_new_commit() for _ in range(3)] == [True] * 3
        with pytest.raises(StoreUnavailable), database.read() as tx:
            tx.one("SELECT 1 FROM runs")


def test_on_postgresql_there_may_always_be_something(postgres_store):
    with open_database(postgres_store) as database:
        watch = CommitWatch(database)

        assert [watch.has_new_commit() for _ in range(3)] == [True] * 3
