"""Reading the bodies of deliveries. Every delivery passes here, so all of them share one timer."""

import asyncio
from typing import Any, Final

from hookmill.domain.delivery import Broken
from hookmill.domain.limits import BODY_BYTES_MAX
from hookmill.ingress import Body, TooLarge
from hookmill.web.asgi import Receive
from hookmill.web.body import BodyCutShort, BodyTooLarge, BodyTooSlow, gather, length_from

BODY_SECONDS: Final = 30.0
"""The deadline of a whole body, from its first byte to its last."""
LOOK_SECONDS: Final = 1.0
UNFINISHED_BYTES_MAX: Final = 256 * 1024 * 1024
"""Memory that one process gives to bodies that are not complete: anybody may send those of signed webhooks."""

_LOGGED_SIZE_MAX: Final = 2**31 - 1
"""The log shows no more of a declared length than its column holds."""

_Reading = asyncio.Task[Any] | None


class BodyGaveWay(Exception):
    """The body was given up, because the unfinished bodies together took too much memory."""


class DeliveryBodies:
    """The bodies that one event loop is reading, each with a deadline. One timer for each body would cost more than the
    body."""

    def __init__(self) -> None:
        self._began: dict[_Reading, float] = {}
        self._late: set[_Reading] = set()
        self._held: dict[_Reading, int] = {}
        self._bytes_held = 0
        self._given_way: set[_Reading] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def read(self, receive: Receive, headers: dict[bytes, bytes]) -> Body:
        """The body that the current task is to read. An excess that is declared is not read at all.

        Raises `BodyTooSlow` after the deadline, and `BodyGaveWay` when it made room for others.
        """
        declared = headers.get(b"content-length")
        reading = self._begin()
        try:
            length = length_from(declared, BODY_BYTES_MAX) if declared is not None else None
            return await gather(receive, length, BODY_BYTES_MAX, lambda size: self._hold(reading, size))
        except BodyTooLarge as excess:
            return TooLarge(min(excess.size, _LOGGED_SIZE_MAX))
        except BodyCutShort:
            return Broken()
        except asyncio.CancelledError:
            if reading is not None and reading in self._given_way:
                reading.uncancel()
                raise BodyGaveWay from None
            if reading is not None and reading in self._late:
                reading.uncancel()
                raise BodyTooSlow from None
            raise
        finally:
            self._end(reading)

    def _begin(self) -> _Reading:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._cancel_late_ones()
        reading = asyncio.current_task(self._loop)
        self._began[reading] = self._loop.time()
        return reading

    def _end(self, reading: _Reading) -> None:
        del self._began[reading]
        if reading in self._held:
            self._bytes_held -= self._held.pop(reading)
            self._given_way.discard(reading)
        if self._late:
            self._late.discard(reading)

    def _hold(self, reading: _Reading, size: int) -> None:
        """Count the bytes of a body that is not complete. Above the bound, the oldest body gives way."""
        self._bytes_held += size - self._held.get(reading, 0)
        self._held[reading] = size
        if self._bytes_held > UNFINISHED_BYTES_MAX:
            oldest = next((each for each in self._held if each is not None and each not in self._given_way), None)
            if oldest is not None:
                self._given_way.add(oldest)
                oldest.cancel()

    def _cancel_late_ones(self) -> None:
        assert self._loop is not None
        earliest = self._loop.time() - BODY_SECONDS
        for reading, began in list(self._began.items()):
            if began > earliest:
                break
            if reading is not None and reading not in self._late:
                self._late.add(reading)
                reading.cancel()
        self._loop.call_later(LOOK_SECONDS, self._cancel_late_ones)
