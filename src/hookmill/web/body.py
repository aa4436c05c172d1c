"""Reading a request's body completely, up to a size. The API and the dashboard use `BodyReader`."""

import asyncio
from collections.abc import Callable

from hookmill.web.asgi import Receive, Scope

_LENGTH_DIGITS_MAX = 12
"""A number with more digits exceeds any limit, and is slow to convert."""


class BodyTooLarge(Exception):
    """The body exceeds its size limit. It was not read to its end. `size`: the bytes declared or received."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


class BodyTooSlow(Exception):
    """The body was not complete in time, or was evicted in favour of newer ones."""


class BodyCutShort(Exception):
    """The client closed the connection before the end of the body, or `Content-Length` is no number."""


def length_from(declared: bytes, bytes_max: int) -> int:
    """The length that `Content-Length` declares, in bytes. Raises `BodyTooLarge` above `bytes_max`, `BodyCutShort`."""
    if not declared.isdigit():
        raise BodyCutShort
    length = int(declared) if len(declared) <= _LENGTH_DIGITS_MAX else 10**_LENGTH_DIGITS_MAX
    if length > bytes_max:
        raise BodyTooLarge(length)
    return length


async def read_body(
    receive: Receive, length: int | None, bytes_max: int, arrived: Callable[[int], None] | None = None
) -> bytes:
    """The complete body: `length` bytes, or at most `bytes_max` if it is chunked (None).

    While the body is incomplete, each part calls `arrived` with the size so far. Raises `BodyTooLarge` and
    `BodyCutShort`.
    """
    parts: list[bytes] = []
    size = 0
    more = True
    # The server passes on exactly the declared length. Waiting for the final empty message would take a small
    # delivery through the server's threads once more, which costs a fifth of its time.
    while more and size != length:
        try:
            message = await receive()
        except Exception:
            # Servers report a broken body by a message or by an exception.
            raise BodyCutShort from None
        if message["type"] != "http.request":
            raise BodyCutShort
        part = message.get("body", b"")
        size += len(part)
        if size > bytes_max:
            raise BodyTooLarge(size)
        parts.append(part)
        more = message.get("more_body", False)
        if arrived is not None and more and size != length:
            arrived(size)
    if length is not None and size < length:
        raise BodyCutShort
    return b"".join(parts)


class BodyReader:
    """Reads bodies for one event loop, at most `at_a_time` concurrently.

    One more evicts the oldest. A complete form arrives within milliseconds, so any number of slow clients can't exclude
    others, and they hold little memory.
    """

    def __init__(self, at_a_time: int, *, grace_seconds: float = 0) -> None:
        """No body is evicted within its first `grace_seconds`."""
        self._at_a_time = at_a_time
        self._grace_seconds = grace_seconds
        self._deadlines: dict[asyncio.Timeout, float] = {}

    async def read(self, scope: Scope, receive: Receive, *, bytes_max: int, seconds: float) -> bytes:
        """The complete body. Raises `BodyTooLarge`, `BodyTooSlow` or `BodyCutShort`.

        A declared length above `bytes_max` is rejected without reading.
        """
        length = _declared_length(scope, bytes_max)
        try:
            async with asyncio.timeout(seconds) as deadline:
                self._make_room()
                self._deadlines[deadline] = asyncio.get_running_loop().time()
                try:
                    return await read_body(receive, length, bytes_max)
                finally:
                    self._deadlines.pop(deadline, None)
        except TimeoutError:
            raise BodyTooSlow from None

    def _make_room(self) -> None:
        if len(self._deadlines) >= self._at_a_time:
            oldest = next(iter(self._deadlines))
            began = self._deadlines.pop(oldest)
            if not oldest.expired():
                oldest.reschedule(max(began + self._grace_seconds, asyncio.get_running_loop().time()))


def _declared_length(scope: Scope, bytes_max: int) -> int | None:
    """The declared length of the body in bytes; None if it is chunked."""
    declared: bytes | None = next((value for name, value in scope["headers"] if name == b"content-length"), None)
    if declared is not None:
        return length_from(declared, bytes_max)
    return None if any(name == b"transfer-encoding" for name, _ in scope["headers"]) else 0
