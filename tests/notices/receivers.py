"""Receivers of messages: an HTTP server whose paths behave in different ways, and a real SMTP server."""

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, Session

DRIP_SECONDS = 0.05


@dataclass
class Received:
    """A request that arrived."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """An HTTP server. The path of a request decides about the answer: see `_Handler`."""

    port: int
    scheme: str
    requests: list[Received] = field(default_factory=list)
    release: threading.Event = field(default_factory=threading.Event)
    """Lets the requests with the path `/held` be answered."""

    def url(self, path: str = "/ok", host: str = "127.0.0.1") -> str:
        return f"{self.scheme}://{host}:{self.port}{path}"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    receiver: Receiver

    def handle_error(self, request: Any, client_address: Any):
        """Clients that reach their deadline close the connection, which is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.receiver.requests.append(Received(self.path, headers, body))
        match self.path.partition("?")[0]:
            case "/redirect":
                self.send_response(302)
                self.send_header("Location", self.server.receiver.url("/ok"))
                self.end_headers()
            case "/silent":
                # Until the client closes the connection.
                self.rfile.read(1)
            case "/held":
                self.server.receiver.release.wait(20)
                self.send_response(200)
                self.end_headers()
            case "/drip":
                self._repeat(b"x", DRIP_SECONDS)
            case "/continue":
                self._repeat(b"HTTP/1.1 100 Continue\r\n\r\n" * 100, 0)
            case "/headers":
                self.wfile.write(b"HTTP/1.1 200 OK\r\n")
                self._repeat(b"X-Header: value\r\n" * 100, 0)
            case "/endless":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
                self._repeat(b"x" * 65_536, 0)
            case "/garbage":
                self.wfile.write(b"\x00\xff no HTTP\r\n\r\n")
            case "/close":
                pass
            case path:
                status = path.removeprefix("/status/").partition("/")[0]
                self.send_response(int(status) if status.isdigit() else 200)
                self.send_header("X-Secret", "secret-of-the-receiver")
                self.end_headers()
                self.wfile.write(b"secret-of-the-receiver")

    def _repeat(self, content: bytes, pause_seconds: float):
        deadline = time.monotonic() + 20
        with suppress(OSError):
            while time.monotonic() < deadline:
                self.wfile.write(content)
                time.sleep(pause_seconds)

    def log_message(self, *_: Any):
        pass


@contextmanager
def http_receiver(certificate: tuple[Path, Path] | None = None, *, host: str = "127.0.0.1") -> Iterator[Receiver]:
    """An HTTP server, or an HTTPS server with a certificate and its key."""
    with _Server((host, 0), _Handler) as server:
        if certificate is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(*certificate)
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        server.receiver = Receiver(server.server_port, "https" if certificate is not None else "http")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield server.receiver
        server.shutdown()
        thread.join()


@contextmanager
def closed_port() -> Iterator[int]:
    """A port on which nothing listens, and which no other process gets meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@dataclass
class Mailbox:
    """A real SMTP server, which accepts mail after STARTTLS or on a TLS port, and after a sign-in."""

    port: int = 0
    envelopes: list[tuple[str, list[str], bytes]] = field(default_factory=list)
    """The sender, the recipients and the content of each e-mail."""
    had_tls: list[bool] = field(default_factory=list)
    client_names: list[str | None] = field(default_factory=list)
    """The names in EHLO."""

    async def handle_RCPT(  # noqa: N802 - the name that the server calls
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        if address.startswith("unknown@"):
            return "550 <unknown@example.com>: no such\x1b user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        content = envelope.content
        assert isinstance(content, bytes)
        self.envelopes.append((str(envelope.mail_from), list(envelope.rcpt_tos), content))
        self.client_names.append(session.host_name)
        self.had_tls.append(
            session.ssl is not None
            or (server.transport is not None and server.transport.get_extra_info("ssl_object") is not None)
        )
        if envelope.rcpt_tos[0].startswith("full@"):
            return "452 4.2.2 Mailbox full"
        return "250 OK"


class _AnyPortController(Controller):
    """A controller whose server has any free port."""

    def _trigger_server(self):
        # The base class connects to the port that it was told, so that the server starts.
        assert isinstance(self.server, asyncio.Server)
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()


@contextmanager
def mail_server(
    certificate: tuple[Path, Path], security: str, password: str | None = None, user: str = "hookmill"
) -> Iterator[Mailbox]:
    """A mail server that accepts the user with this password; without a password, anyone."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*certificate)
    mailbox = Mailbox()

    def authenticate(_server: SMTP, _session: Session, _envelope: Envelope, _mechanism: str, data: Any) -> AuthResult:
        is_right = data.login == user.encode() and data.password == (password or "").encode()
        return AuthResult(success=is_right, handled=False)

    controller = _AnyPortController(
        mailbox,
        hostname="127.0.0.1",
        port=0,
        enable_SMTPUTF8=True,
        ssl_context=tls if security == "tls" else None,
        tls_context=tls if security == "starttls" else None,
        require_starttls=security == "starttls",
        authenticator=authenticate if password is not None else None,
        auth_required=password is not None,
        auth_require_tls=security == "starttls",
    )
    controller.start()
    try:
        mailbox.port = controller.port
        yield mailbox
    finally:
        controller.stop()
