"""Transactions and connections: isolation, locks, timeouts, and the texts of errors."""

import contextlib
import sqlite3
import stat
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy.exc import SQLAlchemyError

from hookmill.domain.errors import Invalid, StoreUnavailable
from hookmill.store import postgres_engine, sqlite_engine, timeouts
from hookmill.store.database import (
    Database,
    Transaction,
    is_sqlite_file,
    open_database,
    restrict_to_owner,
    sqlite_url,
)
from hookmill.store.migrate import migrate


@pytest.fixture
def database(store_url):
    with open_database(store_url) as database:
        yield database


def test_transaction_that_raises_is_rolled_back(database):
    with pytest.raises(RuntimeError, match="in the middle"), database.write() as tx:
        add_row(tx, "a")
        raise RuntimeError("in the middle")

    with database.read() as tx:
        assert row_names(tx) == []


def test_read_transaction_cannot_write(database):
    with pytest.raises((SQLAlchemyError, StoreUnavailable)), database.read() as tx:
        add_row(tx, "a")

    with database.read() as tx:
        assert row_names(tx) == []
    with database.write() as tx:
        add_row(tx, "b")


def test_second_statement_in_a_transaction_for_one_is_refused(database):
    with pytest.raises(RuntimeError, match="second one"), database.read_statement() as tx:
        row_names(tx)
        row_names(tx)
    with pytest.raises(RuntimeError, match="driver-level"), database.write_statement() as tx:
        tx.bulk("DELETE FROM metadata", ())

    with database.write() as tx:
        add_row(tx, "a")
        add_row(tx, "b")
    with database.read() as tx:
        assert row_names(tx) == ["a", "b"]


def test_single_statement_that_fails_changes_nothing(database):
    for _ in range(2):
        with pytest.raises(SQLAlchemyError), database.write_statement() as tx:
            tx.run("INSERT INTO metadata (name, value) VALUES ('a', '1'), ('a', '1')")

    with database.read_statement() as tx:
        assert row_names(tx) == []


def test_repeated_statement_returns_the_same_columns(database):
    sql = "SELECT 1 AS one, :two AS two, count(*) FROM (SELECT 1 AS x) AS rows"

    with database.read() as tx:
        results = [tx.one(sql, two=two) for two in ("a", "b", "c")]

    assert [list(row) for row in results] == [list(results[0])] * 3
    assert [(row["one"], row["two"]) for row in results] == [(1, "a"), (1, "b"), (1, "c")]


def test_every_column_includes_a_new_one(database):
    sql = "SELECT * FROM grown"
    with database.write() as tx:
        tx.run("CREATE TABLE grown (a INT)")
        tx.run("INSERT INTO grown VALUES (1)")
        assert [dict(row) for row in tx.all(sql)] == [{"a": 1}]
        tx.run("ALTER TABLE grown ADD COLUMN b INT")

        assert [dict(row) for row in tx.all(sql)] == [{"a": 1, "b": None}]


def test_list_selects_rows_and_unused_value_is_ignored(database):
    with database.write() as tx:
        for name in ("a", "b", "c"):
            add_row(tx, name)
        query = "SELECT name FROM metadata WHERE name IN :names ORDER BY name"
        assert tx.scalars(query, names=["a", "c", "d"], unused=1) == ["a", "c"]
        assert tx.scalar(query, names=["b"]) == "b"
        assert tx.scalar(query, names=["d"]) is None
        assert tx.integer("SELECT COUNT(*) FROM metadata WHERE name IN :names", names=["a", "b"]) == 2


def test_inserted_rows_are_returned_and_counted(database):
    with database.write() as tx:
        tx.run("CREATE TABLE numbered (a INT)")
        rows = [tx.one("INSERT INTO numbered VALUES (:a) RETURNING a", a=number) for number in (1, 2)]

        assert [row["a"] for row in rows] == [1, 2]
        assert [tx.run("UPDATE numbered SET a = a + 1") for _ in range(2)] == [2, 2]


def test_read_transaction_has_a_consistent_snapshot(database):
    with database.read() as tx:
        before = row_names(tx)
        with database.write() as other:
            add_row(other, "a")
        after = row_names(tx)

    assert before == after == []


