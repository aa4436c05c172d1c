"""Reads the bodies of deliveries. All bodies share one timer, which is cheaper than a timer for each."""

import asyncio
from typing import Any, Final

from hookmill.domain.delivery import CutShort
from hookmill.domain.limits import BODY_BYTES_MAX
from hookmill.ingress import Body, TooLarge
from hookmill.web.asgi import Receive
from hookmill.web.body import BodyCutShort, BodyTooLarge, BodyTooSlow, length_from, read_body

BODY_SECONDS: Final = 30.0
"""The time limit of a body, from its first byte to its last."""
CHECK_SECONDS: Final = 1.0
UNFINISHED_BYTES_MAX: Final = 256 * 1024 * 1024
"""The memory of one process for incomplete bodies. Unauthenticated clients can send such bodies to signed webhooks."""

_LOGGED_SIZE_MAX: Final = 2**31 - 1
"""The largest size that the log's column can hold."""

_BodyTask = asyncio.Task[Any] | None


class BodyEvicted(Exception):
    """The body was evicted, because the incomplete bodies together exceeded `UNFINISHED_BYTES_MAX`."""


class DeliveryBodies:
    """The bodies that one event loop is reading, each with a time limit. One timer checks all of them."""

    def __init__(self) -> None:
        self._started_at: dict[_BodyTask, float] = {}
        self._timed_out: set[_BodyTask] = set()
        self._sizes: dict[_BodyTask, int] = {}
        self._total_bytes = 0
        self._evicted: set[_BodyTask] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def read(self, receive: Receive, headers: dict[bytes, bytes]) -> Body:
        """Read the body of the current task's request. A declared length above the limit is rejected without reading.

        Raises `BodyTooSlow` after the time limit, and `BodyEvicted` if the body was evicted in favour of others.
        """
        declared = headers.get(b"content-length")
        task = self._begin()
        try:
            length = length_from(declared, BODY_BYTES_MAX) if declared is not None else None
            return await read_body(receive, length, BODY_BYTES_MAX, lambda size: self._count_bytes(task, size))
        except BodyTooLarge as excess:
            return TooLarge(min(excess.size, _LOGGED_SIZE_MAX))
        except BodyCutShort:
            return CutShort()
        except asyncio.CancelledError:
            if task is not None and task in self._evicted:
                task.uncancel()
                raise BodyEvicted from None
            if task is not None and task in self._timed_out:
                task.uncancel()
                raise BodyTooSlow from None
            raise
        finally:
            self._end(task)

    def _begin(self) -> _BodyTask:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._cancel_overdue()
        task = asyncio.current_task(self._loop)
        self._started_at[task] = self._loop.time()
        return task

    def _end(self, task: _BodyTask) -> None:
        del self._started_at[task]
        if task in self._sizes:
            self._total_bytes -= self._sizes.pop(task)
            self._evicted.discard(task)
        if self._timed_out:
            self._timed_out.discard(task)

    def _count_bytes(self, task: _BodyTask, size: int) -> None:
        """Count the bytes of an incomplete body. Above the memory limit, evict the oldest body."""
        self._total_bytes += size - self._sizes.get(task, 0)
        self._sizes[task] = size
        if self._total_bytes > UNFINISHED_BYTES_MAX:
            oldest = next((task for task in self._sizes if task is not None and task not in self._evicted), None)
            if oldest is not None:
                self._evicted.add(oldest)
                oldest.cancel()

    def _cancel_overdue(self) -> None:
        assert self._loop is not None
        overdue_if_started_by = self._loop.time() - BODY_SECONDS
        for task, started_at in list(self._started_at.items()):
            if started_at > overdue_if_started_by:
                break
            if task is not None and task not in self._timed_out:
                self._timed_out.add(task)
                task.cancel()
        self._loop.call_later(CHECK_SECONDS, self._cancel_overdue)
