"""The one error body: `application/problem+json` (RFC 9457), in the same few words whatever lies behind it."""

import json
from dataclasses import dataclass
from typing import Final

Header = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Problem:
    """An error answer, made once.

    `closes` ends the connection: what follows on it can't be trusted, or comes from somebody who has proven nothing and
    could ask on and on, never reading an answer, at our memory's cost.
    """

    status: int
    headers: tuple[Header, ...]
    body: bytes
    closes: bool = False

    def with_header(self, name: bytes, value: bytes) -> "Problem":
        return Problem(self.status, (*self.headers, (name, value)), self.body, self.closes)


def problem(status: int, code: str, title: str, *more: Header, closes: bool = False) -> Problem:
    """`code` is stable and for programs, `title` is for people; neither says more than the status may."""
    body = json.dumps({"type": "about:blank", "title": title, "status": status, "code": code}).encode() + b"\n"
    headers: tuple[Header, ...] = (
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        *more,
    )
    if closes:
        headers = (*headers, (b"connection", b"close"))
    return Problem(status, headers, body, closes)


MALFORMED_REQUEST: Final = problem(400, "malformed_request", "The request is not well-formed HTTP.", closes=True)
BODY_CUT_SHORT: Final = problem(400, "body_cut_short", "The body did not arrive whole.", closes=True)
INVALID_JSON: Final = problem(400, "invalid_json", "The body is not valid JSON.")
UNAUTHENTICATED: Final = problem(
    401, "authentication_failed", "The delivery is not authenticated.", (b"www-authenticate", b"Bearer"), closes=True
)
NOT_FOUND: Final = problem(404, "not_found", "There is nothing here.", closes=True)
METHOD_NOT_ALLOWED: Final = problem(
    405, "method_not_allowed", "Deliveries are sent with POST.", (b"allow", b"POST"), closes=True
)
BODY_TOO_SLOW: Final = problem(408, "body_too_slow", "The body took too long to arrive.", closes=True)
TOO_LARGE: Final = problem(413, "body_too_large", "The body is larger than 262144 bytes.", closes=True)
MISDIRECTED: Final = problem(
    421,
    "misdirected_request",
    "The service does not answer under this host name. Use the address that HOOKMILL_BASE_URL names, or set it to the "
    "address that you use.",
    closes=True,
)
TOO_MANY: Final = problem(429, "too_many_requests", "Too many deliveries for now. Repeat this one later.", closes=True)
BUSY: Final = problem(
    503, "busy", "Too many requests are under way. Repeat this one later.", (b"retry-after", b"5"), closes=True
)
NOT_AVAILABLE: Final = problem(
    503,
    "unavailable",
    "This part of the service can't be used now. Try again soon.",
    (b"retry-after", b"5"),
    closes=True,
)
UNAVAILABLE: Final = problem(
    503, "unavailable", "The delivery could not be recorded. Repeat it later.", (b"retry-after", b"5")
)
