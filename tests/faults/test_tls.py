"""TLS to PostgreSQL: the parameters of `database_url` apply to every connection."""

import os
import socket
import ssl
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import pytest

from tests.faults.test_database_failures import automated_webhook_of
from tests.support.certificates import certificates_in
from tests.support.loaded import Command
from tests.support.pooler import SSL_REQUEST
from tests.support.service import operator, serving
from tests.support.waiting import until


class TlsProxy:
    """Accepts TLS connections for a PostgreSQL on this machine, because the one of the tests may lack TLS."""

    def __init__(self, target: int, certificate: Path, key: Path):
        self._target = target
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.unencrypted = 0
        """The number of connections without TLS."""
        self.application_names: set[str] = set()
        """Those of the connections with TLS."""
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object):
        self._listener.close()

    def _accept(self):
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket):
        # A client that is killed may send only a part.
        errors = (OSError, ValueError, struct.error)
        with client, suppress(*errors), socket.create_connection(("127.0.0.1", self._target)) as server:
            (code,) = struct.unpack("!4xI", client.recv(8))
            if code != SSL_REQUEST:
                self.unencrypted += 1
                return
            client.sendall(b"S")
            with self._context.wrap_socket(client, server_side=True) as encrypted:
                startup_message = encrypted.recv(65_536)
                words = startup_message[8:].split(b"\0")
                self.application_names.add(words[words.index(b"application_name") + 1].decode())
                server.sendall(startup_message)
                answers = threading.Thread(target=_forward, args=(server, encrypted), daemon=True)
                answers.start()
                _forward(encrypted, server)
                answers.join()


def _forward(source: socket.socket, target: socket.socket):
    with suppress(OSError):
        while chunk := source.recv(65_536):
            target.sendall(chunk)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@dataclass(frozen=True, slots=True)
class EncryptedDatabase:
    proxy: TlsProxy
    url: str
    """It has no parameters."""
    root_certificate: Path


@pytest.fixture
def encrypted_database(postgres_url, tmp_path):
    root_certificate, chain, key = certificates_in(tmp_path)
    parts = urlsplit(postgres_url)
    assert parts.port is not None
    with TlsProxy(parts.port, chain, key) as proxy:
        url = parts._replace(netloc=parts.netloc.replace(f":{parts.port}", f":{proxy.port}")).geturl()
        yield EncryptedDatabase(proxy, url, root_certificate)


def test_tls_parameters_apply_to_every_connection(encrypted_database, tmp_path):
    url = f"{encrypted_database.url}?sslmode=verify-full&sslrootcert={encrypted_database.root_certificate}"
    with serving(tmp_path / "data", database_url=url) as service:
        webhook, _ = automated_webhook_of(service)
        assert service.post(webhook).status == 202

        def has_succeeded():
            with service.management() as management:
                return [run.state for run in management.runs.newest(operator(management))] == ["succeeded"]

        until(has_succeeded, "the run has succeeded")

    assert encrypted_database.proxy.unencrypted == 0
    assert encrypted_database.proxy.application_names == {"hookmill"}


def test_wrong_tls_parameters_are_refused_without_showing_the_password(encrypted_database, tmp_path):
    (tmp_path / "others").mkdir()
    other_certificate, missing_file = certificates_in(tmp_path / "others")[0], tmp_path / "missing.crt"
    output = tmp_path / "output"

    def migrate(parameters):
        """The output of a `hookmill migrate` that fails."""
        output.write_text("")
        environment = os.environ | {
            "HOOKMILL_DATABASE_URL": f"{encrypted_database.url}?{parameters}",
            "HOOKMILL_DATA_DIR": str(tmp_path / "data"),
        }
        command = Command(["migrate"], environment, tmp_path, output)
        assert command.wait(60) == 1
        return output.read_text()

    with_other_certificate = migrate(f"sslmode=verify-full&sslrootcert={other_certificate}")
    without_certificate = migrate(f"sslmode=verify-full&sslrootcert={missing_file}")
    with_unknown_mode = migrate("sslmode=strict")

    assert "SSL error" in with_other_certificate
    # The output shows only the beginning of the path, because long lines are cut.
    assert f'root certificate file "{tmp_path.parents[-2]}' in without_certificate
    assert 'invalid sslmode value: "strict"' in with_unknown_mode
    password = encrypted_database.url.split("@")[0].rpartition(":")[2]
    for text in (with_other_certificate, without_certificate, with_unknown_mode):
        assert "Traceback" not in text
        assert password not in text, "the password is not shown"
