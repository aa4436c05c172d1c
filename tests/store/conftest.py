"""Stores for the tests of this folder. A test that uses `store` runs on SQLite and on PostgreSQL."""

import pytest

from tests.store.managed_store import ManagedStore


@pytest.fixture
def store(store_url):
    with ManagedStore(store_url) as store:
        yield store


@pytest.fixture
def store_on_sqlite(sqlite_store):
    with ManagedStore(sqlite_store) as store:
        yield store


@pytest.fixture
def store_on_postgres(postgres_store):
    with ManagedStore(postgres_store) as store:
        yield store


@pytest.fixture(params=["sqlite", "postgres"])
def empty_database_url(request, tmp_path):
    """The URL of a database without a schema. The test runs on SQLite and on PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'hookmill.db'}"
    url: str = request.getfixturevalue("postgres_url")
    return url
