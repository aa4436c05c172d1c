"""One HTTP request: through the proxy of the environment, without redirects, and with one deadline for everything.

Of the response, at most so much is read as the caller needs.
"""

import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final, NamedTuple

import httpcore2

from hookmill import __version__
from hookmill.domain.alarm_destination import UrlParts
from hookmill.domain.errors import DestinationUnavailable, Invalid
from hookmill.domain.networks import Address
from hookmill.outbound.answer_text import quoted, quoted_answer, secret_parts
from hookmill.outbound.connection import MessageDeadline, first_connected, permitted_addresses, reporting_failures
from hookmill.outbound.proxies import proxy_for

_OK: Final = range(200, 300)
_REDIRECTS: Final = range(300, 400)
REASON_BYTES_MAX: Final = 65_536
"""How much of a response with another status is read: it may say why."""
_LOOKUP_SHARE: Final = 0.3
"""The share of the time in which the name of a destination behind a proxy must be looked up."""

Permits = Callable[[Address], bool]


class NoDestinationResponse(DestinationUnavailable):
    """The connection was open, and no response came. The request may have arrived."""


class DestinationResponse(NamedTuple):
    status: int
    headers: Mapping[str, str]
    """By names in lower case."""
    body: bytes
    """The beginning of the body."""


class _Connected(Exception):
    """The connection is open, and nothing was sent to the destination."""


def post(
    url: UrlParts,
    body: bytes,
    headers: Mapping[str, str],
    deadline: MessageDeadline,
    *,
    tls: Callable[[], ssl.SSLContext],
    permits: Permits | None = None,
) -> None:
    """Post the body. Raises `DestinationUnavailable` unless the response has a status of 200 to 299.

    The error contains what the response says, unless `permits` is None: somebody else may have chosen the host, and
    must not read what a private one answers.
    """
    response = request("POST", url, body, headers, deadline, tls=tls, permits=permits)
    status, where = response.status, url.origin
    if status in _REDIRECTS:
        raise DestinationUnavailable(f"{where} answered with a redirect ({status}). Enter the URL that it leads to.")
    if status not in _OK:
        words = quoted_answer(response.body, secret_parts(url, headers)) if permits is not None else None
        raise DestinationUnavailable(f"{where} answered with the status {status}{f': {words}' if words else ''}.")


def check(
    url: UrlParts,
    deadline: MessageDeadline,
    *,
    tls: Callable[[], ssl.SSLContext],
    permits: Permits | None = None,
) -> None:
    """Connect like `request`, but send no request. Raises `DestinationUnavailable`."""

    def before_request() -> None:
        raise _Connected

    with suppress(_Connected):
        _exchange("GET", url, None, {}, deadline, tls, permits, 0, url.origin, before_request)


def request(
    method: str,
    url: UrlParts,
    body: bytes | None,
    headers: Mapping[str, str],
    deadline: MessageDeadline,
    *,
    tls: Callable[[], ssl.SSLContext],
    permits: Permits | None = None,
    response_bytes_max: int = 0,
    where: str | None = None,
    uses_proxy: bool = True,
) -> DestinationResponse:
    """Send the request, and read so much of the response. Raises `DestinationUnavailable` if there is none.

    The exception is a `NoDestinationResponse` if the request may have arrived. `permits`: whether an address may be
    connected to; None if any may. `where`: the destination's name in errors; None for the URL without its path.
    """
    is_open = threading.Event()
    try:
        return _exchange(
            method,
            url,
            body,
            headers,
            deadline,
            tls,
            permits,
            response_bytes_max,
            where or url.origin,
            is_open.set,
            uses_proxy=uses_proxy,
        )
    except DestinationUnavailable as error:
        if is_open.is_set():
            raise NoDestinationResponse(str(error)) from None
        raise


def _exchange(
    method: str,
    url: UrlParts,
    body: bytes | None,
    headers: Mapping[str, str],
    deadline: MessageDeadline,
    tls: Callable[[], ssl.SSLContext],
    permits: Permits | None,
    response_bytes_max: int,
    where: str,
    before_request: Callable[[], None],
    *,
    uses_proxy: bool = True,
) -> DestinationResponse:
    all_headers = {"host": url.host_header, "user-agent": f"hookmill/{__version__}", "accept": "*/*"}
    if body is not None:
        all_headers["content-length"] = str(len(body))
    all_headers |= {"connection": "close", **{name.lower(): value for name, value in headers.items()}}

    def trace(event: str, details: Mapping[str, Any]) -> None:
        # The first request through a proxy is CONNECT.
        if event == "http11.send_request_headers.started" and details["request"].method != b"CONNECT":
            before_request()

    with ExitStack() as stack:
        stack.enter_context(reporting_failures(where, deadline))
        stack.enter_context(_reporting_protocol_errors(where, deadline))
        pool = stack.enter_context(_pool(url, deadline, tls, permits, where, stack, uses_proxy=uses_proxy))
        seconds = deadline.remaining
        # The library writes the host as it is into the request to a proxy.
        host = f"[{url.host}]" if ":" in url.host else url.host
        response = stack.enter_context(
            pool.stream(
                method,
                httpcore2.URL(scheme=url.scheme, host=host, port=url.port, target=url.target),
                headers=[(name.encode(), value.encode()) for name, value in all_headers.items()],
                content=body,
                extensions={
                    "timeout": {"connect": seconds, "read": seconds, "write": seconds},
                    "sni_hostname": url.host,
                    "trace": trace,
                },
            )
        )
        content = bytearray()
        if response.status in _OK:
            _read(response.iter_stream(), content, response_bytes_max)
        else:
            # The status is known, whether the reason arrives or not.
            with suppress(Exception):
                _read(response.iter_stream(), content, REASON_BYTES_MAX)
        return DestinationResponse(
            response.status,
            {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers},
            bytes(content),
        )


