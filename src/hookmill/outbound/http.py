"""One HTTP request: no redirects, no proxy, one deadline, and at most so much of the response as the caller needs."""

import http.client
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from hookmill import __version__
from hookmill.domain.alarm_destination import UrlParts
from hookmill.domain.errors import DestinationUnavailable
from hookmill.domain.networks import Address
from hookmill.outbound.connection import MessageDeadline, connected, reporting_failures, with_tls

_OK: Final = range(200, 300)
_REDIRECTS: Final = range(300, 400)


class NoDestinationResponse(DestinationUnavailable):
    """The connection was open, and no response came. The request may have arrived."""


class DestinationResponse(NamedTuple):
    status: int
    headers: Mapping[str, str]
    """By names in lower case."""
    body: bytes
    """The beginning of the body."""


def post(
    url: UrlParts,
    body: bytes,
    headers: Mapping[str, str],
    deadline: MessageDeadline,
    *,
    tls: Callable[[], ssl.SSLContext],
    permits: Callable[[Address], bool],
) -> None:
    """Post the body. Raises `DestinationUnavailable` unless the response has a status of 200 to 299."""
    status = request("POST", url, body, headers, deadline, tls=tls, permits=permits).status
    where = url.origin
    if status in _REDIRECTS:
        raise DestinationUnavailable(f"{where} answered with a redirect ({status}). Enter the URL that it leads to.")
    if status not in _OK:
        raise DestinationUnavailable(f"{where} answered with the status {status}.")


def check(
    url: UrlParts, deadline: MessageDeadline, *, tls: Callable[[], ssl.SSLContext], permits: Callable[[Address], bool]
) -> None:
    """Connect like `post`, but send no request. Raises `DestinationUnavailable`."""
    where = url.origin
    with (
        connected(url.host, url.port, deadline, where=where, permits=permits) as connection,
        reporting_failures(where, deadline),
    ):
        if url.scheme == "https":
            # The handshake replaces the socket object.
            with_tls(connection, tls(), url.host).close()


def request(
    method: str,
    url: UrlParts,
    body: bytes | None,
    headers: Mapping[str, str],
    deadline: MessageDeadline,
    *,
    tls: Callable[[], ssl.SSLContext],
    permits: Callable[[Address], bool],
    response_bytes_max: int = 0,
) -> DestinationResponse:
    """Send the request, and read so much of the response. Raises `DestinationUnavailable` if there is none.

    The exception is a `NoDestinationResponse` if the request may have arrived.
    """
    where = url.origin
    is_open = False
    try:
        with (
            connected(url.host, url.port, deadline, where=where, permits=permits) as connection,
            reporting_failures(where, deadline),
        ):
            stream = with_tls(connection, tls(), url.host) if url.scheme == "https" else connection
            is_open = True
            return _exchange(stream, method, url, body, headers, deadline, where, response_bytes_max)
    except DestinationUnavailable as error:
        if is_open:
            raise NoDestinationResponse(str(error)) from None
        raise


def _exchange(
    stream: socket.socket,
    method: str,
    url: UrlParts,
    body: bytes | None,
    headers: Mapping[str, str],
    deadline: MessageDeadline,
    where: str,
    response_bytes_max: int,
) -> DestinationResponse:
    client = http.client.HTTPConnection(url.host, url.port)
    # The client has a connection already, so it never opens one.
    client.auto_open = 0
    client.sock = stream
    try:
        client.putrequest(method, url.target, skip_host=True, skip_accept_encoding=True)
        client.putheader("Host", url.host_header)
        client.putheader("User-Agent", f"hookmill/{__version__}")
        if "Accept" not in headers:
            client.putheader("Accept", "*/*")
        if body is not None:
            client.putheader("Content-Length", str(len(body)))
        client.putheader("Connection", "close")
        for name, value in headers.items():
            client.putheader(name, value)
        client.endheaders(body)
        response = client.getresponse()
        # Without a limit, `read` would wait for the end of the body.
        content = response.read(response_bytes_max) if response_bytes_max else b""
        return DestinationResponse(
            response.status, {name.lower(): value for name, value in response.getheaders()}, content
        )
    except http.client.HTTPException:
        # After the shutdown at the deadline, the response seems to end early.
        if deadline.is_over:
            raise deadline.timeout_error(where) from None
        raise DestinationUnavailable(f"{where} did not answer as an HTTP server must.") from None
    finally:
        client.close()
