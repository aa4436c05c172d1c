"""Access to the database: who may write, who waits for whom and for how long, and what an error tells."""

import contextlib
import sqlite3
import stat
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy.exc import SQLAlchemyError

from hookmill.domain.errors import Invalid, StoreUnavailable
from hookmill.store import database as module
from hookmill.store import postgres_engine, sqlite_engine, timeouts
from hookmill.store.database import Database, open_database
from hookmill.store.revision import application_name


@pytest.fixture
def database(store_url):
    with open_database(store_url) as database:
        yield database


def test_what_was_written_is_read(database):
    with database.write() as tx:
        fact(tx, "a")

    with database.read() as tx:
        assert facts(tx) == ["a"]


def test_a_transaction_is_kept_whole_or_not_at_all(database):
    with pytest.raises(RuntimeError, match="in the middle"), database.write() as tx:
        fact(tx, "a")
        raise RuntimeError("in the middle")

    with database.read() as tx:
        assert facts(tx) == []


def test_a_reader_can_not_write(database):
    with pytest.raises((SQLAlchemyError, StoreUnavailable)), database.read() as tx:
        fact(tx, "a")

    with database.read() as tx:
        assert facts(tx) == []
    with database.write() as tx:
        fact(tx, "b")


def test_a_reading_is_of_one_moment(database):
    with database.read() as tx:
        before = facts(tx)
        with database.write() as other:
            fact(other, "a")
        after = facts(tx)

    assert before == after == []


def test_readers_do_not_wait_for_a_writer(database):
    with database.write() as tx:
        fact(tx, "a")
        # Who waited for it here would wait in vain.
        with database.read() as other:
            assert facts(other) == []


def test_writers_on_sqlite_take_turns_in_the_order_of_asking(sqlite_store):
    order: list[int] = []
    with open_database(sqlite_store) as database:

        def write(no: int) -> None:
            with database.write():
                order.append(no)

        with database.write():
            waiting = []
            for no in range(10):
                waiting.append(threading.Thread(target=write, args=(no,)))
                waiting[-1].start()
                until_asking(database, no + 1)
        for thread in waiting:
            thread.join()

    assert order == list(range(10))


def test_a_busy_writer_lets_the_next_one_write(sqlite_store):
    with open_database(sqlite_store) as database:
        stop = threading.Event()

        def write_again_and_again() -> None:
            while not stop.is_set():
                with database.write() as tx:
                    tx.run("UPDATE facts SET value = value")

        busy = threading.Thread(target=write_again_and_again)
        busy.start()
        began = time.monotonic()
        for no in range(20):
            with database.write() as tx:
                fact(tx, str(no))
        waited = time.monotonic() - began
        stop.set()
        busy.join()

    assert waited < 20.0


def test_a_writer_that_failed_lets_the_next_one_write(database):
    for _ in range(3):
        with pytest.raises(SQLAlchemyError), database.write() as tx:
            fact(tx, "a")
            fact(tx, "a")

    with database.write() as tx:
        fact(tx, "a")


def test_a_server_that_is_replaced_by_an_unsuitable_one_is_unavailable(postgres_store, monkeypatch):
    with open_database(postgres_store) as database:
        with database.read():
            monkeypatch.setattr(postgres_engine, "OLDEST_VERSION", 99)
            with pytest.raises(StoreUnavailable, match="Hookmill needs 99 or newer"), database.read():
                pass
        monkeypatch.undo()

        with database.read() as first, database.read() as second:
            assert facts(first) == facts(second) == []


def test_a_store_locked_for_too_long_is_unavailable(store_url, monkeypatch):
    monkeypatch.setattr(timeouts, "BUSY_SECONDS", 1)
    with open_database(store_url) as database, open_database(store_url) as somebody, somebody.write() as tx:
        if not tx.on_sqlite:
            tx.run("LOCK TABLE facts IN ACCESS EXCLUSIVE MODE")
        began = time.monotonic()
        with pytest.raises(StoreUnavailable), database.write() as other:
            fact(other, "a")

    assert 0.9 < time.monotonic() - began < 20.0


def test_a_statement_that_takes_too_long_is_unavailable(postgres_store, monkeypatch):
    monkeypatch.setattr(timeouts, "STATEMENT_SECONDS", 1)
    with open_database(postgres_store) as database:
        # To connect may take as long, and is not what is asked here.
        with database.read() as tx:
            tx.one("SELECT 1")
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="statement timeout"), database.read() as tx:
            tx.one("SELECT pg_sleep(30)")

    assert time.monotonic() - began < 20.0


def test_the_times_that_are_waited_fit_into_a_senders_patience():
    assert (timeouts.BUSY_SECONDS, timeouts.STATEMENT_SECONDS) == (2, 5)


