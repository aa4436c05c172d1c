"""One running service for all tests of a process, with rate limits that no test reaches."""

from typing import Any, Final

import pytest

from hookmill.domain.webhook import AuthMode
from hookmill.management import Management
from tests.http.hostile_requests import Target
from tests.support.service import operator, serving

UNLIMITED: Final[dict[str, Any]] = {
    "deliveries_per_minute": 100_000,
    "failed_authentications_per_minute": 100_000,
    "performs_runs": False,
    # The requests of these tests have this Host.
    "base_url": "http://hooks.test",
}
"""Settings for a service whose rate limits are never reached, and that performs no runs."""


@pytest.fixture(scope="session")
def service(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("service"), **UNLIMITED) as running:
        yield running


@pytest.fixture(scope="session")
def management(service):
    with service.management() as operations:
        yield operations


@pytest.fixture(scope="session")
def target(management):
    return new_target(management)


def new_target(management: Management, name: str = "target") -> Target:
    """Create the webhooks of a target."""
    may = operator(management)
    by_header = management.webhooks.create(may, {"name": f"{name} by header"})
    by_url = management.webhooks.create(may, {"name": f"{name} by URL", "auth_mode": AuthMode.URL_TOKEN})
    return Target(
        uid=by_header.webhook.uid.encode(),
        token=by_header.reveal().encode(),
        url_uid=by_url.webhook.uid.encode(),
        url_token=by_url.reveal().encode(),
    )
