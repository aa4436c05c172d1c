"""Fixture: a service on SQLite that has one object of each kind."""

import pytest

from tests.inputs.service import InProcessService
from tests.support.passwords import quick_passwords
from tests.support.world import world_for_test

__all__ = ["quick_passwords"]


@pytest.fixture
def service(sqlite_store):
    for world in world_for_test(sqlite_store):
        yield InProcessService(world)
