"""Fixtures: a place for a proxy, and services behind it."""

import pytest

from tests.support.proxies import PROXY_ADDRESS, proxy_place
from tests.support.service import serving


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    """A place for a proxy, with a valid certificate."""
    return proxy_place(tmp_path_factory.mktemp("proxy"))


@pytest.fixture(scope="module")
def service(tmp_path_factory, proxy):
    """A service whose base_url leads through nginx, which it trusts."""
    with serving(tmp_path_factory.mktemp("service"), base_url=proxy.url, trusted_proxies=PROXY_ADDRESS) as service:
        yield service
