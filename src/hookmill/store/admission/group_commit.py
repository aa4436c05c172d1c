"""Group commit, as the event loop sees it: plans go to the writing process, and their outcomes come back.

The writer is a process of its own. In a thread it would take the GIL at every step of every statement, and the server's
own threads, which need it for each request, would queue behind it: measured, that halved the throughput of a process.
"""

import asyncio
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hookmill.domain.delivery import Unavailable
from hookmill.store.admission.plan import Plan, held_bytes
from hookmill.store.admission.protocol import DroppedCount, NumberedPlan, Unframer, Work, decode_report, frame
from hookmill.store.admission.transaction import Admission

OUTSTANDING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Plans that wait for the writer, bodies included. Above it the answer is 503: a full queue helps nobody."""
PATIENCE_SECONDS: Final = 5.0
"""How long a sender waits for the store before the answer is 503, and how old a plan may be when it is begun."""
RESTART_SECONDS: Final = 0.5

_UNAVAILABLE: Final = Unavailable()


@dataclass(slots=True)
class _Waiting:
    plan: Plan
    answer: "asyncio.Future[Admission]"
    since: float


StartWriter = Callable[[socket.socket], None]
"""Gives the other end of the socket to a writer, which ends when this end is closed. Raises `OSError`."""


class GroupCommit(asyncio.Protocol):
    """Admissions for one event loop. Every method must be called there."""

    def __init__(
        self,
        start_writer: StartWriter,
        *,
        failed: Callable[[str, str], None] = lambda _where, _why: None,
    ) -> None:
        """`failed` is called for every batch that was not committed, and for a writer that was lost."""
        self._start_writer = start_writer
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self.is_ready = False
        """Whether the writer has started. A delivery that arrives before waits for it, but not for long."""
        self._unframer = Unframer()
        self._number = 0
        self._outgoing: list[NumberedPlan] = []
        self._dropped: list[DroppedCount] = []
        self._waiting: dict[int, _Waiting] = {}
        self._outstanding_bytes = 0
        self._backpressured = False
        self._closing = False
        self._watch = self._loop.call_later(RESTART_SECONDS, self._answer_the_overdue)

    async def open(self) -> None:
        """Start the writer. Plans that arrive before it is ready wait for it."""
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        try:
            self._start_writer(theirs)
        finally:
            theirs.close()
        ours.setblocking(False)
        self._transport, _ = await self._loop.create_connection(lambda: self, sock=ours)
        self._transport.set_write_buffer_limits(high=OUTSTANDING_BYTES_MAX)

    def admit(self, plan: Plan) -> "asyncio.Future[Admission]":
        """The outcome of the plan, once it is durable; `Unavailable` when it can't be known in time."""
        answer: asyncio.Future[Admission] = self._loop.create_future()
        if self._transport is None or self._backpressured or self._outstanding_bytes > OUTSTANDING_BYTES_MAX:
            answer.set_result(_UNAVAILABLE)
            return answer
        now = time.monotonic()
        self._number += 1
        self._waiting[self._number] = _Waiting(plan, answer, now)
        self._outstanding_bytes += held_bytes(plan)
        self._send_soon()
        self._outgoing.append(NumberedPlan(self._number, now + PATIENCE_SECONDS, plan))
        return answer

    def count_dropped(self, counts: list[DroppedCount]) -> None:
        """Have counters written. They may be lost with the writer."""
        if self._transport is not None:
            self._send_soon()
            self._dropped += counts

    async def close(self) -> None:
        """Wait for the plans under way, then let the writer end."""
        self._closing = True
        if under_way := [waiting.answer for waiting in self._waiting.values()]:
            await asyncio.wait(under_way, timeout=PATIENCE_SECONDS)
        self._send()
        self._watch.cancel()
        if self._transport is not None:
            self._transport.close()

    def pause_writing(self) -> None:
        """The writer has stopped reading for long. Plans stay in the socket, although their senders were answered."""
        self._backpressured = True

    def resume_writing(self) -> None:
        self._backpressured = False

    def data_received(self, data: bytes) -> None:
        self.is_ready = True
        for message in self._unframer.messages(data):
            report = decode_report(message)
            if report.failure:
                self._failed("admission", report.failure)
            for result in report.results:
                waiting = self._waiting.pop(result.number, None)
                if waiting is not None:
                    self._settle(waiting, result.outcome)

    def connection_lost(self, exc: Exception | None) -> None:
        """Whether the writer's last batch was committed can't be known: 503, and a retry is deduplicated."""
        self._transport = None
        self._backpressured = False
        self.is_ready = False
        self._unframer = Unframer()
        self._outgoing.clear()
        lost, self._waiting = self._waiting, {}
        for waiting in lost.values():
            self._settle(waiting, _UNAVAILABLE)
        if not self._closing:
            self._failed("writer", "the writing process ended; starting another")
            self._loop.call_later(RESTART_SECONDS, lambda: self._loop.create_task(self._reopen()))

    async def _reopen(self) -> None:
        if self._closing:
            return
        try:
            await self.open()
        except OSError as error:
            self._failed("writer", f"the writing process can't be started: {error}")
            self._loop.call_later(RESTART_SECONDS, lambda: self._loop.create_task(self._reopen()))

    def _send_soon(self) -> None:
        """Once per turn of the loop: plans of the same turn are sent together."""
        if not self._outgoing and not self._dropped:
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        if self._transport is not None and (self._outgoing or self._dropped):
            self._transport.write(frame(Work(self._outgoing, self._dropped)))
        self._outgoing, self._dropped = [], []

    def _settle(self, waiting: _Waiting, outcome: Admission) -> None:
        self._outstanding_bytes -= held_bytes(waiting.plan)
        if not waiting.answer.done():
            waiting.answer.set_result(outcome)

    def _answer_the_overdue(self) -> None:
        """A database that hangs blocks the writer; senders are answered from here."""
        oldest_allowed = time.monotonic() - PATIENCE_SECONDS
        overdue = deque[int]()
        for number, waiting in self._waiting.items():
            if waiting.since > oldest_allowed:
                break
            overdue.append(number)
        for number in overdue:
            self._settle(self._waiting.pop(number), _UNAVAILABLE)
        self._watch = self._loop.call_later(RESTART_SECONDS, self._answer_the_overdue)
