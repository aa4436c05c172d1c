"""The socket of the operator: who gets the operator's rights, and that no request to the port gets them."""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from hookmill.app.operator_socket import CONNECTIONS_MAX
from hookmill.client import Client
from hookmill.client.http import SocketTransport
from hookmill.client.local_socket import SOCKET_NAME, operator_proof, socket_address
from hookmill.management import Management
from hookmill.store.keys.key_file import KeyFile
from tests.support.service import Service, serving
from tests.support.waiting import LONG_SECONDS, until

MEMBERS = "/api/v1/members"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("service"), performs_runs=False) as running_service:
        yield running_service


@pytest.fixture(scope="module")
def management(service: Service) -> Iterator[Management]:
    with service.management() as operations:
        yield operations


def proof(service: Service) -> bytes:
    key = KeyFile(service.data_dir / "master.key").read()[0]
    return operator_proof(key.value, service.database_url)


def client(service: Service) -> Client:
    return Client(SocketTransport(service.data_dir / SOCKET_NAME, proof(service)))


def answer_to(service: Service, content: bytes) -> bytes:
    """What the socket answers to these bytes, until it closes the connection."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(LONG_SECONDS)
        with socket_address(service.data_dir / SOCKET_NAME) as address:
            connection.connect(address)
        connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while part := connection.recv(65_536):
            answer += part
        return answer


def can_connect(service: Service) -> bool:
    try:
        client(service).show_me()
    except PermissionError:
        return False
    return True


# What the port answers


@pytest.mark.parametrize(
    "target",
    [
        MEMBERS,
        "/api.sock" + MEMBERS,
        "//api/v1/members",
        "/operator" + MEMBERS,
        "http+unix://api.sock" + MEMBERS,
        "unix:" + MEMBERS,
        "http://localhost" + MEMBERS,
    ],
)
def test_no_request_to_the_port_is_the_operators(service, target):
    master_proof = proof(service).decode().strip()
    headers = {
        "Authorization": f"Hookmill {master_proof}",
        "X-Hookmill-Operator": master_proof,
        "X-Forwarded-For": "unix:",
        "Forwarded": "for=unix",
        "X-Forwarded-Proto": "unix",
        "X-Remote-User": "root",
        "Host": "localhost",
    }

    answer = service.request("GET", target, headers=headers)

    assert answer.status in (400, 401, 404)
    assert b"items" not in answer.body


def test_port_does_not_understand_the_proof(service):
    with socket.create_connection(("127.0.0.1", service.port), timeout=LONG_SECONDS) as connection:
        connection.sendall(proof(service) + f"GET {MEMBERS} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        answer = connection.recv(65_536)

    assert b" 200 " not in answer.partition(b"\r\n")[0]
    assert b"items" not in answer


# What the socket answers


def test_socket_belongs_to_the_account_of_the_service(service):
    status = (service.data_dir / SOCKET_NAME).stat()

    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_uid == os.geteuid()


def test_operator_gets_an_answer(service, management):
    with client(service) as operator:
        me = operator.show_me()
        operator.create_factory(name="ü")
        assert [factory["name"] for factory in operator.list_factories()] == ["default", "ü"]

    assert (me["kind"], me["is_admin"]) == ("operator", True)


@pytest.mark.parametrize("first_line", [b"", b"\n", b"0" * 64 + b"\n", b"+\n"])
def test_connection_without_the_proof_gets_no_answer(service, first_line):
    assert answer_to(service, first_line + b"GET /api/v1/me HTTP/1.1\r\n\r\n") == b""


def test_proof_needs_the_master_key_and_the_url_of_the_database(service):
    key = KeyFile(service.data_dir / "master.key").read()[0].value

    for wrong in (operator_proof(bytes(32), None), operator_proof(key, "postgresql://localhost/x")):
        with pytest.raises(PermissionError):
            SocketTransport(service.data_dir / SOCKET_NAME, wrong)


def test_other_accounts_cannot_connect(service):
    assert os.geteuid() == 0, "Perform this test as root: it becomes another account."
    service.data_dir.chmod(0o711)
    child = os.fork()
    if child == 0:
        os.setuid(65_534)
        with socket.socket(socket.AF_UNIX) as connection, socket_address(service.data_dir / SOCKET_NAME) as address:
            os._exit(0 if connection.connect_ex(address) else 1)

    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(
    "request_text",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
        b"\xff\xff\xff /\xff HTTP/1.1\r\n\r\n",
        b"GET /api/v1/me HTTP/1.1\r\n" + b"a" * 100_000,
    ],
)
def test_malformed_request_ends_the_connection_only(service, request_text):
    assert b" 200 " not in answer_to(service, proof(service) + request_text)
    with client(service) as operator:
        assert operator.show_me()["is_admin"]


def test_further_connections_are_closed(tmp_path):
    with serving(tmp_path / "data", performs_runs=False) as own_service, ExitStack() as stack:
        with socket_address(own_service.data_dir / SOCKET_NAME) as address:
            for _ in range(CONNECTIONS_MAX):
                connection = stack.enter_context(socket.socket(socket.AF_UNIX))
                connection.connect(address)

        assert answer_to(own_service, proof(own_service)) == b""
        assert own_service.request("GET", "/readyz").status == 200
        stack.close()
        until(lambda: can_connect(own_service))


# The file of the socket


def test_socket_of_a_killed_service_is_replaced(tmp_path):
    with serving(tmp_path / "data", performs_runs=False) as service:
        service.kill()
        assert (service.data_dir / SOCKET_NAME).exists()
        with pytest.raises(ConnectionRefusedError):
            client(service)
        service.start()
        with client(service) as operator:
            assert operator.show_me()["is_admin"]
        service.stop()

        assert not (service.data_dir / SOCKET_NAME).exists()


def test_socket_works_in_a_directory_with_a_long_path(tmp_path):
    with serving(tmp_path / ("a" * 120) / "data", performs_runs=False) as service, client(service) as operator:
        assert operator.show_me()["is_admin"]


def test_service_without_a_socket_serves(tmp_path):
    (tmp_path / "data" / SOCKET_NAME).mkdir(parents=True)
    with serving(tmp_path / "data", performs_runs=False) as service:
        until(lambda: "Commands on this host do without it." in service.log(), service.log)


def test_every_ingress_process_accepts_connections(tmp_path, postgres_url):
    with serving(tmp_path / "data", database_url=postgres_url, processes=2, performs_runs=False) as service:
        for _ in range(20):
            with client(service) as operator:
                assert operator.show_me()["is_admin"]
