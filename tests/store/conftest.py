"""What the store's tests share. `shelf` puts a test on both databases."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.shelf import Shelf


@pytest.fixture
def shelf(store_url: str) -> Iterator[Shelf]:
    with Shelf(store_url) as shelf:
        yield shelf


@pytest.fixture
def on_sqlite(sqlite_store: str) -> Iterator[Shelf]:
    with Shelf(sqlite_store) as shelf:
        yield shelf


@pytest.fixture
def on_postgres(postgres_store: str) -> Iterator[Shelf]:
    with Shelf(postgres_store) as shelf:
        yield shelf


@pytest.fixture(params=["sqlite", "postgres"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The test runs on both databases: the URL of one that nothing has been done to yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'hookmill.db'}"
    url: str = request.getfixturevalue("postgres_url")
    return url