def test_read_does_not_wait_for_a_writer(database):
    with database.write() as tx:
        add_row(tx, "a")
        # If the read waited for the writer, it would never end.
        with database.read() as other:
            assert row_names(other) == []


def test_writers_on_sqlite_get_the_lock_in_the_order_of_requests(sqlite_store):
    order: list[int] = []
    with open_database(sqlite_store) as database:

        def write(no):
            with database.write():
                order.append(no)

        with database.write():
            threads = []
            for no in range(10):
                threads.append(threading.Thread(target=write, args=(no,)))
                threads[-1].start()
                wait_for_waiting_writers(database, no + 1)
        for thread in threads:
            thread.join()

    assert order == list(range(10))


def test_busy_writer_does_not_starve_another(sqlite_store):
    with open_database(sqlite_store) as database:
        stop = threading.Event()

        def write_repeatedly():
            while not stop.is_set():
                with database.write() as tx:
                    tx.run("UPDATE metadata SET value = value")

        busy_thread = threading.Thread(target=write_repeatedly)
        busy_thread.start()
        began = time.monotonic()
        for no in range(20):
            with database.write() as tx:
                add_row(tx, str(no))
        waited = time.monotonic() - began
        stop.set()
        busy_thread.join()

    assert waited < 20.0


def test_connection_to_a_server_that_became_too_old_is_unavailable(postgres_store, monkeypatch):
    with open_database(postgres_store) as database:
        with database.read():
            monkeypatch.setattr(postgres_engine, "OLDEST_VERSION", 99)
            with pytest.raises(StoreUnavailable, match="Hookmill needs 99 or newer"), database.read():
                pass
        monkeypatch.undo()

        with database.read() as first, database.read() as second:
            assert row_names(first) == row_names(second) == []


def test_write_is_unavailable_if_the_database_stays_locked(store_url, monkeypatch):
    monkeypatch.setattr(timeouts, "BUSY_SECONDS", 1)
    with open_database(store_url) as database, open_database(store_url) as other, other.write() as tx:
        if not tx.on_sqlite:
            tx.run("LOCK TABLE metadata IN ACCESS EXCLUSIVE MODE")
        began = time.monotonic()
        with pytest.raises(StoreUnavailable), database.write() as waiting:
            add_row(waiting, "a")

    assert 0.9 < time.monotonic() - began < 20.0


def test_statement_that_exceeds_its_timeout_is_unavailable(postgres_store, monkeypatch):
    monkeypatch.setattr(timeouts, "STATEMENT_SECONDS", 3)
    with open_database(postgres_store) as database:
        # Connect in advance, because this can take as long on a busy machine.
        with database.read() as tx:
            tx.one("SELECT 1")
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="statement timeout"), database.read() as tx:
            tx.one("SELECT pg_sleep(30)")

    assert time.monotonic() - began < 20.0


def test_database_timeouts_are_short_enough_for_senders():
    assert (timeouts.BUSY_SECONDS, timeouts.STATEMENT_SECONDS) == (2, 5)


def test_error_about_a_missing_database_omits_its_password():
    with open_database("postgresql://somebody:canary@127.0.0.1:1/nothing") as database:
        with pytest.raises(StoreUnavailable) as error, database.read() as tx:
            tx.one("SELECT 1")

    assert "canary" not in str(error.value)


def test_file_that_is_not_a_database_is_unavailable(tmp_path):
    path = tmp_path / "hookmill.db"
    path.write_bytes(b"canary " * 10_000)
    with open_database(f"sqlite:///{path}") as database:
        with pytest.raises(StoreUnavailable, match="not a database"), database.read() as tx:
            tx.one("SELECT 1")


def test_error_omits_the_statement_and_its_values(database):
    with pytest.raises(StoreUnavailable) as error, database.write() as tx:
        tx.run("INSERT INTO missing (value) VALUES (:value)", value="canary")

    assert "missing" in str(error.value)
    assert "canary" not in str(error.value)
    assert "INSERT" not in str(error.value)


def test_discarded_connections_are_replaced(database):
    for no in range(3):
        database.discard_connections()
        with database.write() as tx:
            add_row(tx, str(no))

    with database.read() as tx:
        assert row_names(tx) == ["0", "1", "2"]


