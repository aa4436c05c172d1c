"""A service with one of everything in it, on each store that a test asks for."""

from collections.abc import Iterator

import pytest

from tests.inputs.service import Service
from tests.support.passwords import quick_passwords
from tests.support.world import world_for_test

__all__ = ["quick_passwords"]


@pytest.fixture
def service(sqlite_store: str) -> Iterator[Service]:
    for world in world_for_test(sqlite_store):
        yield Service(world)
