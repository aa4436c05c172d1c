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
    Challenged,
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
UNFINISHED_BYTES_MAX: Final = 256 * 1024 * 1024
"""What one process holds of bodies that are not complete: those of signed webhooks come from anybody."""

_LOGGED_SIZE_MAX: Final = 2**31 - 1
"""The log shows no more of a declared length than its column holds."""

_ACCEPTED_LENGTH: Final = str(len('{"delivery_id":"dlv_"}\n') + 32).encode()
_ACCEPTED_START: Final = {
    "type": "http.response.start",
    "status": 202,
    "headers": [(b"content-type", b"application/json"), (b"content-length", _ACCEPTED_LENGTH)],
}
_FRAMING: Final = frozenset({b"host", b"content-length", b"transfer-encoding"})
_NONE: Final[frozenset[bytes]] = frozenset()


class TooSlow(Exception):
    """The body's deadline passed."""


class GaveWay(Exception):
    """The body was given up, as the unfinished ones together held too much memory."""


class IngressDoor:
    """Answers every request whose raw path starts with the ingress prefix."""

    def __init__(self, ingress: Ingress, now_us: Callable[[], int]) -> None:
        self._ingress = ingress
        self._now_us = now_us
        self._deadlines = _Deadlines()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        read = _attempt(scope, self._now_us())
        if isinstance(read, Problem):
            await send_problem(send, read)
            return
        body = _BodyReader(receive, read.headers, self._deadlines)
        try:
            outcome = await self._ingress.receive(read, body.read)
        except TooSlow:
            await send_problem(send, errors.BODY_TOO_SLOW)
            return
        except GaveWay:
            await send_problem(send, errors.BUSY)
            return
        match outcome:
            case Accepted(delivery) | Duplicate(delivery):
                await send(_ACCEPTED_START)
                answer = b'{"delivery_id":"dlv_' + delivery.hex().encode() + b'"}\n'
                await send({"type": "http.response.body", "body": answer})
            case Challenged():
                await _send_reply(send, outcome)
            case _:
                await send_problem(send, _problem_for(outcome))


async def _send_reply(send: Send, reply: Challenged) -> None:
    headers = [
        (b"content-type", reply.content_type.encode()),
        (b"content-length", str(len(reply.body)).encode()),
        (b"x-content-type-options", b"nosniff"),
    ]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


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
    sent: list[tuple[bytes, bytes]] = scope["headers"]
    headers = dict(sent)
    authorizations, conflicting = int(b"authorization" in headers), _NONE
    if len(headers) != len(sent):
        headers, repeated = _first_and_repeated(sent)
        if not _FRAMING.isdisjoint(name for name, _ in repeated):
            return errors.MALFORMED_REQUEST
        authorizations += sum(name == b"authorization" for name, _ in repeated)
        conflicting = frozenset(name for name, value in repeated if value != headers[name])
    if _contradicts_itself(headers, scope):
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
        authorizations=authorizations,
        conflicting=conflicting,
        target=_target(scope),
        peer=scope["client"][0] if scope.get("client") else "",
    )


def _first_and_repeated(
    sent: list[tuple[bytes, bytes]],
) -> tuple[dict[bytes, bytes], list[tuple[bytes, bytes]]]:
    """The first value of each header, and whatever came under the same names after it."""
    first: dict[bytes, bytes] = {}
    repeated = []
    for name, value in sent:
        if name in first:
            repeated.append((name, value))
        else:
            first[name] = value
    return first, repeated


def _target(scope: Scope) -> bytes:
    path: bytes = scope["raw_path"]
    query: bytes = scope["query_string"]
    return path + b"?" + query if query and b"?" not in path else path


def is_ambiguous(scope: Scope) -> bool:
    """Whether somebody in front may have read the request in another way: where it ends, or whom it is for."""
    framing: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in _FRAMING:
            if name in framing:
                return True
            framing[name] = value
    return _contradicts_itself(framing, scope)


def _contradicts_itself(headers: dict[bytes, bytes], scope: Scope) -> bool:
    coding = headers.get(b"transfer-encoding")
    if coding is not None and (coding.strip().lower() != b"chunked" or b"content-length" in headers):
        return True
    # The server turns a missing Host into an empty one.
    return not headers.get(b"host") and scope.get("http_version") == "1.1"


def _ingress_segments(raw_path: bytes) -> tuple[str, bytes | None] | None:
    """The uid and the token segment, or None where the path is no ingress path. Nothing is decoded or redirected."""
    uid, slash, token = raw_path[len(PREFIX) :].partition(b"?")[0].partition(b"/")
    # No URL holds a NUL, and PostgreSQL can't be asked for one.
    if not uid or b"\x00" in uid or (slash and (not token or b"/" in token)):
        return None
    return uid.decode("latin-1"), token if slash else None


