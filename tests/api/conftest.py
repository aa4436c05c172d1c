"""One service in this process for each test, on SQLite unless a test asks for both stores."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.client import Api, Stocked, living_api


@pytest.fixture
def api(sqlite_store: str) -> Iterator[Api]:
    yield from living_api(sqlite_store)


@pytest.fixture
def each_api(store_url: str) -> Iterator[Api]:
    """The test runs on SQLite and on PostgreSQL."""
    yield from living_api(store_url)


@pytest.fixture(scope="module")
def shared_api(migrated_sqlite: Path) -> Iterator[Api]:
    """One service for the tests of a module, each of which makes a factory of its own."""
    with tempfile.TemporaryDirectory() as directory:
        yield from living_api(f"sqlite:///{shutil.copy(migrated_sqlite, directory)}")


@pytest.fixture
def stocked(api: Api) -> Stocked:
    return Stocked(api, api.world.may)
