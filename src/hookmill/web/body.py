"""Reads a request's complete body, up to a size limit.

The API and the dashboard use `BodyReader`. The ingress uses `delivery_body`, which calls `read_body`.
"""

import asyncio
from collections.abc import Callable

from hookmill.web.asgi import Receive, Scope

_LENGTH_DIGITS_MAX = 12
"""More digits count as 10**12, which exceeds every limit: converting a very long number would be slow."""


class BodyTooLarge(Exception):
    """The body exceeds its size limit, and was not read to its end.

    `size`: the declared length in bytes, or the bytes received so far.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


class BodyTooSlow(Exception):
    """The body was not complete within its time limit, or `BodyReader` evicted it to read a newer body."""


class BodyCutShort(Exception):
    """The client closed the connection before the end of the body, or `Content-Length` is not a number."""


def parse_content_length(content_length: bytes, bytes_max: int) -> int:
    """The length in bytes that the value of a `Content-Length` header declares.

    Raises `BodyTooLarge` if it is above `bytes_max`, and `BodyCutShort` if the value is not a number.
    """
    if not content_length.isdigit():
        raise BodyCutShort
    length = int(content_length) if len(content_length) <= _LENGTH_DIGITS_MAX else 10**_LENGTH_DIGITS_MAX
    if length > bytes_max:
        raise BodyTooLarge(length)
    return length


async def read_body(
    receive: Receive, length: int | None, bytes_max: int, report_size: Callable[[int], None] | None = None
) -> bytes:
    """The complete body: `length` bytes, or at most `bytes_max` if `length` is None (the body is chunked).

    After each part but the last, `report_size` is called with the number of bytes received so far. Raises
    `BodyTooLarge` and `BodyCutShort`.
    """
    parts: list[bytes] = []
    size = 0
    has_more = True
    # The server passes on exactly the declared length, so the loop does not wait for the final empty message. That
    # would cost another switch between the server's threads, which takes a fifth of the time of a small delivery.
    while has_more and size != length:
        try:
            message = await receive()
        except Exception:
            # Some servers report an incomplete body by an exception, and others by a message of another type.
            raise BodyCutShort from None
        if message["type"] != "http.request":
            raise BodyCutShort
        part = message.get("body", b"")
        size += len(part)
        if size > bytes_max:
            raise BodyTooLarge(size)
        parts.append(part)
        has_more = message.get("more_body", False)
        if report_size is not None and has_more and size != length:
            report_size(size)
    if length is not None and size < length:
        raise BodyCutShort
    return b"".join(parts)


class BodyReader:
    """Reads bodies for one event loop, `bodies_max` concurrently.

    A further body evicts the oldest body, whose `read` then raises `BodyTooSlow`. A body usually arrives within
    milliseconds. So even many slow clients can't exclude others, and their bodies use little memory.
    """

    def __init__(self, bodies_max: int, *, grace_seconds: float = 0) -> None:
        """No body is evicted within its first `grace_seconds`, even if more than `bodies_max` are then in progress."""
        self._bodies_max = bodies_max
        self._grace_seconds = grace_seconds
        self._start_times_by_timeout: dict[asyncio.Timeout, float] = {}
        """When each body started, oldest first. A body is identified by its timeout."""

    async def read(self, scope: Scope, receive: Receive, *, bytes_max: int, seconds: float) -> bytes:
        """The complete body. Raises `BodyTooLarge`, `BodyTooSlow` or `BodyCutShort`.

        `seconds`: the time limit for the whole body. A declared length above `bytes_max` is rejected without reading.
        """
        length = _declared_length(scope, bytes_max)
        try:
            async with asyncio.timeout(seconds) as timeout:
                self._evict_oldest_if_full()
                self._start_times_by_timeout[timeout] = asyncio.get_running_loop().time()
                try:
                    return await read_body(receive, length, bytes_max)
                finally:
                    self._start_times_by_timeout.pop(timeout, None)
        except TimeoutError:
            raise BodyTooSlow from None

    def _evict_oldest_if_full(self) -> None:
        """If `bodies_max` bodies are in progress, let the oldest one time out: now, or after its `grace_seconds`."""
        if len(self._start_times_by_timeout) >= self._bodies_max:
            oldest_timeout = next(iter(self._start_times_by_timeout))
            start_time = self._start_times_by_timeout.pop(oldest_timeout)
            if not oldest_timeout.expired():
                evicted_at = max(start_time + self._grace_seconds, asyncio.get_running_loop().time())
                time_limit = oldest_timeout.when()
                oldest_timeout.reschedule(evicted_at if time_limit is None else min(evicted_at, time_limit))


def _declared_length(scope: Scope, bytes_max: int) -> int | None:
    """The declared length of the body in bytes: 0 without a body, None if the body is chunked."""
    content_length: bytes | None = next((value for name, value in scope["headers"] if name == b"content-length"), None)
    if content_length is not None:
        return parse_content_length(content_length, bytes_max)
    return None if any(name == b"transfer-encoding" for name, _ in scope["headers"]) else 0
