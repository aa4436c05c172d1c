"""The ingress door: HTTP in, an `Attempt`; an `Outcome` out, HTTP. It decides nothing that is not about HTTP itself.

Raw ASGI: every delivery passes here, and a framework's routing costs as much as the delivery.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, assert_never

from hookmill.domain.delivery import (
    Accepted,
    Attempt,
    Broken,
    Duplicate,
    Label,
    NotFound,
    RateLimited,
    Rejected,
    Unavailable,
)
from hookmill.domain.limits import BODY_BYTES_MAX
from hookmill.ingress import Body, Ingress, TooLarge
from hookmill.web import errors
from hookmill.web.errors import Problem

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

PREFIX: Final = b"/webhooks/w/"
BODY_SECONDS: Final = 30.0
"""How long a whole body may take. Its first byte and its last are under the same deadline."""

_ACCEPTED_LENGTH: Final = str(len('{"delivery_id":"dlv_"}\n') + 32).encode()
_ACCEPTED_START: Final = {
    "type": "http.response.start",
    "status": 202,
    "headers": [(b"content-type", b"application/json"), (b"content-length", _ACCEPTED_LENGTH)],
}
_ONCE: Final = frozenset({b"host", b"content-length", b"transfer-encoding"})


class TooSlow(Exception):
    """The body's deadline passed."""


class IngressDoor:
    """Answers every request whose raw path starts with the ingress prefix."""

    def __init__(self, ingress: Ingress, now_us: Callable[[], int]) -> None:
        self._ingress = ingress
        self._now_us = now_us

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        read = _attempt(scope, self._now_us())
        if isinstance(read, Problem):
            await _send_problem(send, read)
            return
        body = _BodyReader(receive, read.headers)
        try:
            outcome = await self._ingress.receive(read, body.read)
        except TooSlow:
            await _send_problem(send, errors.BODY_TOO_SLOW)
            return
        match outcome:
            case Accepted(delivery) | Duplicate(delivery):
                await send(_ACCEPTED_START)
                answer = b'{"delivery_id":"dlv_' + delivery.hex().encode() + b'"}\n'
                await send({"type": "http.response.body", "body": answer})
            case _:
                await _send_problem(send, _problem_for(outcome))


def _problem_for(outcome: Rejected | RateLimited | NotFound | Unavailable | Broken) -> Problem:
    match outcome:
        case Rejected(label):
            return _REJECTIONS[label]
        case RateLimited(seconds):
            return errors.TOO_MANY.with_header(b"retry-after", str(seconds).encode())
        case NotFound():
            return errors.NOT_FOUND
        case Unavailable():
            return errors.UNAVAILABLE
        case Broken():
            return errors.BODY_CUT_SHORT
        case _:
            assert_never(outcome)


_REJECTIONS: Final = {
    Label.REJECTED_AUTH: errors.UNAUTHENTICATED,
    Label.REJECTED_INVALID_JSON: errors.INVALID_JSON,
    Label.REJECTED_TOO_LARGE: errors.TOO_LARGE,
}


def _attempt(scope: Scope, now_us: int) -> Attempt | Problem:
    """The request as an attempt. Its framing, path and method are judged before anything is looked up."""
    headers: dict[bytes, bytes] = {}
    authorizations = 0
    for name, value in scope["headers"]:
        if name in headers:
            if name in _ONCE:
                return errors.MALFORMED_REQUEST
            if name == b"authorization":
                authorizations += 1
            continue
        headers[name] = value
    if b"content-length" in headers and b"transfer-encoding" in headers:
        return errors.MALFORMED_REQUEST

    segments = _ingress_segments(scope["raw_path"])
    if segments is None:
        return errors.NOT_FOUND
    if scope["method"] != "POST":
        return errors.METHOD_NOT_ALLOWED
    authorization = headers.get(b"authorization")
    return Attempt(
        uid=segments[0],
        url_token=segments[1],
        received_at=now_us,
        headers=headers,
        authorization=authorization,
        authorizations=authorizations + (authorization is not None),
    )


def _ingress_segments(raw_path: bytes) -> tuple[str, bytes | None] | None:
    """The uid and the token segment, or None where the path is no ingress path. Nothing is decoded or redirected."""
    uid, slash, token = raw_path[len(PREFIX) :].partition(b"?")[0].partition(b"/")
    # No URL holds a NUL, and PostgreSQL can't be asked for one.
    if not uid or b"\x00" in uid or (slash and (not token or b"/" in token)):
        return None
    return uid.decode("latin-1"), token if slash else None


class _BodyReader:
    """Reads the body once, counting: what is over the limit is not kept, and a declared excess is not read at all."""

    __slots__ = ("_headers", "_receive")

    def __init__(self, receive: Receive, headers: dict[bytes, bytes]) -> None:
        self._receive = receive
        self._headers = headers

    async def read(self) -> Body:
        declared = self._headers.get(b"content-length")
        if declared is not None:
            if not declared.isdigit():
                return Broken()
            if len(declared) > 15 or int(declared) > BODY_BYTES_MAX:
                return TooLarge(int(declared[:15]))
        try:
            async with asyncio.timeout(BODY_SECONDS):
                return await self._gather()
        except TimeoutError:
            raise TooSlow from None

    async def _gather(self) -> Body:
        message = await self._next()
        if message is None:
            return Broken()
        if not message.get("more_body"):
            return _within_limit(message.get("body", b""))
        parts = [message.get("body", b"")]
        size = len(parts[0])
        while message.get("more_body"):
            message = await self._next()
            if message is None:
                return Broken()
            part = message.get("body", b"")
            size += len(part)
            if size > BODY_BYTES_MAX:
                return TooLarge(size)
            parts.append(part)
        return _within_limit(b"".join(parts))

    async def _next(self) -> Message | None:
        """The next piece, or None when the body broke off. Servers say so by a message or by an error of their own."""
        try:
            message = await self._receive()
        except (asyncio.CancelledError, TimeoutError):
            raise
        except Exception:
            return None
        return message if message["type"] == "http.request" else None


def _within_limit(body: bytes) -> Body:
    return body if len(body) <= BODY_BYTES_MAX else TooLarge(len(body))


async def _send_problem(send: Send, answer: Problem) -> None:
    await send({"type": "http.response.start", "status": answer.status, "headers": list(answer.headers)})
    await send({"type": "http.response.body", "body": answer.body})
