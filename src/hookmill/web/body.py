"""Reads a request's body completely, up to a size. The API and the dashboard use `BodyReader`."""

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
    """The body was not complete in time, or was evicted in favour of newer bodies."""


class BodyCutShort(Exception):
    """The client closed the connection before the end of the body, or `Content-Length` is no number."""


def length_from(declared: bytes, bytes_max: int) -> int:
    """The length that `Content-Length` declares, in bytes. Raises `BodyTooLarge` above `bytes_max`.

    Raises `BodyCutShort` if the header has no number.
    """
    if not declared.isdigit():
        raise BodyCutShort
    length = int(declared) if len(declared) <= _LENGTH_DIGITS_MAX else 10**_LENGTH_DIGITS_MAX
    if length > bytes_max:
        raise BodyTooLarge(length)
    return length


async def read_body(
    receive: Receive, length: int | None, bytes_max: int, report_size: Callable[[int], None] | None = None
) -> bytes:
    """The complete body: `length` bytes, or at most `bytes_max` if `length` is None (the body is chunked).

    While the body is incomplete, each part calls `report_size` with the size so far. Raises `BodyTooLarge`
    and `BodyCutShort`.
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
        if report_size is not None and more and size != length:
            report_size(size)
    if length is not None and size < length:
        raise BodyCutShort
    return b"".join(parts)


class BodyReader:
    """Reads bodies for one event loop, at most `bodies_max` concurrently.

    A further body evicts the oldest one. A complete form arrives within milliseconds, so even many slow clients can't
    exclude others, and they hold little memory.
    """

    def __init__(self, bodies_max: int, *, grace_seconds: float = 0) -> None:
        """No body is evicted within its first `grace_seconds`."""
        self._bodies_max = bodies_max
        self._grace_seconds = grace_seconds
        self._started_at: dict[asyncio.Timeout, float] = {}
        """When each body started, by its timeout, oldest first."""

    async def read(self, scope: Scope, receive: Receive, *, bytes_max: int, seconds: float) -> bytes:
        """The complete body. Raises `BodyTooLarge`, `BodyTooSlow` or `BodyCutShort`.

        A declared length above `bytes_max` is rejected without reading.
        """
        length = _declared_length(scope, bytes_max)
        try:
            async with asyncio.timeout(seconds) as timeout:
                self._make_room()
                self._started_at[timeout] = asyncio.get_running_loop().time()
                try:
                    return await read_body(receive, length, bytes_max)
                finally:
                    self._started_at.pop(timeout, None)
        except TimeoutError:
            raise BodyTooSlow from None

    def _make_room(self) -> None:
        if len(self._started_at) >= self._bodies_max:
            oldest_timeout = next(iter(self._started_at))
            started_at = self._started_at.pop(oldest_timeout)
            if not oldest_timeout.expired():
                oldest_timeout.reschedule(max(started_at + self._grace_seconds, asyncio.get_running_loop().time()))


def _declared_length(scope: Scope, bytes_max: int) -> int | None:
    """The declared length of the body in bytes; None if it is chunked."""
    declared: bytes | None = next((value for name, value in scope["headers"] if name == b"content-length"), None)
    if declared is not None:
        return length_from(declared, bytes_max)
    return None if any(name == b"transfer-encoding" for name, _ in scope["headers"]) else 0