def test_a_missing_database_is_unavailable_without_its_password():
    with open_database("postgresql://somebody:canary@127.0.0.1:1/nothing") as database:
        with pytest.raises(StoreUnavailable) as refused, database.read() as tx:
            tx.one("SELECT 1")

    assert "canary" not in str(refused.value)


def test_a_file_that_is_no_database_is_unavailable(tmp_path):
    path = tmp_path / "hookmill.db"
    path.write_bytes(b"canary " * 10_000)
    with open_database(f"sqlite:///{path}") as database:
        with pytest.raises(StoreUnavailable, match="not a database"), database.read() as tx:
            tx.one("SELECT 1")


def test_an_error_tells_neither_the_statement_nor_what_was_written(database):
    with pytest.raises(StoreUnavailable) as refused, database.write() as tx:
        tx.run("INSERT INTO nowhere (value) VALUES (:value)", value="canary")

    assert "nowhere" in str(refused.value)
    assert "canary" not in str(refused.value)
    assert "INSERT" not in str(refused.value)


def test_connections_that_were_forgotten_are_made_anew(database):
    for no in range(3):
        database.discard_connections()
        with database.write() as tx:
            fact(tx, str(no))

    with database.read() as tx:
        assert facts(tx) == ["0", "1", "2"]


@pytest.mark.parametrize("url", ["mysql://somebody:canary@host/x", "sqlite://", "hookmill.db", "", "file:canary"])
def test_a_url_of_another_kind_is_refused_and_not_repeated(url):
    with pytest.raises(Invalid, match="Use sqlite:///PATH or postgresql://") as refused:
        open_database(url)

    assert "canary" not in str(refused.value)


@pytest.mark.parametrize("prefix", ["postgresql://", "postgres://"])
def test_both_spellings_of_a_postgres_url_are_understood(postgres_store, prefix):
    with open_database(postgres_store.replace("postgresql://", prefix)) as database, database.read() as tx:
        assert dict(tx.one("SELECT 1 AS one") or {}) == {"one": 1}


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize("checkpoints", [True, False])
def test_sqlite_is_durable_and_only_the_writer_checkpoints(sqlite_store, writes, checkpoints):
    with open_database(sqlite_store, checkpoints=checkpoints) as database:
        with database.write() if writes else database.read() as tx:
            found = {
                name: tx.connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
                for name in ("journal_mode", "synchronous", "foreign_keys", "wal_autocheckpoint", "query_only")
            }

    assert found == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "wal_autocheckpoint": sqlite_engine.CHECKPOINT_PAGES if writes and checkpoints else 0,
        "query_only": 0 if writes else 1,
    }


def test_a_session_with_postgres_is_durable_bounded_and_in_utc(postgres_store):
    with open_database(postgres_store) as database, database.write() as tx:
        found = {
            name: tx.connection.exec_driver_sql(f"SHOW {name}").scalar_one()
            for name in ("synchronous_commit", "lock_timeout", "statement_timeout", "timezone", "application_name")
        }

    assert found == {
        "synchronous_commit": "on",
        "lock_timeout": "2s",
        "statement_timeout": "5s",
        "timezone": "UTC",
        "application_name": application_name(),
    }


def test_another_program_reads_the_database_of_a_running_service(sqlite_store):
    with open_database(sqlite_store) as database:
        with database.write() as tx:
            fact(tx, "a")
        with contextlib.closing(sqlite3.connect(sqlite_store.removeprefix("sqlite:///"))) as program:
            assert program.execute("SELECT name FROM facts").fetchall() == [("a",)]


def test_a_database_file_is_readable_by_its_owner_alone(tmp_path):
    path = tmp_path / "hookmill.db"
    path.write_bytes(b"")
    path.chmod(0o644)

    module.restrict_to_owner(path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    module.restrict_to_owner(Path("/nowhere/hookmill.db"))


def fact(tx, name: str) -> None:
    tx.run("INSERT INTO facts (name, value) VALUES (:name, :value)", name=name, value=b"")


def facts(tx) -> list[str]:
    return sorted(row["name"] for row in tx.all("SELECT name FROM facts"))


def until_asking(database: Database, count: int) -> None:
    """Until so many writers stand in the queue."""
    lock = database._write_lock
    assert lock is not None
    while len(lock._waiting) < count:
        time.sleep(0.001)


@pytest.mark.parametrize("text", ["a\ud800", "\udcff", "a\x00b"])
def test_text_that_no_database_keeps_is_refused(store_url: str, text: str):
    with open_database(store_url) as database, database.read() as tx:
        if tx.on_sqlite and "\x00" in text:
            assert tx.one("SELECT id FROM factories WHERE name = :name", name=text) is None
            return
        with pytest.raises(Invalid, match="NUL, or half of a surrogate pair"):
            tx.one("SELECT id FROM factories WHERE name = :name", name=text)
