"""What the contract's tests share. Most take `world`, on both kinds of store; what no store has a part in takes one of them."""

from collections.abc import Iterator

import pytest

from tests.support.world import World


@pytest.fixture
def sqlite_world(sqlite_store: str) -> Iterator[World]:
    """The service on SQLite alone, for facts that are settled before any store is asked."""
    world = World(sqlite_store)
    yield world
    world.close()
    assert [f"{where}: {error!r}" for where, error in world.failures] == []