class _BodyReader:
    """Reads the body once, counting: what is over the limit is not kept, and a declared excess is not read at all."""

    __slots__ = ("_deadlines", "_headers", "_receive")

    def __init__(self, receive: Receive, headers: dict[bytes, bytes], deadlines: "_Deadlines") -> None:
        self._receive = receive
        self._headers = headers
        self._deadlines = deadlines

    async def read(self) -> Body:
        """Raises `TooSlow` when the body is not there in time, and `GaveWay` when it made room for others."""
        length = _declared_length(self._headers)
        if isinstance(length, Broken | TooLarge):
            return length
        reading = self._deadlines.begin()
        try:
            return await self._gather(length, reading)
        except asyncio.CancelledError:
            if self._deadlines.has_given_way(reading):
                raise GaveWay from None
            if self._deadlines.is_past(reading):
                raise TooSlow from None
            raise
        except Exception:
            # Servers say that a body broke off by a message or by an error of their own.
            return Broken()
        finally:
            self._deadlines.end(reading)

    async def _gather(self, length: int | None, reading: "asyncio.Task[Any] | None") -> Body:
        parts: list[bytes] = []
        size = 0
        more = True
        # The server lets through what was declared and no more. Only to be told that this was all, a small delivery
        # would go through the server's threads once more, for a fifth of its time.
        while more and size != length:
            message = await self._receive()
            if message["type"] != "http.request":
                return Broken()
            part = message.get("body", b"")
            size += len(part)
            if size > BODY_BYTES_MAX:
                return TooLarge(size)
            parts.append(part)
            more = message.get("more_body", False)
            if more and size != length:
                self._deadlines.hold(reading, size)
        return b"".join(parts)


def _declared_length(headers: dict[bytes, bytes]) -> int | Broken | TooLarge | None:
    """How many bytes the body is said to have; None where it comes in chunks."""
    declared = headers.get(b"content-length")
    if declared is None:
        return None
    if not declared.isdigit():
        return Broken()
    if len(declared) > 9:
        return TooLarge(_LOGGED_SIZE_MAX)
    length = int(declared)
    return length if length <= BODY_BYTES_MAX else TooLarge(length)


class _Deadlines:
    """Ends the reading of bodies that take too long. One timer for all: one for each body would cost more than the
    body."""

    def __init__(self) -> None:
        self._since: dict[asyncio.Task[Any] | None, float] = {}
        self._past: set[asyncio.Task[Any]] = set()
        self._held: dict[asyncio.Task[Any] | None, int] = {}
        self._bytes_held = 0
        self._given_way: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self) -> "asyncio.Task[Any] | None":
        """The deadline of what this task reads from now on. It is over with `end`, for what is returned here."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._look()
        reading = asyncio.current_task(self._loop)
        self._since[reading] = self._loop.time()
        return reading

    def end(self, reading: "asyncio.Task[Any] | None") -> None:
        del self._since[reading]
        if reading in self._held:
            self._bytes_held -= self._held.pop(reading)
            if reading is not None:
                self._given_way.discard(reading)
        if self._past and reading is not None:
            self._past.discard(reading)

    def hold(self, reading: "asyncio.Task[Any] | None", size: int) -> None:
        """So many bytes of a body have come, and more are to come. The oldest bodies give way while all of these
        together hold too much."""
        self._bytes_held += size - self._held.get(reading, 0)
        self._held[reading] = size
        if self._bytes_held > UNFINISHED_BYTES_MAX:
            oldest = next((each for each in self._held if each is not None and each not in self._given_way), None)
            if oldest is not None:
                self._given_way.add(oldest)
                oldest.cancel()

    def has_given_way(self, reading: "asyncio.Task[Any] | None") -> bool:
        if reading not in self._given_way or reading is None:
            return False
        reading.uncancel()
        return True

    def is_past(self, reading: "asyncio.Task[Any] | None") -> bool:
        if reading not in self._past or reading is None:
            return False
        reading.uncancel()
        return True

    def _look(self) -> None:
        assert self._loop is not None
        oldest = self._loop.time() - BODY_SECONDS
        for reading, since in list(self._since.items()):
            if since > oldest:
                break
            if reading is not None and reading not in self._past:
                self._past.add(reading)
                reading.cancel()
        self._loop.call_later(1.0, self._look)


async def send_problem(send: Send, answer: Problem) -> None:
    await send({"type": "http.response.start", "status": answer.status, "headers": list(answer.headers)})
    await send({"type": "http.response.body", "body": answer.body})
