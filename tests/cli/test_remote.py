"""Commands that use the service of another host: `--server`, `hookmill login` and contexts, and what can go wrong."""

import json
import re
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hookmill.client import requests
from hookmill.client.http import usable_server
from hookmill.domain.errors import Invalid
from hookmill.domain.permission import Role
from tests.cli.conftest import Hookmill
from tests.support.certificates import write_certificates
from tests.support.ports import free_port
from tests.support.service import Service, serving

CANARY = "hmk_canary-canary-canary"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("service"), performs_runs=False) as running_service:
        yield running_service


@pytest.fixture(scope="module")
def url(service: Service) -> str:
    return f"http://127.0.0.1:{service.port}"


@pytest.fixture(scope="module")
def keys(service: Service) -> dict[str, str]:
    """The token of an API key, by role."""
    with service.management() as management:
        team = management.access.operator_of_team()
        admin = management.keys.create(team, "admin", Role.ADMIN)
        viewer = management.keys.create(team, "viewer", Role.VIEWER, factory="default")
    return {"admin": admin.token.reveal(), "viewer": viewer.token.reveal()}


@contextmanager
def listening(respond: Callable[[socket.socket], object]) -> Iterator[int]:
    """A port. `respond` is called with each connection to it."""

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=respond, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def whole_request(connection: socket.socket) -> bytes:
    """A request with its body. Bytes that stay unread would make the kernel reset the connection."""
    request = b""
    while part := connection.recv(65_536):
        request += part
        head, end, body = request.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        if end and len(body) >= int(length[1] if length else 0):
            break
    return request


def respond_with(content: bytes) -> Callable[[socket.socket], None]:
    def respond(connection: socket.socket) -> None:
        with connection:
            whole_request(connection)
            connection.sendall(content)

    return respond


@pytest.fixture
def canary_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """An API key that no output may contain."""
    monkeypatch.setenv("HOOKMILL_API_KEY", CANARY)
    monkeypatch.setattr(requests, "RETRY_SECONDS", (0.01,))


# The selection of a server


def test_login_stores_the_key_in_a_private_file(data_dir, hookmill, url, keys, tmp_path):
    key = keys["admin"]

    output = hookmill("login", url, stdin=f"{key}\n".encode()).out
    stored = tmp_path / "config" / "hookmill" / "contexts.json"

    assert output.startswith(f"Commands now use {url} with the API key admin (admin).\n")
    assert stored.stat().st_mode & 0o777 == 0o600
    assert key in stored.read_text()
    assert hookmill("member", "list").out.startswith("The team has no members yet.")


def test_contexts_are_listed_used_and_removed(data_dir, hookmill, url, keys):
    hookmill("login", url, "--name", "eu", stdin=keys["admin"].encode())
    login = hookmill("login", url, "--name", "us", "--json", stdin=keys["admin"].encode()).json
    assert (login["context"], login["server"], login["key"]["is_admin"]) == ("us", url, True)

    hookmill("context", "use", "eu")
    assert hookmill("context", "list").out.splitlines() == [
        "CURRENT  NAME   SERVER",
        "         local  the service on this host",
        f"*        eu     {url}",
        f"         us     {url}",
    ]
    assert hookmill("context", "remove", "eu", "--json").json == {"name": "eu", "removed": True}
    assert [item["name"] for item in hookmill("context", "list", "--json").json["items"]] == ["local", "us"]
    assert "There is no Hookmill data in" in hookmill("member", "list", exit_code=1).err
    assert hookmill("context", "use", "gone", exit_code=1).err == (
        "There is no context 'gone'. The contexts are: local, us.\n"
    )


def test_file_of_contexts_that_others_can_read_is_refused(data_dir, hookmill, url, keys, tmp_path):
    hookmill("login", url, stdin=keys["admin"].encode())
    (tmp_path / "config" / "hookmill" / "contexts.json").chmod(0o644)

    assert "others may open it. Run chmod 600 on it." in hookmill("member", "list", exit_code=1).err


def test_login_with_a_wrong_key_stores_nothing(data_dir, hookmill, url, tmp_path):
    assert "refused the API key" in hookmill("login", url, stdin=CANARY.encode(), exit_code=1).err
    assert not (tmp_path / "config").exists()


