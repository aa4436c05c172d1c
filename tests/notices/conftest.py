"""Certificates and receivers, which the tests of a file share."""

import ssl

import pytest

from tests.notices.receivers import http_receiver
from tests.support.certificates import certificates_in


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """A directory with `ca.pem`, and with the certificate `server.pem` and its key `key.pem`."""
    directory = tmp_path_factory.mktemp("certificates")
    certificates_in(directory)
    return directory


@pytest.fixture(scope="session")
def certificate(certificates):
    return certificates / "server.pem", certificates / "key.pem"


@pytest.fixture
def tls(certificates):
    """Trusts the tests' certificate authority only."""
    return ssl.create_default_context(cafile=str(certificates / "ca.pem"))


@pytest.fixture(scope="module")
def shared_receiver():
    with http_receiver() as receiver:
        yield receiver


@pytest.fixture
def receiver(shared_receiver):
    shared_receiver.requests.clear()
    return shared_receiver
