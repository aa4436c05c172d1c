"""Fixtures of the tests that show the requirements. Most tests take `world` and run on both kinds of store; a test
whose result does not depend on the store takes one of these."""

from collections.abc import Iterator

import pytest

from tests.support.world import World, living


@pytest.fixture
def sqlite_world(sqlite_store: str) -> Iterator[World]:
    """The service in this process, on SQLite only."""
    yield from living(sqlite_store)


@pytest.fixture
def postgres_world(postgres_store: str) -> Iterator[World]:
    """The service in this process, on PostgreSQL only."""
    yield from living(postgres_store)
