"""Fixtures that every test can use. `tests/support/plugin.py` has another one, `postgres_server`."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.postgres import Postgres
from tests.support.stores import Stores, migrated_sqlite_file

if TYPE_CHECKING:
    from tests.support.world import World

pytest_plugins = ["tests.support.plugin"]


@pytest.fixture
def postgres_url(postgres_server: Postgres) -> Iterator[str]:
    """The URL of a new, empty database, which is dropped after the test."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A directory on a real disk, for tests that measure writes or make them fail. Other files may be in memory."""
    with tempfile.TemporaryDirectory(prefix="hookmill-tests-", dir="/var/tmp") as directory:
        yield Path(directory)


@pytest.fixture(scope="session")
def migrated_sqlite() -> Path:
    """A SQLite file at this version's schema, to be copied."""
    return migrated_sqlite_file()


@pytest.fixture(scope="session")
def migrated_postgres(postgres_server: Postgres) -> Iterator[str]:
    """The URL of a PostgreSQL database at this version's schema, to be copied."""
    from hookmill.store.database import open_database
    from hookmill.store.migrate import migrate

    url = postgres_server.create_database()
    with open_database(url) as database:
        migrate(database)
    yield url
    postgres_server.drop_database(url)


@pytest.fixture
def sqlite_store(migrated_sqlite: Path) -> Iterator[str]:
    """The URL of an empty SQLite store at this version's schema."""
    with tempfile.TemporaryDirectory() as directory:
        yield f"sqlite:///{shutil.copy(migrated_sqlite, directory)}"


@pytest.fixture(scope="session")
def postgres_stores(postgres_server: Postgres, migrated_postgres: str) -> Iterator[Stores]:
    stores = Stores(postgres_server, migrated_postgres)
    yield stores
    stores.close()


@pytest.fixture
def postgres_store(postgres_stores: Stores) -> Iterator[str]:
    """The URL of an empty PostgreSQL store at this version's schema."""
    url = postgres_stores.acquire()
    yield url
    postgres_stores.release(url)


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty store at this version's schema. The test runs on SQLite and on PostgreSQL."""
    url: str = request.getfixturevalue(f"{request.param}_store")
    return url


@pytest.fixture
def world(store_url: str) -> "Iterator[World]":
    """The service in this process, on each kind of store."""
    from tests.support.world import world_for_test

    yield from world_for_test(store_url)
