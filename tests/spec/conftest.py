"""Fixtures of the tests that show the requirements.

Most tests use `world`, and run on both kinds of store, or in some modules on SQLite only without `make proof`. A test
whose result does not depend on the store, or that needs a certain kind, uses one of these fixtures.
"""

import pytest

from tests.support.world import world_for_test


@pytest.fixture
def sqlite_world(sqlite_store):
    """The service in this process, on SQLite only."""
    yield from world_for_test(sqlite_store)


@pytest.fixture
def postgres_world(postgres_store):
    """The service in this process, on PostgreSQL only."""
    yield from world_for_test(postgres_store)