def test_server_without_a_key_is_refused(data_dir, hookmill, url):
    assert hookmill("--server", url, "member", "list", exit_code=1).err == (
        f"There is no API key for {url}. Run `hookmill login {url}`, or set HOOKMILL_API_KEY.\n"
    )


@pytest.mark.parametrize(
    "command",
    [
        "serve",
        "worker",
        "migrate",
        "move --undo",
        "backup x",
        "restore x",
        "verify",
        "doctor",
        "keys show",
        "automation list",
    ],
)
def test_commands_that_need_the_host_refuse_a_server(data_dir, hookmill, url, command, canary_key):
    error = hookmill("--server", url, *command.split(), exit_code=2).err

    assert f"`hookmill {command.split()[0]}` works on the host of the service only. Run it there, without" in error


def test_commands_without_an_installation_accept_a_server(data_dir, hookmill, url, canary_key):
    assert "github" in hookmill("--server", url, "scheme", "list").out


@pytest.mark.parametrize(
    "server",
    [
        "",
        "example.com",
        "ftp://example.com",
        "http://example.com",
        f"https://user:{CANARY}@example.com",
        "https://[::1",
    ],
)
def test_unusable_servers_are_refused_without_their_text(server):
    with pytest.raises(Invalid) as refusal:
        usable_server(server)

    assert CANARY not in str(refusal.value)


def test_url_of_a_server_has_one_form():
    assert usable_server(" HTTPS://Example.com:443/sub/ ") == "https://example.com/sub"
    assert usable_server("http://[::1]:8420") == "http://[::1]:8420"


# Refused requests


def test_viewers_key_is_refused_with_a_readable_error(data_dir, hookmill, url, keys, monkeypatch):
    monkeypatch.setenv("HOOKMILL_API_KEY", keys["viewer"])

    result = hookmill("--server", url, "member", "add", "eve@example.com", "--name", "Eve", exit_code=1)

    assert result.err == "This requires the role admin of the team.\n"


@pytest.mark.parametrize("key", [f"{CANARY}\nX-Evil: 1", f"{CANARY}ü", f"{CANARY}\x1b"])
def test_text_that_is_no_key_is_refused_without_it(data_dir, hookmill, url, monkeypatch, key):
    monkeypatch.setenv("HOOKMILL_API_KEY", key)

    assert "has characters that no key has" in refused_with(hookmill, url)
    assert CANARY not in hookmill("login", url, stdin=key.encode(), exit_code=None).err


def test_wrong_key_is_refused_with_one_line(data_dir, hookmill, url, canary_key):
    result = hookmill("--server", url, "member", "list", exit_code=1)

    assert result.err == (
        f"{url} refused the API key: it is unknown, revoked or expired. Use `hookmill login` with another.\n"
    )


def refused_with(hookmill: Hookmill, server: str, *command: str) -> str:
    """The error of a command. It is one line without the key."""
    result = hookmill("--server", server, *(command or ("member", "list")), exit_code=1)
    assert result.out == ""
    assert result.err.count("\n") == 1
    assert CANARY not in result.err
    return result.err


def test_unreachable_server_is_named(data_dir, hookmill, canary_key):
    port = free_port()

    assert refused_with(hookmill, f"http://127.0.0.1:{port}") == (
        f"http://127.0.0.1:{port} can't be reached: Connection refused. Check the URL, and that the service runs.\n"
    )
    assert "can't be found: its name has no address" in refused_with(hookmill, "https://name.invalid")


def test_server_that_does_not_answer_is_named(data_dir, hookmill, canary_key, monkeypatch):
    monkeypatch.setattr("hookmill.client.http.TIMEOUT_SECONDS", 0.2)

    def wait(connection: socket.socket) -> None:
        with connection:
            threading.Event().wait(2)

    with listening(wait) as port:
        assert "did not answer in time." in refused_with(hookmill, f"http://127.0.0.1:{port}")
        error = refused_with(hookmill, f"http://127.0.0.1:{port}", "key", "revoke", "key_1", "--yes")

    assert error.endswith("that the service runs.\n")


