"""Error responses of the ingress and the router: `application/problem+json` (RFC 9457), built once at import."""

import json
from dataclasses import dataclass
from typing import Final

Header = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """An error response.

    `closes_connection` is true if the bytes after the request can't be trusted, or if the client may be
    unauthenticated, as with a 429. Such a client could send endless requests, use memory and never read a response.
    """

    status: int
    headers: tuple[Header, ...]
    body: bytes
    closes_connection: bool = False

    def with_header(self, name: bytes, value: bytes) -> "ErrorResponse":
        return ErrorResponse(self.status, (*self.headers, (name, value)), self.body, self.closes_connection)


def error_response(
    status: int, code: str, title: str, *extra_headers: Header, closes_connection: bool = False
) -> ErrorResponse:
    """`code` is stable, for programs; `title` is for people. Neither may reveal anything about a webhook."""
    body = json.dumps({"type": "about:blank", "title": title, "status": status, "code": code}).encode() + b"\n"
    headers: tuple[Header, ...] = (
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        *extra_headers,
    )
    if closes_connection:
        headers = (*headers, (b"connection", b"close"))
    return ErrorResponse(status, headers, body, closes_connection)


MALFORMED_REQUEST: Final = error_response(
    400, "malformed_request", "The request is not well-formed HTTP.", closes_connection=True
)
BODY_CUT_SHORT: Final = error_response(400, "body_cut_short", "The body is incomplete.", closes_connection=True)
INVALID_JSON: Final = error_response(400, "invalid_json", "The body is not valid JSON.")
UNAUTHENTICATED: Final = error_response(
    401,
    "authentication_failed",
    "The delivery is not authenticated.",
    (b"www-authenticate", b"Bearer"),
    closes_connection=True,
)
NOT_FOUND: Final = error_response(404, "not_found", "The path does not exist.", closes_connection=True)
METHOD_NOT_ALLOWED: Final = error_response(
    405, "method_not_allowed", "Deliveries are sent with POST.", (b"allow", b"POST"), closes_connection=True
)
BODY_TOO_SLOW: Final = error_response(408, "body_too_slow", "The body took too long to arrive.", closes_connection=True)
TOO_LARGE: Final = error_response(
    413, "body_too_large", "The body is larger than 262144 bytes.", closes_connection=True
)
MISDIRECTED: Final = error_response(
    421,
    "misdirected_request",
    "The service does not answer under this host name. Use the address in HOOKMILL_BASE_URL, or set this variable to "
    "the address that you use.",
    closes_connection=True,
)
RATE_LIMITED: Final = error_response(
    429, "too_many_requests", "Too many deliveries. Retry this one later.", closes_connection=True
)
BUSY: Final = error_response(
    503,
    "busy",
    "Too many requests are in progress. Retry this one later.",
    (b"retry-after", b"5"),
    closes_connection=True,
)
APPLICATION_UNAVAILABLE: Final = error_response(
    503,
    "unavailable",
    "This part of the service is temporarily unavailable. Retry soon.",
    (b"retry-after", b"5"),
    closes_connection=True,
)
DELIVERY_NOT_RECORDED: Final = error_response(
    503, "unavailable", "The delivery could not be recorded. Retry it later.", (b"retry-after", b"5")
)
