"""The API for each test, on SQLite or on both kinds of store."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.client import Api, StockedFactory, api_for_test


@pytest.fixture
def api(sqlite_store: str) -> Iterator[Api]:
    yield from api_for_test(sqlite_store)


@pytest.fixture
def each_api(store_url: str) -> Iterator[Api]:
    """The API on SQLite, and then on PostgreSQL."""
    yield from api_for_test(store_url)


@pytest.fixture(scope="module")
def shared_api(migrated_sqlite: Path) -> Iterator[Api]:
    """One API for all tests of a module. A test that changes something creates a factory for it."""
    with tempfile.TemporaryDirectory() as directory:
        yield from api_for_test(f"sqlite:///{shutil.copy(migrated_sqlite, directory)}")


@pytest.fixture
def stocked(api: Api) -> StockedFactory:
    """The factory `default`, with one resource of each kind."""
    return StockedFactory(api, api.world.may)
