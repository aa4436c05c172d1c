"""A provider that can misbehave."""

from collections.abc import Iterator

import pytest

from tests.support.signing_provider import SigningProvider, signing_provider
from tests.support.world import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def provider(clock: Clock) -> Iterator[SigningProvider]:
    with signing_provider(clock) as running:
        yield running
