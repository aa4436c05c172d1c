"""Lets all tests of a module run on SQLite, and on PostgreSQL only with `make proof`.

It is for modules whose rules are the same code on both databases. Import the fixture, and name it in `__all__`.
"""

import pytest

from tests.support.counts import only_in_proof


@pytest.fixture(params=["sqlite", only_in_proof("postgres")])
def store_url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty store at this version's schema."""
    url: str = request.getfixturevalue(f"{request.param}_store")
    return url
