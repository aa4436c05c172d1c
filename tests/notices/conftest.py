"""Certificates and receivers, which the tests of a file share."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.notices.receivers import Receiver, http_receiver
from tests.support.certificates import write_certificates


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with `ca.pem`, and with the certificate `server.pem` and its key `key.pem`."""
    directory = tmp_path_factory.mktemp("certificates")
    write_certificates(directory / "ca.pem", directory / "server.pem", directory / "key.pem")
    return directory


@pytest.fixture(scope="session")
def certificate(certificates: Path) -> tuple[Path, Path]:
    return certificates / "server.pem", certificates / "key.pem"


@pytest.fixture
def tls(certificates: Path) -> ssl.SSLContext:
    """Trusts the tests' certificate authority only."""
    return ssl.create_default_context(cafile=str(certificates / "ca.pem"))


@pytest.fixture(scope="module")
def shared_receiver() -> Iterator[Receiver]:
    with http_receiver() as receiver:
        yield receiver


@pytest.fixture
def receiver(shared_receiver: Receiver) -> Receiver:
    shared_receiver.requests.clear()
    return shared_receiver
