"""Stores for the tests of this folder. A test that uses `store` runs on SQLite and on PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.managed_store import ManagedStore


@pytest.fixture
def store(store_url: str) -> Iterator[ManagedStore]:
    with ManagedStore(store_url) as store:
        yield store


@pytest.fixture
def store_on_sqlite(sqlite_store: str) -> Iterator[ManagedStore]:
    with ManagedStore(sqlite_store) as store:
        yield store


@pytest.fixture
def store_on_postgres(postgres_store: str) -> Iterator[ManagedStore]:
    with ManagedStore(postgres_store) as store:
        yield store


@pytest.fixture(params=["sqlite", "postgres"])
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database without a schema. The test runs on SQLite and on PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'hookmill.db'}"
    url: str = request.getfixturevalue("postgres_url")
    return url
