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
    with open_database(sqlite_url(path), checkpoints=True) as database:
        migrate(database)
    return path


_OPEN: "dict[str, Database]" = {}
"""The open PostgreSQL databases of all `Stores`, by URL. A connection costs the server more than most tests."""


@contextmanager
def opened(url: str) -> "Iterator[Database]":
    """The database at the URL. If it belongs to `Stores`, it stays open for the next test."""
    from hookmill.store.database import open_database

    kept = _OPEN.get(url)
    if kept is not None:
        yield kept
        return
    with open_database(url) as database:
        yield database


_STRUCTURE = """
    SELECT string_agg(thing, ' ' ORDER BY thing)
    FROM (
        SELECT relkind::text || relname AS thing FROM pg_class
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
    ) AS things
"""
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'"


class Stores:
    """A pool of empty PostgreSQL databases, which tests take and give back."""

    def __init__(self, server: Postgres, template: str) -> None:
        """`template` is the URL of a database at this version's schema, which nobody uses."""
        self._server = server
        self._template = template
        self._free: list[str] = []
        self._watching: dict[str, psycopg.Connection] = {}
        """A connection to each database, which is broken if a test has closed all connections to it."""
        with psycopg.connect(template) as connection:
            self._structure = connection.execute(_STRUCTURE).fetchone()
            tables = [name for (name,) in connection.execute(_TABLES)]
        self._empty = "; ".join(
            (
                "SET lock_timeout = '1s'",
                "SET session_replication_role = replica",
                *(f"DELETE FROM {table}" for table in tables),
                "SELECT setval(pg_get_serial_sequence('webhooks', 'no'), 1, false)",
            )
        )

    def take(self) -> str:
        from hookmill.store.database import open_database

        if self._free:
            return self._free.pop()
        url = self._server.create_database(template=self._template)
        from hookmill.store import timeouts

        # Tests must not fail because the machine is busy. But a connection without a response is closed after 10 s.
        # Tests about timeouts open the database themselves.
        with patch.multiple(timeouts, BUSY_SECONDS=8, STATEMENT_SECONDS=9):
            _OPEN[url] = open_database(url)
        self._watching[url] = psycopg.connect(url, autocommit=True)
        return url

    def give_back(self, url: str) -> None:
        """Return the database to the pool. If it can't be emptied, or more than its rows has changed, drop it."""
        if self._is_as_before(url):
            self._free.append(url)
        else:
            self._drop(url)

    def close(self) -> None:
        while self._free:
            self._drop(self._free.pop())

    def _drop(self, url: str) -> None:
        _OPEN.pop(url).close()
        self._watching.pop(url).close()
        self._server.drop_database(url)

    def _is_as_before(self, url: str) -> bool:
        """Empty the database. Returns False if that fails, or if more than its rows has changed."""
        # This fails if a test has closed all connections to the database, because it has closed this one, too.
        connection = self._watching[url]
        try:
            if connection.execute(_STRUCTURE).fetchone() != self._structure:
                return False
            connection.execute(self._empty.encode())
        except psycopg.Error:
            return False
        return True