def test_another_server_is_recognized(data_dir, hookmill, canary_key):
    page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi"
    redirection = b"HTTP/1.1 301 Moved\r\nLocation: https://other.example/\r\nContent-Length: 0\r\n\r\n"
    with listening(respond_with(page)) as port:
        assert "did not answer like Hookmill" in refused_with(hookmill, f"http://127.0.0.1:{port}")
    with listening(respond_with(redirection)) as port:
        assert "It redirects to https://other.example/." in refused_with(hookmill, f"http://127.0.0.1:{port}")
    for kind, content in (("json", b"{"), ("problem+json", b"[]"), ("problem+json", b"{}")):
        head = f"HTTP/1.1 {200 if kind == 'json' else 400} x\r\nContent-Type: application/{kind}\r\n\r\n".encode()
        with listening(respond_with(head + content)) as port:
            assert "did not answer like Hookmill" in refused_with(hookmill, f"http://127.0.0.1:{port}")
    with listening(respond_with(b"SSH-2.0-OpenSSH\r\n")) as port:
        assert "did not answer with HTTP" in refused_with(hookmill, f"http://127.0.0.1:{port}")


def test_certificate_of_an_unknown_authority_is_refused(data_dir, hookmill, canary_key, tmp_path, url):
    files = [tmp_path / name for name in ("ca.pem", "certificate.pem", "key.pem")]
    write_certificates(*files)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files[1], files[2])

    def respond(connection: socket.socket) -> None:
        try:
            context.wrap_socket(connection, server_side=True).close()
        except OSError:
            connection.close()

    with listening(respond) as port:
        error = refused_with(hookmill, f"https://127.0.0.1:{port}")

    assert "has a certificate that can't be trusted" in error
    assert "set SSL_CERT_FILE to a PEM file" in error
    assert "does not answer with TLS" in refused_with(hookmill, url.replace("http:", "https:"))


def test_refusal_of_a_proxy_is_reported(data_dir, hookmill, canary_key, monkeypatch):
    with listening(respond_with(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")) as port:
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:{CANARY}@127.0.0.1:{port}")
        error = refused_with(hookmill, "https://hookmill.example.com")

    assert error == (
        f"The way to https://hookmill.example.com through the proxy 127.0.0.1:{port} is refused by the proxy: 407 "
        "Proxy Authentication Required. Check HTTPS_PROXY, or add the host to NO_PROXY.\n"
    )


def test_request_without_tls_goes_through_a_proxy(data_dir, hookmill, canary_key, monkeypatch):
    received: list[bytes] = []

    def respond(connection: socket.socket) -> None:
        with connection:
            received.append(whole_request(connection))
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
            connection.sendall(b'{"items": [], "next_cursor": null}')

    with listening(respond) as port:
        monkeypatch.setenv("HTTP_PROXY", f"http://user:password@127.0.0.1:{port}")
        hookmill("--server", "http://10.11.12.13:8420", "member", "list")

    request_line, *_ = received[0].split(b"\r\n")
    assert request_line == b"GET http://10.11.12.13:8420/api/v1/members?limit=200 HTTP/1.1"
    assert b"\r\nProxy-Authorization: Basic " in received[0]


def test_creation_is_retried_with_the_same_idempotency_key(data_dir, hookmill, canary_key):
    received: list[bytes] = []
    body = json.dumps({"key_id": "key_1", "name": "ci", "factory": None, "token": "hmk_1", "api_url": ""}).encode()

    def respond(connection: socket.socket) -> None:
        with connection:
            received.append(whole_request(connection))
            if len(received) > 1:
                connection.sendall(b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\n\r\n" + body)

    with listening(respond) as port:
        hookmill("--server", f"http://127.0.0.1:{port}", "key", "create", "ci", "--role", "admin")

    keys = {line for request in received for line in request.split(b"\r\n") if line.startswith(b"Idempotency-Key: ")}
    assert (len(received), len(keys)) == (2, 1)


# The import budget


def test_client_commands_load_few_modules(service, tmp_path):
    program = """
import sys
sys.argv = ["hookmill", "member", "list"]
try:
    from hookmill.__main__ import main
    main()
finally:
    slow = ("sqlalchemy", "pydantic", "msgspec", "rich", "asyncio", "cryptography", "urllib.request", "fastapi")
    print([name for name in slow if name in sys.modules])
"""
    environment = service.environment() | {"XDG_CONFIG_HOME": str(tmp_path)}

    output = subprocess.check_output([sys.executable, "-c", program], text=True, env=environment)

    assert output.splitlines()[-1] == "[]"


def test_package_has_the_client_of_the_current_api():
    from scripts import client

    outdated = [path.name for path, text in client.files().items() if Path(path).read_text() != text]

    assert outdated == [], "run `python -m scripts.client`"
