"""A session of PostgreSQL has our settings, whatever it inherits. One that has ended while it was idle is replaced."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote, urlsplit

import psycopg
import pytest

from hookmill.domain.errors import Invalid, TransactionConflict
from hookmill.store import postgres_engine
from hookmill.store.database import Database, open_database

INHERITED = {
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "statement_timeout": "20min",
    "lock_timeout": "20min",
    "idle_in_transaction_session_timeout": "20min",
    "idle_session_timeout": "20min",
    "row_security": "on",
    "synchronous_commit": "off",
    "bytea_output": "escape",
    "standard_conforming_strings": "off",
    "timezone": "Asia/Tokyo",
    "datestyle": "German",
    "intervalstyle": "iso_8601",
    "client_encoding": "LATIN1",
}
EXPECTED = {
    "default_transaction_isolation": "read committed",
    "transaction_isolation": "read committed",
    "default_transaction_deferrable": "off",
    "statement_timeout": "5s",
    "lock_timeout": "2s",
    "idle_in_transaction_session_timeout": "15s",
    "idle_session_timeout": "0",
    "row_security": "off",
    "synchronous_commit": "on",
    "bytea_output": "hex",
    "standard_conforming_strings": "on",
    "TimeZone": "UTC",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "client_encoding": "UTF8",
}


@contextmanager
def altered(url: str, source: str) -> Iterator[str]:
    """The URL for sessions that inherit `INHERITED` from this source."""
    if source == "url":
        options = " ".join(f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in INHERITED.items())
        yield f"{url}?connect_timeout=10&keepalives_idle=77&application_name=theirs&options={quote(options)}"
        return
    with psycopg.connect(url, autocommit=True) as connection:
        database = connection.info.dbname
        subject = f'ROLE "{connection.info.user}" IN DATABASE "{database}"'
        if source == "database":
            subject = f'DATABASE "{database}"'
        for name, value in INHERITED.items():
            connection.execute(f"ALTER {subject} SET {name} = '{value}'".encode())
        yield url
        connection.execute(f"ALTER {subject} RESET ALL".encode())


@pytest.mark.parametrize("source", ["role", "database", "url"])
def test_session_has_our_settings_whatever_it_inherits(postgres_url, monkeypatch, source):
    monkeypatch.setenv("PGTZ", "Europe/Vienna")
    monkeypatch.setenv("PGDATESTYLE", "SQL")
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    monkeypatch.setenv("PGOPTIONS", "-c statement_timeout=19min")
    query = ", ".join(f"current_setting('{name}') AS \"{name}\"" for name in EXPECTED)
    with altered(postgres_url, source) as url:
        with open_database(url) as database:
            with database.write() as tx:
                before = tx.one(f"SELECT {query}")
            with database.read() as tx:
                isolation = tx.one("SHOW transaction_isolation")
            with database.write() as tx:
                after = tx.one(f"SELECT {query}")

    assert before is not None
    assert after is not None
    assert dict(before) == dict(after) == EXPECTED
    assert isolation is not None
    assert list(isolation.values()) == ["repeatable read"]


def test_role_whose_sessions_ignore_foreign_keys_is_refused(postgres_url):
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        name = f'DATABASE "{connection.info.dbname}"'
        connection.execute(f"ALTER {name} SET session_replication_role = replica".encode())
        with (
            open_database(postgres_url) as database,
            pytest.raises(Invalid, match="RESET session_replication_role"),
            database.read(),
        ):
            pass


def end_sessions(url: str):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def test_session_that_has_ended_while_idle_is_replaced_before_its_use(postgres_url):
    with open_database(postgres_url, connections=2) as database:
        for use in (database.read, database.write, database.read_statement, database.write_statement):
            with use() as tx, database.read():
                tx.one("SELECT 1 AS one")
            end_sessions(postgres_url)
            with use() as tx:
                assert tx.one("SELECT 1 AS one") is not None


def test_connection_that_was_cut_without_a_message_is_replaced(postgres_url, monkeypatch):
    monkeypatch.setattr(postgres_engine, "PING_AFTER_SECONDS", 0.0)
    with open_database(postgres_url) as database:
        with database.read() as tx:
            driver = tx.connection.connection.driver_connection
            assert isinstance(driver, postgres_engine.PostgresConnection)
            descriptor = driver.fileno()
        own_end = socket.socket(fileno=descriptor)
        own_end.shutdown(socket.SHUT_WR)
        own_end.detach()
        with database.write() as tx:
            assert tx.one("SELECT 1 AS one") is not None


def test_deadlock_is_told_apart_from_an_unknown_commit(postgres_url):
    with open_database(postgres_url) as database, pytest.raises(TransactionConflict), database.write() as tx:
        tx.run("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$")


@pytest.mark.parametrize("hosts", ["127.0.0.1:1,{host}:{port}", "{host}:{port},127.0.0.1:1"])
def test_url_may_name_several_hosts(postgres_url, hosts):
    parts = urlsplit(postgres_url)
    credentials, _, _ = parts.netloc.rpartition("@")
    netloc = f"{credentials}@{hosts.format(host=parts.hostname, port=parts.port)}"
    url = parts._replace(netloc=netloc).geturl()
    with open_database(url) as database, database.read() as tx:
        assert tx.one("SELECT 1 AS one") is not None


def test_url_may_encode_the_directory_of_a_socket():
    with (
        Database("postgresql://user:secret@%2Fnowhere%2Fsocket/name") as database,
        pytest.raises(Exception, match=r"/nowhere/socket/\.s\.PGSQL"),
        database.read(),
    ):
        pass
