"""Reads the bodies of deliveries. All bodies share one timer, which is cheaper than a timer for each body."""

import asyncio
from typing import Any, Final

from hookmill.domain.delivery import CutShort
from hookmill.domain.limits import BODY_BYTES_MAX
from hookmill.ingress import Body, TooLarge
from hookmill.web.asgi import Receive
from hookmill.web.body import BodyCutShort, BodyTooLarge, BodyTooSlow, parse_content_length, read_body

BODY_SECONDS: Final = 30.0
"""The time limit of a body, from the start of reading to its last byte."""
CHECK_SECONDS: Final = 1.0
"""How often the timer looks for bodies that exceed `BODY_SECONDS`."""
INCOMPLETE_BYTES_MAX: Final = 256 * 1024 * 1024
"""The maximum of memory that the incomplete bodies of one process use together.

Unauthenticated clients can send such bodies, because a signature is verified only after its body is complete.
"""

_LOGGED_SIZE_MAX: Final = 2**31 - 1
"""The largest size that the log's column can hold."""

_BodyTask = asyncio.Task[Any] | None
"""The task that reads a body. The type of `asyncio.current_task()` includes None, which does not occur here."""


class BodyEvicted(Exception):
    """The body was evicted, because the incomplete bodies together exceeded `INCOMPLETE_BYTES_MAX`."""


class DeliveryBodies:
    """The bodies that one event loop is reading, each with a time limit. One timer checks all of them."""

    def __init__(self) -> None:
        self._start_times: dict[_BodyTask, float] = {}
        """When each body started, oldest first."""
        self._timed_out_tasks: set[_BodyTask] = set()
        self._sizes: dict[_BodyTask, int] = {}
        """The bytes received so far of each body that did not arrive in one part, in the order of their first parts."""
        self._total_bytes = 0
        self._evicted_tasks: set[_BodyTask] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def read(self, receive: Receive, headers: dict[bytes, bytes]) -> Body:
        """Read the body of the current task's request.

        Returns `TooLarge` above `BODY_BYTES_MAX`, without reading if the declared length is above it; and `CutShort`
        for an incomplete body. Raises `BodyTooSlow` after the time limit, and `BodyEvicted` if other bodies needed its
        memory.
        """
        content_length = headers.get(b"content-length")
        task = self._register_body()
        try:
            length = parse_content_length(content_length, BODY_BYTES_MAX) if content_length is not None else None
            return await read_body(receive, length, BODY_BYTES_MAX, lambda size: self._record_size(task, size))
        except BodyTooLarge as error:
            return TooLarge(min(error.size, _LOGGED_SIZE_MAX))
        except BodyCutShort:
            return CutShort()
        except asyncio.CancelledError:
            # `_record_size` and `_cancel_overdue` cancel the task. Any other cancellation continues.
            if task is not None and task in self._evicted_tasks:
                task.uncancel()
                raise BodyEvicted from None
            if task is not None and task in self._timed_out_tasks:
                task.uncancel()
                raise BodyTooSlow from None
            raise
        finally:
            self._deregister_body(task)

    def _register_body(self) -> _BodyTask:
        """Start the time of the current task's body, and return the task. The first body also starts the timer."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._cancel_overdue()
        task = asyncio.current_task(self._loop)
        self._start_times[task] = self._loop.time()
        return task

    def _deregister_body(self, task: _BodyTask) -> None:
        del self._start_times[task]
        if task in self._sizes:
            self._total_bytes -= self._sizes.pop(task)
            self._evicted_tasks.discard(task)
        if self._timed_out_tasks:
            self._timed_out_tasks.discard(task)

    def _record_size(self, task: _BodyTask, size: int) -> None:
        """Record the bytes received of an incomplete body. Above the memory limit, evict the oldest body."""
        self._total_bytes += size - self._sizes.get(task, 0)
        self._sizes[task] = size
        if self._total_bytes > INCOMPLETE_BYTES_MAX:
            oldest = next((task for task in self._sizes if task is not None and task not in self._evicted_tasks), None)
            if oldest is not None:
                self._evicted_tasks.add(oldest)
                oldest.cancel()

    def _cancel_overdue(self) -> None:
        """Cancel the tasks of the bodies that exceed `BODY_SECONDS`. Runs every `CHECK_SECONDS`."""
        assert self._loop is not None
        overdue_if_started_by = self._loop.time() - BODY_SECONDS
        for task, started_at in list(self._start_times.items()):
            if started_at > overdue_if_started_by:
                break
            if task is not None and task not in self._timed_out_tasks:
                self._timed_out_tasks.add(task)
                task.cancel()
        self._loop.call_later(CHECK_SECONDS, self._cancel_overdue)