@pytest.mark.parametrize("url", ["mysql://somebody:canary@host/x", "sqlite://", "hookmill.db", "", "file:canary"])
def test_unknown_kind_of_url_is_refused_without_repeating_it(url):
    with pytest.raises(Invalid, match="Use sqlite:///PATH or postgresql://") as error:
        open_database(url)

    assert "canary" not in str(error.value)


@pytest.mark.parametrize("prefix", ["postgresql://", "postgres://"])
def test_both_schemes_of_postgresql_urls_are_accepted(postgres_store, prefix):
    with open_database(postgres_store.replace("postgresql://", prefix)) as database, database.read() as tx:
        assert dict(tx.one("SELECT 1 AS one") or {}) == {"one": 1}


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize("checkpoints", [True, False])
def test_sqlite_syncs_and_only_the_writing_process_checkpoints(sqlite_store, writes, checkpoints):
    with open_database(sqlite_store, checkpoints=checkpoints) as database:
        with database.write() if writes else database.read() as tx:
            pragmas = {
                name: tx.connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
                for name in ("journal_mode", "synchronous", "foreign_keys", "wal_autocheckpoint", "query_only")
            }

    assert pragmas == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "wal_autocheckpoint": sqlite_engine.CHECKPOINT_PAGES if writes and checkpoints else 0,
        "query_only": 0 if writes else 1,
    }


def test_postgresql_session_is_durable_with_timeouts_and_in_utc(postgres_store):
    with open_database(postgres_store) as database, database.write() as tx:
        settings = {
            name: tx.connection.exec_driver_sql(f"SHOW {name}").scalar_one()
            for name in ("synchronous_commit", "lock_timeout", "statement_timeout", "timezone", "application_name")
        }

    assert settings == {
        "synchronous_commit": "on",
        "lock_timeout": "2s",
        "statement_timeout": "5s",
        "timezone": "UTC",
        "application_name": "hookmill",
    }


def test_other_program_reads_the_open_sqlite_database(sqlite_store):
    with open_database(sqlite_store) as database:
        with database.write() as tx:
            add_row(tx, "a")
        with contextlib.closing(sqlite3.connect(sqlite_store.removeprefix("sqlite:///"))) as program:
            assert program.execute("SELECT name FROM metadata").fetchall() == [("a",)]


def test_database_file_is_restricted_to_its_owner(tmp_path):
    path = tmp_path / "hookmill.db"
    path.write_bytes(b"")
    path.chmod(0o644)

    restrict_to_owner(path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    restrict_to_owner(Path("/missing/hookmill.db"))


def add_row(tx: Transaction, name: str):
    tx.run("INSERT INTO metadata (name, value) VALUES (:name, :value)", name=name, value=b"")


def row_names(tx: Transaction) -> list[str]:
    return sorted(row["name"] for row in tx.all("SELECT name FROM metadata"))


def wait_for_waiting_writers(database: Database, count: int):
    """Wait until this number of writers waits for the write lock."""
    lock = database._write_lock
    assert lock is not None
    while len(lock._waiting) < count:
        time.sleep(0.001)


@pytest.mark.parametrize("text", ["a\ud800", "\udcff", "a\x00b"])
def test_text_that_cannot_be_stored_is_refused(store_url, text):
    with open_database(store_url) as database, database.read() as tx:
        if tx.on_sqlite and "\x00" in text:
            assert tx.one("SELECT id FROM factories WHERE name = :name", name=text) is None
            return
        with pytest.raises(Invalid, match="NUL, or half of a surrogate pair"):
            tx.one("SELECT id FROM factories WHERE name = :name", name=text)
        with pytest.raises(Invalid, match="NUL, or half of a surrogate pair"):
            tx.one("SELECT id FROM factories WHERE name IN :names", names=["a", text])


@pytest.mark.parametrize("name", ["feature%2Fx", "a?b", "a#b", "50%", "a b+c", "ü", "a&b=c", ":memory:", 'it\'s "x"'])
def test_database_is_created_in_the_directory_that_the_path_names(tmp_path, name):
    path = tmp_path / name / "hookmill.db"
    path.parent.mkdir()

    with open_database(sqlite_url(path)) as database:
        migrate(database)

    assert database.path == path
    assert [each.name for each in tmp_path.iterdir()] == [name]
    assert is_sqlite_file(path)
