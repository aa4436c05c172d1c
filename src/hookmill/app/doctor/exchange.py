"""Sends HTTP/1.1 requests byte by byte, also malformed ones, and reads the responses. Everything has a deadline.

The standard library's client sends only well-formed requests, so only its parser of responses is used.
"""

import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

from hookmill.app.tls import client_context
from hookmill.domain.errors import HookmillError, Invalid
from hookmill.outbound.connection import MessageDeadline

RESPONSE_BYTES_MAX: Final = 262_144
ANSWER_SECONDS: Final = 15.0
HTTP_PORT: Final = 80
HTTPS_PORT: Final = 443
Headers = Sequence[tuple[str, str]]


class NoResponse(HookmillError):
    """There was no complete response. The text says what the server did, and is the end of a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The scheme, host and port of a URL, and its path."""

    scheme: str
    host: str
    port: int
    path: str
    """The path prefix of the deployment, without a slash at its end."""

    @property
    def is_https(self) -> bool:
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        default_port = HTTPS_PORT if self.is_https else HTTP_PORT
        return host if self.port == default_port else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    @classmethod
    def of(cls, url: str) -> "Origin":
        """Raises `Invalid` unless the URL is one of a service."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port, parts = None, None, urlsplit("")
        is_url = parts.scheme in {"http", "https"} and host and url.isascii() and url.isprintable() and " " not in url
        if not is_url or parts.query or parts.fragment or parts.username is not None:
            raise Invalid("This is not the URL of a service. Use one such as https://hooks.example.com.")
        return cls(
            scheme=parts.scheme,
            host=str(host),
            port=port or (HTTPS_PORT if parts.scheme == "https" else HTTP_PORT),
            path=parts.path.rstrip("/"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A response. Names of headers are in lower case."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    """At most `RESPONSE_BYTES_MAX` bytes."""

    def header(self, name: str) -> str | None:
        return next((value for header, value in self.headers if header == name), None)


class Connection:
    """A connection to an origin, for one request."""

    def __init__(
        self,
        origin: Origin,
        seconds: float = ANSWER_SECONDS,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Connect. Raises `NoResponse`. `seconds`: the deadline of everything on this connection, together.

        `tls`: None for the system's certificate authorities; ignored unless the URL has https.
        """
        self._deadline = MessageDeadline(seconds)
        self._socket: socket.socket | ssl.SSLSocket
        with ExitStack() as resources, self._raising_no_response():
            plain = resources.enter_context(socket.create_connection((origin.host, origin.port), timeout=seconds))
            resources.enter_context(self._deadline.limits(plain))
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = plain
            if origin.is_https:
                context = tls or tls_context()
                self._socket = resources.enter_context(context.wrap_socket(plain, server_hostname=origin.host))
            self._resources = resources.pop_all()

    @property
    def client_address(self) -> str:
        """The address of this host on the connection."""
        return str(self._socket.getsockname()[0])

    @property
    def tls_socket(self) -> ssl.SSLSocket | None:
        return self._socket if isinstance(self._socket, ssl.SSLSocket) else None

    def send(self, content: bytes) -> None:
        """Send bytes. A server that has answered and closed the connection is no error: its response can be read."""
        with self._raising_no_response(), suppress(BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
            self._socket.sendall(content)

    def response(self, method: str = "POST") -> Response:
        """The response; one with status 100 is skipped. Raises `NoResponse`."""
        with self._raising_no_response(), HTTPResponse(self._socket, method=method) as parsed:
            parsed.begin()
            body = parsed.read(RESPONSE_BYTES_MAX)
        return Response(
            status=parsed.status,
            headers=tuple((name.lower(), value) for name, value in parsed.headers.items()),
            body=body,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    @contextmanager
    def _raising_no_response(self) -> Iterator[None]:
        """Convert errors of sockets, TLS and HTTP to `NoResponse`."""
        try:
            yield
        except (OSError, HTTPException) as error:
            if self._deadline.is_over or isinstance(error, TimeoutError):
                raise NoResponse(f"did not answer within {round(self._deadline.seconds, 1):g} s") from error
            raise NoResponse(_reason_of(error)) from error
        except UnicodeError as error:
            # A label of the name is empty or too long.
            raise NoResponse("has a name that can't be resolved") from error


def tls_context(ca_file: Path | None = None, *, verifies: bool = True) -> ssl.SSLContext:
    """A client's context. `ca_file`: certificate authorities to trust in addition to the system's.

    Raises `Invalid` if the file can't be used.
    """
    if verifies:
        context = client_context(ca_file, "--ca-file")
    else:
        # Loading the system's authorities takes longer than several requests.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


def request_head(method: str, target: str, headers: Headers) -> bytes:
    """The request line and the header lines."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def chunk(content: bytes) -> bytes:
    """One chunk of a body; the last one for empty content."""
    return f"{len(content):x}\r\n".encode() + content + b"\r\n"


def _reason_of(error: OSError | HTTPException) -> str:
    match error:
        case ConnectionRefusedError():
            return "refused the connection: nothing listens there"
        case ConnectionResetError() | BrokenPipeError():
            return "reset the connection without an answer"
        case ssl.SSLCertVerificationError():
            return f"has an invalid certificate: {error.verify_message}"
        case ssl.SSLError():
            return f"failed the TLS handshake: {error.reason}"
        case socket.gaierror():
            return "has a name that can't be resolved"
        case OSError():
            return f"can't be reached: {error.strerror or type(error).__name__}"
        case _:
            return "sent no valid HTTP response, or closed the connection without an answer"
