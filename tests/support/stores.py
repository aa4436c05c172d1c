"""Databases at this version's schema, which many tests use in turn: creating one takes longer than a test."""

import atexit
import functools
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import psycopg

from tests.support.postgres import Postgres

if TYPE_CHECKING:
    from hookmill.store.database import Database


@functools.cache
def migrated_sqlite_file() -> Path:
    """An empty SQLite database, to be copied. It is removed when this process ends."""
    # The process that only distributes the tests does not need these modules.
    from hookmill.store.database import open_database, sqlite_url
    from hookmill.store.migrate import migrate

    directory = tempfile.mkdtemp(prefix="hookmill-migrated-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    path = Path(directory) / "hookmill.db"
    path.touch()
    with open_database(sqlite_url(path), checkpoints=True) as database:
        migrate(database)
    return path


_OPEN_DATABASES: "dict[str, Database]" = {}
"""The open PostgreSQL databases of all `Stores`, by URL. A connection costs the server more than most tests."""


@contextmanager
def open_store_database(url: str) -> "Iterator[Database]":
    """The database at the URL. If it belongs to `Stores`, it stays open for the next test."""
    from hookmill.store.database import open_database

    if (open_one := _OPEN_DATABASES.get(url)) is not None:
        yield open_one
        return
    with open_database(url) as database:
        yield database


_STRUCTURE = """
    SELECT string_agg(entry, ' ' ORDER BY entry)
    FROM (
        SELECT relkind::text || relname AS entry FROM pg_class
        WHERE relnamespace NOT IN (
            'pg_catalog'::regnamespace, 'information_schema'::regnamespace, 'pg_toast'::regnamespace
        )
        UNION ALL
        SELECT 'trigger ' || tgname FROM pg_trigger WHERE NOT tgisinternal
        UNION ALL
        SELECT 'function ' || proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace
        UNION ALL
        SELECT 'setting ' || setconfig::text
        FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase
        WHERE d.datname = current_database()
    ) AS entries
"""
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'"


@contextmanager
def longer_timeouts() -> Iterator[None]:
    """Lengthen the database's timeouts: tests that are not about them must not fail because the machine is busy.

    But a connection without a response is closed after 10 s. On PostgreSQL, a database keeps the timeouts with which it
    was opened; on SQLite, they are read for each transaction.
    """
    from hookmill.store import timeouts

    with patch.multiple(timeouts, BUSY_SECONDS=8, STATEMENT_SECONDS=9):
        yield


class Stores:
    """A pool of empty PostgreSQL databases, which tests acquire and release."""

    def __init__(self, server: Postgres, template: str):
        """`template` is the URL of a database at this version's schema, which must have no connections."""
        self._server = server
        self._template = template
        self._free: list[str] = []
        self._connections: dict[str, psycopg.Connection] = {}
        """A connection to each database. It is broken if a test has closed all connections to the database."""
        with psycopg.connect(template) as connection:
            self._structure = connection.execute(_STRUCTURE).fetchone()
            tables = [name for (name,) in connection.execute(_TABLES)]
        self._delete_rows = "; ".join(
            (
                "SET lock_timeout = '1s'",
                "SET session_replication_role = replica",
                *(f"DELETE FROM {table}" for table in tables),
                "SELECT setval(pg_get_serial_sequence('webhooks', 'no'), 1, false)",
            )
        )

    def acquire(self) -> str:
        """The URL of an empty database, which no other test uses until `release`."""
        from hookmill.store.database import open_database

        if self._free:
            return self._free.pop()
        url = self._server.create_database(template=self._template)
        # Tests about timeouts open the database themselves.
        with longer_timeouts():
            _OPEN_DATABASES[url] = open_database(url)
        self._connections[url] = psycopg.connect(url, autocommit=True)
        return url

    def release(self, url: str):
        """Empty the database and return it to the pool. If that fails, or if its schema has changed, drop it."""
        if self._has_been_emptied(url):
            self._free.append(url)
        else:
            self._drop(url)

    def close(self):
        while self._free:
            self._drop(self._free.pop())

    def _drop(self, url: str):
        _OPEN_DATABASES.pop(url).close()
        self._connections.pop(url).close()
        self._server.drop_database(url)

    def _has_been_emptied(self, url: str) -> bool:
        """Empty the database. Returns False if that fails, or if its schema has changed."""
        # A test that has closed all connections to the database has closed this one, too. Then the queries fail.
        connection = self._connections[url]
        try:
            if connection.execute(_STRUCTURE).fetchone() != self._structure:
                return False
            connection.execute(self._delete_rows.encode())
        except psycopg.Error:
            return False
        return True
