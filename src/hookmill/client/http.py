"""Sends the client's requests over HTTP: to a server, or to the socket of the service on this host."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

from hookmill.client.local_socket import connect
from hookmill.client.requests import ServiceAnswer, Unreachable
from hookmill.domain.errors import Invalid

TIMEOUT_SECONDS: Final = 60.0
"""The time limit for a connection, and for each part of an answer."""
_LOOPBACK_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_PORTS: Final = {"http": 80, "https": 443}


def usable_server(url: str) -> str:
    """The URL of a server, in its normal form. Raises `Invalid`, without the URL, which may have a password in it."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in _PORTS or not parts.hostname or parts.query or parts.fragment or "@" in parts.netloc:
        raise Invalid(
            "The server must be a URL such as https://hookmill.example.com, without user, query and fragment."
        )
    if parts.scheme == "http" and not _is_within_network(parts.hostname):
        raise Invalid(
            f"The API key would cross the network unencrypted. Use https://{parts.hostname}. (http is allowed for IP "
            "addresses, localhost and names without a dot.)"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    shown_port = "" if port in (None, _PORTS[parts.scheme]) else f":{port}"
    return f"{parts.scheme}://{host}{shown_port}{parts.path.rstrip('/')}"


def _is_within_network(host: str) -> bool:
    """Whether the host is an IP address, or a name that only a local network knows."""
    return "." not in host or host.replace(".", "").isdigit()


class HttpTransport:
    """Sends requests to a server with an API key."""

    def __init__(self, server: str, key: str) -> None:
        """`server`: a URL that `usable_server` returned. Raises `Invalid` for what can't be a key."""
        # An error of the library would contain the header.
        if not key.isascii() or not key.isprintable():
            raise Invalid("The API key has characters that no key has. Check HOOKMILL_API_KEY, or log in again.")
        self.service = server
        parts = urlsplit(server)
        self._path = parts.path
        self._headers = {"Authorization": f"Bearer {key}"}
        self._peer = server
        self._connection = self._open(parts)

    def __repr__(self) -> str:
        return f"<HttpTransport to {self.service}>"

    def _open(self, parts: SplitResult) -> HTTPConnection:
        assert parts.hostname is not None
        port = parts.port or _PORTS[parts.scheme]
        connection_class = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        if parts.hostname in _LOOPBACK_HOSTS or not any(name.lower().endswith("_proxy") for name in os.environ):
            return connection_class(parts.hostname, port, timeout=TIMEOUT_SECONDS)
        # Imported only if it is needed, because it takes a third of the time of a command.
        from hookmill.domain.alarm_destination import UrlParts
        from hookmill.outbound.proxies import proxy_for

        proxy = proxy_for(UrlParts(scheme=parts.scheme, host=parts.hostname, port=port, target="/"))
        if proxy is None:
            return connection_class(parts.hostname, port, timeout=TIMEOUT_SECONDS)
        if proxy.scheme == "https":
            raise Invalid(f"The proxy {proxy} can't be used by this command: its URL must begin with http.")
        self._peer = f"{self.service} through the proxy {proxy}"
        connection = connection_class(proxy.host, proxy.port, timeout=TIMEOUT_SECONDS)
        credentials = {"Proxy-Authorization": proxy.authorization} if proxy.authorization is not None else {}
        if parts.scheme == "https":
            connection.set_tunnel(parts.hostname, port, credentials)
        else:
            self._path = self.service
            self._headers |= credentials
        return connection

    def send(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> ServiceAnswer:
        return exchange(self._connection, self._peer, method, self._path + target, {**headers, **self._headers}, body)

    def close(self) -> None:
        self._connection.close()


class SocketTransport:
    """Sends requests to the service on this host, as its operator."""

    service = "The service on this host"

    def __init__(self, path: Path, proof: bytes) -> None:
        """`proof` is that of `operator_proof`. Raises `OSError` if no service listens there, or if it refuses."""
        self._connection = _SocketConnection(path, proof)
        self._connection.connect()

    def send(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> ServiceAnswer:
        return exchange(self._connection, self.service, method, target, headers, body)

    def close(self) -> None:
        self._connection.close()


class _SocketConnection(HTTPConnection):
    def __init__(self, path: Path, proof: bytes) -> None:
        super().__init__("localhost", timeout=TIMEOUT_SECONDS)
        self._path = path
        self._proof = proof

    def connect(self) -> None:
        self.sock = connect(self._path, self._proof, TIMEOUT_SECONDS)


def exchange(
    connection: HTTPConnection,
    peer: str,
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes | None,
) -> ServiceAnswer:
    """The answer to one request. Raises `Unreachable`, with a text that names the peer, the reason and what to do."""
    is_sent = False
    try:
        if connection.sock is None:
            connection.connect()
        is_sent = True
        connection.request(method, target, body, dict(headers))
        response = connection.getresponse()
    except (OSError, HTTPException) as error:
        connection.close()
        raise _unreachable(error, peer, is_sent=is_sent) from None
    return ServiceAnswer(response.status, {name.lower(): value for name, value in response.getheaders()}, response)


def _unreachable(error: OSError | HTTPException, peer: str, *, is_sent: bool) -> Unreachable:
    # Imported by HTTPSConnection, too.
    import ssl

    match error:
        case ssl.SSLCertVerificationError():
            return Unreachable(
                f"{peer} has a certificate that can't be trusted: {error.verify_message}. If your own authority issued "
                "it, set SSL_CERT_FILE to a PEM file with the authority."
            )
        case ssl.SSLError() if not is_sent:
            return Unreachable(f"{peer} does not answer with TLS. Check the port, and whether the URL should be http.")
        case socket.gaierror():
            return Unreachable(f"{peer} can't be found: its name has no address. Check the URL and the network.")
        case TimeoutError():
            return Unreachable(
                f"{peer} did not answer in time. Check the network, and that the service runs.",
                is_temporary=True,
                may_be_done=is_sent,
            )
        case OSError() if str(error).startswith("Tunnel connection failed"):
            status = str(error).removeprefix("Tunnel connection failed: ")[:60]
            return Unreachable(
                f"The way to {peer} is refused by the proxy: {status}. Check HTTPS_PROXY, or add the host to NO_PROXY."
            )
        case OSError():
            return Unreachable(
                f"{peer} can't be reached: {error.strerror or type(error).__name__}. Check the URL, and that the "
                "service runs.",
                is_temporary=True,
                may_be_done=is_sent,
            )
        case _:
            return Unreachable(
                f"{peer} did not answer with HTTP ({type(error).__name__}). Check the URL.",
                is_temporary=True,
                may_be_done=is_sent,
            )
