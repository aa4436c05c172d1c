"""The page of a webhook with allowed networks warns if every client seems to have the address of the proxy."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from hookmill.domain.networks import EVERY_CLIENT_IS_THE_PROXY
from hookmill.domain.permission import Role
from tests.dashboard.client import Dashboard, Elements, dashboard_for_test


@pytest.fixture
def dashboard(sqlite_store: str) -> Iterator[Dashboard]:
    yield from dashboard_for_test(sqlite_store)


def test_page_warns_if_every_client_has_the_address_of_the_proxy(dashboard: Dashboard):
    viewer = dashboard.member("viewer@example.com", roles={"default": Role.VIEWER})
    limited = dashboard.world.webhook("limited", allowed_networks=["192.0.2.0/24"]).webhook.uid
    unlimited = dashboard.world.webhook("unlimited").webhook.uid

    def warns(uid: str) -> bool:
        return EVERY_CLIENT_IS_THE_PROXY in Elements(viewer.get(f"/f/default/webhooks/{uid}").body).text

    before = warns(limited)
    dashboard.management.config = replace(dashboard.management.config, lacks_trusted_proxies=True)

    assert [before, warns(limited), warns(unlimited)] == [False, True, False]
