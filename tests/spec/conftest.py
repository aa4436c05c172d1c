"""What the contract's tests share. Most take `world`, on both kinds of store; what no store has a part in takes one
of them."""

from collections.abc import Iterator

import pytest

from tests.support.world import World, living


@pytest.fixture
def sqlite_world(sqlite_store: str) -> Iterator[World]:
    """The service on SQLite alone."""
    yield from living(sqlite_store)


@pytest.fixture
def postgres_world(postgres_store: str) -> Iterator[World]:
    """The service on PostgreSQL alone."""
    yield from living(postgres_store)
