"""Request bodies for the API and the dashboard: read whole, within a size, a deadline and a number at a time."""

import asyncio

from hookmill.web.ingress import Receive, Scope


class BodyTooLarge(Exception):
    """The body is larger than it may be here. It was not read to its end."""


class BodyTooSlow(Exception):
    """The body was not complete in time, or it gave way to newer ones."""


class BodyCutShort(Exception):
    """The client closed the connection before the body was complete."""


class BodyReader:
    """Reads bodies for one event loop, at most `at_a_time` of them at once.

    When one more arrives, the one that has waited longest for its client gives way. A complete form arrives within
    milliseconds, so clients that send slowly, however many there are, keep nobody out and hold little memory.
    """

    def __init__(self, at_a_time: int, *, grace_seconds: float = 0) -> None:
        """A body may take `grace_seconds`, however many arrive meanwhile."""
        self._at_a_time = at_a_time
        self._grace_seconds = grace_seconds
        self._deadlines: dict[asyncio.Timeout, float] = {}

    async def read(self, scope: Scope, receive: Receive, *, bytes_max: int, seconds: float) -> bytes:
        """The whole body. Raises `BodyTooLarge`, `BodyTooSlow` or `BodyCutShort`.

        A declared length above `bytes_max` is refused unread.
        """
        length = _declared_length(scope)
        if length is not None and length > bytes_max:
            raise BodyTooLarge
        try:
            async with asyncio.timeout(seconds) as deadline:
                self._make_room()
                self._deadlines[deadline] = asyncio.get_running_loop().time()
                try:
                    return await _gather(receive, length, bytes_max)
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


def _declared_length(scope: Scope) -> int | None:
    """How many bytes the body is declared to have; None where it comes in chunks."""
    declared: bytes | None = next((value for name, value in scope["headers"] if name == b"content-length"), None)
    if declared is None:
        return None if any(name == b"transfer-encoding" for name, _ in scope["headers"]) else 0
    if not declared.isdigit():
        raise BodyCutShort
    # A number of many digits is too large for any limit, and slow to convert.
    return int(declared[:12])


async def _gather(receive: Receive, length: int | None, bytes_max: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    more = True
    while more and size != length:
        try:
            message = await receive()
        except Exception:
            # Servers report a broken body by a message or by an error of their own.
            raise BodyCutShort from None
        if message["type"] != "http.request":
            raise BodyCutShort
        part = message.get("body", b"")
        size += len(part)
        if size > bytes_max:
            raise BodyTooLarge
        parts.append(part)
        more = message.get("more_body", False)
    if length is not None and size < length:
        raise BodyCutShort
    return b"".join(parts)
