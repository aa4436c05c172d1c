"""The ingress endpoint: converts an HTTP request to an `Attempt`, and the `Outcome` to an HTTP response.

It validates only HTTP: framing, path and method. `Ingress` makes all other decisions. The endpoint is raw ASGI, because
the routing of a framework would take as much time as the delivery itself.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Final, assert_never

from hookmill.domain.client import FORWARDED_FOR
from hookmill.domain.delivery import (
    Accepted,
    Attempt,
    CutShort,
    Duplicate,
    HandshakeReply,
    Label,
    NoSuchWebhook,
    Outcome,
    RateLimited,
    Rejected,
    Unavailable,
)
from hookmill.ingress import Ingress
from hookmill.metrics import DELIVERIES, DELIVERY_SECONDS, Metrics
from hookmill.web import errors
from hookmill.web.asgi import Receive, Scope, Send, send_error
from hookmill.web.body import BodyTooSlow
from hookmill.web.delivery_body import BodyEvicted, DeliveryBodies
from hookmill.web.errors import ErrorResponse
from hookmill.web.framing import FRAMING_HEADERS, is_contradictory

PREFIX: Final = b"/webhooks/w/"

_DELIVERY_ID_DIGITS: Final = 32
_LENGTH_OF_202: Final = str(len('{"delivery_id":"dlv_"}\n') + _DELIVERY_ID_DIGITS).encode()
_START_OF_202: Final = {
    "type": "http.response.start",
    "status": 202,
    "headers": [(b"content-type", b"application/json"), (b"content-length", _LENGTH_OF_202)],
}
_NO_HEADERS: Final[frozenset[bytes]] = frozenset()


class IngressEndpoint:
    """Handles every request whose raw path starts with `PREFIX`."""

    def __init__(self, ingress: Ingress, now_us: Callable[[], int], *, metrics: Metrics | None = None) -> None:
        self._ingress = ingress
        self._now_us = now_us
        self._bodies = DeliveryBodies()
        self._metrics = metrics or Metrics()
        # Each accepted delivery uses these, so they are looked up once.
        self._accepted = self._metrics.number(DELIVERIES, "accepted")
        self._duplicates = self._metrics.number(DELIVERIES, "duplicate")
        self._seconds = self._metrics.histogram(DELIVERY_SECONDS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began_at = time.monotonic()
        outcome: Outcome | ErrorResponse
        try:
            attempt = _read_attempt(scope, self._now_us())
            outcome = attempt if isinstance(attempt, ErrorResponse) else await self._receive(attempt, receive)
        except BodyTooSlow:
            await self._send_error(send, errors.BODY_TOO_SLOW, "too_slow")
            return
        except BodyEvicted:
            await self._send_error(send, errors.BUSY, "evicted")
            return
        except Exception as error:
            # The server would answer 500, and nobody would know why.
            self._ingress.report_failure("ingress", error)
            outcome = Unavailable()
        match outcome:
            case ErrorResponse():
                await self._send_error(send, outcome, _INVALID_REQUESTS[outcome.status])
            case Accepted(delivery_key) | Duplicate(delivery_key):
                (self._accepted if isinstance(outcome, Accepted) else self._duplicates).value += 1
                self._seconds.observe(time.monotonic() - began_at)
                await send(_START_OF_202)
                body = b'{"delivery_id":"dlv_' + delivery_key.hex().encode() + b'"}\n'
                await send({"type": "http.response.body", "body": body})
            case HandshakeReply():
                self._count("handshake")
                await _send_handshake_reply(send, outcome)
            case _:
                await self._send_error(send, *_error_for(outcome))

    def _receive(self, attempt: Attempt, receive: Receive) -> Awaitable[Outcome]:
        return self._ingress.receive(attempt, lambda: self._bodies.read(receive, attempt.headers))

    async def _send_error(self, send: Send, error: ErrorResponse, counted_as: str) -> None:
        self._count(counted_as)
        await send_error(send, error)

    def _count(self, outcome: str) -> None:
        self._metrics.number(DELIVERIES, outcome).value += 1


async def _send_handshake_reply(send: Send, reply: HandshakeReply) -> None:
    headers = [
        (b"content-type", reply.content_type.encode()),
        (b"content-length", str(len(reply.body)).encode()),
        (b"x-content-type-options", b"nosniff"),
    ]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


def _error_for(
    outcome: Rejected | RateLimited | NoSuchWebhook | Unavailable | CutShort,
) -> tuple[ErrorResponse, str]:
    """The response, and the outcome's name in the metrics."""
    match outcome:
        case Rejected(label):
            return _REJECTIONS[label], label.name.lower()
        case RateLimited(seconds):
            return errors.RATE_LIMITED.with_header(b"retry-after", str(seconds).encode()), "rate_limited"
        case NoSuchWebhook():
            return errors.NOT_FOUND, "not_found"
        case Unavailable():
            return errors.DELIVERY_NOT_RECORDED, "unavailable"
        case CutShort():
            return errors.BODY_CUT_SHORT, "cut_short"
        case _:
            assert_never(outcome)