def _read(chunks: Iterable[bytes], content: bytearray, bytes_max: int) -> None:
    """Append the chunks to the content until it has so many bytes. Without a limit, this would wait for the end."""
    if bytes_max:
        for chunk in chunks:
            content += chunk[: bytes_max - len(content)]
            if len(content) >= bytes_max:
                return


def _pool(
    url: UrlParts,
    deadline: MessageDeadline,
    tls: Callable[[], ssl.SSLContext],
    permits: Permits | None,
    where: str,
    connections: ExitStack,
    *,
    uses_proxy: bool,
) -> httpcore2.ConnectionPool:
    """What connects to the URL's host, directly or through a proxy."""
    try:
        proxy = proxy_for(url) if uses_proxy else None
    except Invalid as error:
        raise DestinationUnavailable(str(error)) from None
    context = tls() if url.scheme == "https" else None
    if proxy is None:
        backend = _CheckedConnections(connections, deadline, where, permits)
        return httpcore2.ConnectionPool(ssl_context=context, network_backend=backend)
    if permits is not None:
        _refuse_private_host(url.host, deadline, where, permits)
    return httpcore2.HTTPProxy(
        httpcore2.URL(scheme=proxy.scheme, host=proxy.host, port=proxy.port, target="/"),
        proxy_headers={"Proxy-Authorization": proxy.authorization} if proxy.authorization is not None else None,
        ssl_context=context,
        proxy_ssl_context=tls() if proxy.scheme == "https" else None,
        # The operator has chosen the proxy, so it may have any address.
        network_backend=_CheckedConnections(connections, deadline, f"the proxy {proxy}", None),
    )


def _refuse_private_host(host: str, deadline: MessageDeadline, where: str, permits: Permits) -> None:
    """Raises `DestinationUnavailable` if this host knows an address of the name that is not permitted.

    A host behind a proxy may know no names of the Internet. Then only the proxy can refuse them.
    """
    try:
        addresses = permitted_addresses(host, MessageDeadline(deadline.remaining * _LOOKUP_SHARE), where=where)
    except DestinationUnavailable:
        return
    permitted_addresses(host, deadline, where=where, permits=lambda _: all(map(permits, addresses)))


class _CheckedConnections(httpcore2.SyncBackend):
    """Connects to addresses that `permits` has checked, and does not look the name up again."""

    def __init__(self, connections: ExitStack, deadline: MessageDeadline, where: str, permits: Permits | None) -> None:
        self._connections = connections
        self._deadline = deadline
        self._where = where
        self._permits = permits

    def connect_tcp(self, host: str, port: int, *_: Any, **__: Any) -> httpcore2.NetworkStream:
        def connect(address: str, seconds: float) -> httpcore2.NetworkStream:
            with _system_errors():
                return httpcore2.SyncBackend.connect_tcp(self, address, port, seconds, socket_options=[])

        addresses = permitted_addresses(host.strip("[]"), self._deadline, where=self._where, permits=self._permits)
        stream = first_connected(addresses, self._deadline, self._where, connect)
        self._connections.enter_context(self._deadline.limits(stream.get_extra_info("socket")))
        return stream


@contextmanager
def _system_errors() -> Iterator[None]:
    """Raise the errors of the sockets themselves, which the library wraps."""
    try:
        yield
    except (httpcore2.NetworkError, httpcore2.TimeoutException) as error:
        wrapped = error.args[0] if error.args else None
        raise (wrapped if isinstance(wrapped, OSError) else OSError(str(error))) from None


@contextmanager
def _reporting_protocol_errors(where: str, deadline: MessageDeadline) -> Iterator[None]:
    try:
        with _system_errors():
            yield
    except OSError:
        # One of them is a ValueError, too.
        raise
    except httpcore2.ProxyError as error:
        words = quoted(str(error), ()) or "it gave no reason"
        raise DestinationUnavailable(f"The proxy refused a connection to {where}: {words}.") from None
    except httpcore2.LocalProtocolError:
        raise DestinationUnavailable(f"A header for {where} has characters that no header can have.") from None
    except (httpcore2.ProtocolError, httpcore2.UnsupportedProtocol):
        # After the shutdown at the deadline, the response seems to end early.
        if deadline.is_over:
            raise deadline.timeout_error(where) from None
        raise DestinationUnavailable(f"{where} did not answer as an HTTP server must.") from None
    except (LookupError, TypeError, ValueError) as error:
        # The texts of libraries may contain what is secret.
        raise DestinationUnavailable(f"The request to {where} failed: {type(error).__name__}.") from None
