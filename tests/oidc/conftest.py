"""A provider that can misbehave."""

import pytest

from tests.support.signing_provider import signing_provider
from tests.support.world import Clock


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def provider(clock):
    with signing_provider(clock) as running:
        yield running