_REJECTIONS: Final = {
    Label.REJECTED_AUTH: errors.UNAUTHENTICATED,
    Label.REJECTED_INVALID_JSON: errors.INVALID_JSON,
    Label.REJECTED_TOO_LARGE: errors.TOO_LARGE,
}
_INVALID_REQUESTS: Final = {400: "malformed", 404: "not_found", 405: "method_not_allowed"}
"""The outcome's name in the metrics, by the status of the response that `_read_attempt` returns."""


def _read_attempt(scope: Scope, now_us: int) -> Attempt | ErrorResponse:
    """The request as an attempt; or an error response, if its framing, path or method is invalid."""
    pairs: list[tuple[bytes, bytes]] = scope["headers"]
    headers = dict(pairs)
    authorization_count = int(b"authorization" in headers)
    conflicting_headers = _NO_HEADERS
    # Usually no header is repeated, so the loop over the headers is skipped.
    if len(headers) != len(pairs):
        headers, repeated = _first_and_repeated(pairs)
        if not FRAMING_HEADERS.isdisjoint(name for name, _ in repeated):
            return errors.MALFORMED_REQUEST
        authorization_count += sum(name == b"authorization" for name, _ in repeated)
        conflicting_headers = frozenset(name for name, value in repeated if value != headers[name])
        # Some proxies add a second X-Forwarded-For instead of extending the one that the client sent.
        if proxy_entries := [value for name, value in repeated if name == FORWARDED_FOR]:
            headers[FORWARDED_FOR] = b",".join([headers[FORWARDED_FOR], *proxy_entries])
    # Repeated framing headers were rejected above. `framing.is_ambiguous` would look for them again.
    if is_contradictory(headers, scope):
        return errors.MALFORMED_REQUEST

    segments = _ingress_segments(scope["raw_path"])
    if segments is None:
        return errors.NOT_FOUND
    if scope["method"] != "POST":
        return errors.METHOD_NOT_ALLOWED
    return Attempt(
        uid=segments[0],
        url_token=segments[1],
        received_at=now_us,
        headers=headers,
        authorization=headers.get(b"authorization"),
        authorization_count=authorization_count,
        conflicting_headers=conflicting_headers,
        target=_target(scope),
        peer=scope["client"][0] if scope.get("client") else "",
    )


def _first_and_repeated(
    pairs: list[tuple[bytes, bytes]],
) -> tuple[dict[bytes, bytes], list[tuple[bytes, bytes]]]:
    """The first value of each header, and the remaining pairs."""
    first_values: dict[bytes, bytes] = {}
    repeated = []
    for name, value in pairs:
        if name in first_values:
            repeated.append((name, value))
        else:
            first_values[name] = value
    return first_values, repeated


def _target(scope: Scope) -> bytes:
    """The path and the query as sent. Some servers include the query in `raw_path`."""
    path: bytes = scope["raw_path"]
    query: bytes = scope["query_string"]
    return path + b"?" + query if query and b"?" not in path else path


def _ingress_segments(raw_path: bytes) -> tuple[str, bytes | None] | None:
    """The webhook's uid, and the URL token if there is one, not percent-decoded. None if the path is no webhook's."""
    uid, slash, token = raw_path[len(PREFIX) :].partition(b"?")[0].partition(b"/")
    if not uid or b"\x00" in uid:
        # No uid contains a NUL, and PostgreSQL rejects text with a NUL.
        return None
    if slash and (not token or b"/" in token):
        return None
    return uid.decode("latin-1"), token if slash else None
