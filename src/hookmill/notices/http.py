"""Posts a body to a URL that a user has chosen: no redirects, no proxy, and no byte of the response's body is read."""

import http.client
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Final

from hookmill import __version__
from hookmill.domain.alarm_destination import UrlParts
from hookmill.domain.errors import DestinationUnavailable
from hookmill.domain.networks import Address
from hookmill.notices.connection import Deadline, connected, reporting_failures, with_tls

_OK: Final = range(200, 300)
_REDIRECTS: Final = range(300, 400)


def post(
    url: UrlParts,
    body: bytes,
    headers: Mapping[str, str],
    deadline: Deadline,
    *,
    tls: Callable[[], ssl.SSLContext],
    permits: Callable[[Address], bool],
) -> None:
    """Post the body. Raises `DestinationUnavailable` unless the response has a status of 200 to 299."""
    where = url.origin
    with (
        connected(url.host, url.port, deadline, where=where, permits=permits) as connection,
        reporting_failures(where, deadline),
    ):
        stream = with_tls(connection, tls(), url.host) if url.scheme == "https" else connection
        status = _exchange(stream, url, body, headers, deadline, where)
    if status in _REDIRECTS:
        raise DestinationUnavailable(f"{where} answered with a redirect ({status}). Enter the URL that it leads to.")
    if status not in _OK:
        raise DestinationUnavailable(f"{where} answered with the status {status}.")


def check(
    url: UrlParts, deadline: Deadline, *, tls: Callable[[], ssl.SSLContext], permits: Callable[[Address], bool]
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


def _exchange(
    stream: socket.socket,
    url: UrlParts,
    body: bytes,
    headers: Mapping[str, str],
    deadline: Deadline,
    where: str,
) -> int:
    """Send the request, and read the response up to its body. Returns the status."""
    client = http.client.HTTPConnection(url.host, url.port)
    # The client has a connection already, so it never opens one.
    client.auto_open = 0
    client.sock = stream
    try:
        client.putrequest("POST", url.target, skip_host=True, skip_accept_encoding=True)
        client.putheader("Host", url.host_header)
        client.putheader("User-Agent", f"hookmill/{__version__}")
        client.putheader("Accept", "*/*")
        client.putheader("Content-Length", str(len(body)))
        client.putheader("Connection", "close")
        for name, value in headers.items():
            client.putheader(name, value)
        client.endheaders(body)
        return client.getresponse().status
    except http.client.HTTPException:
        # After the shutdown at the deadline, the response seems to end early.
        if deadline.is_over:
            raise deadline.exceeded(where) from None
        raise DestinationUnavailable(f"{where} did not answer as an HTTP server must.") from None
    finally:
        client.close()
