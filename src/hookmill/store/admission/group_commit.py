"""The event loop's side of group commit: it sends plans to the writer process, and receives their outcomes.

The writer is a process of its own. In a thread, it would take the GIL at every step of every statement. The server's
threads need the GIL for each request, and would wait for it: in a measurement, this halved the throughput.
"""

import asyncio
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hookmill.domain.delivery import Unavailable
from hookmill.domain.errors import DatabaseUnreachable, HookmillError, ReportFailure
from hookmill.metrics import (
    COMMIT_DELIVERIES,
    COMMIT_SECONDS,
    FAILED_COMMITS,
    WRITER_RESTARTS,
    Metrics,
    ProcessUsage,
)
from hookmill.store.admission.plan import Plan, memory_bytes
from hookmill.store.admission.protocol import DroppedCount, NumberedPlan, Unframer, Work, decode_report, frame
from hookmill.store.admission.transaction import AdmissionOutcome

OUTSTANDING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Memory of the plans that wait for the writer, including bodies. Above it, senders get a 503."""
PLAN_TIMEOUT_SECONDS: Final = 5.0
"""After this time, a sender gets a 503, and the writer no longer begins the plan."""
RESTART_SECONDS: Final = 0.5
TIMEOUT_CHECK_SECONDS: Final = 0.5

_UNAVAILABLE: Final = Unavailable()


@dataclass(slots=True)
class _WaitingPlan:
    plan: Plan
    outcome: "asyncio.Future[AdmissionOutcome]"
    since: float
    """When it was sent, in monotonic seconds."""


StartWriter = Callable[[socket.socket], None]
"""Starts a writer that uses the given end of a socket pair, and ends when the other end is closed. Raises `OSError`."""


class AdmissionFault(HookmillError):
    """The writer process failed, or could not commit a batch. The text is for the service's log."""


class GroupCommit(asyncio.Protocol):
    """Admits plans for one event loop. Call its methods only on this event loop."""

    def __init__(
        self,
        start_writer: StartWriter,
        *,
        metrics: Metrics | None = None,
        report_failure: ReportFailure = lambda _component, _error: None,
    ) -> None:
        """`report_failure` is called for each batch that was not committed, and if the writer ends or can't be started.

        It is called for each batch that was not committed, and for a writer that ended.
        """
        self._start_writer = start_writer
        self._report_failure = report_failure
        metrics = metrics or Metrics()
        self._commit_seconds = metrics.histogram(COMMIT_SECONDS)
        self._commit_deliveries = metrics.histogram(COMMIT_DELIVERIES)
        self._failed_commits = metrics.number(FAILED_COMMITS)
        self._writer_restarts = metrics.number(WRITER_RESTARTS)
        self.writer_usage: ProcessUsage | None = None
        """The writer process's last report of its usage."""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self.is_ready = False
        """Whether the writer has reported that it is ready. Plans that are sent before wait for at most
        `PLAN_TIMEOUT_SECONDS`. While no writer is connected, plans are refused."""
        self._unframer = Unframer()
        self._last_number = 0
        self._outgoing: list[NumberedPlan] = []
        self._dropped_counts: list[DroppedCount] = []
        self._waiting: dict[int, _WaitingPlan] = {}
        """The plans without an outcome, by their numbers, oldest first."""
        self._outstanding_bytes = 0
        self._is_backpressured = False
        self._is_closing = False
        self._timeout_check = self._loop.call_later(TIMEOUT_CHECK_SECONDS, self._time_out_plans)

    async def open(self) -> None:
        """Start the writer. Plans that arrive before it is ready wait for it."""
        own_end, writer_end = socket.socketpair()
        for end in (own_end, writer_end):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        try:
            self._start_writer(writer_end)
        finally:
            writer_end.close()
        own_end.setblocking(False)
        self._transport, _ = await self._loop.create_connection(lambda: self, sock=own_end)
        self._transport.set_write_buffer_limits(high=OUTSTANDING_BYTES_MAX)

    def admit(self, plan: Plan) -> "asyncio.Future[AdmissionOutcome]":
        """The outcome of the plan, once it is durable; `Unavailable` if it can't be determined in time."""
        outcome: asyncio.Future[AdmissionOutcome] = self._loop.create_future()
        if self._transport is None or self._is_backpressured or self._outstanding_bytes > OUTSTANDING_BYTES_MAX:
            outcome.set_result(_UNAVAILABLE)
            return outcome
        now = time.monotonic()
        self._last_number += 1
        self._waiting[self._last_number] = _WaitingPlan(plan, outcome, now)
        self._outstanding_bytes += memory_bytes(plan)
        self._schedule_sending()
        self._outgoing.append(NumberedPlan(self._last_number, now + PLAN_TIMEOUT_SECONDS, plan))
        return outcome

    @property
    def waiting_count(self) -> int:
        """The number of plans without an outcome."""
        return len(self._waiting)

    def send_dropped_counts(self, counts: list[DroppedCount]) -> None:
        """Send counts of dropped attempts to the writer. If the writer ends, the counts may be lost."""
        if self._transport is not None:
            self._schedule_sending()
            self._dropped_counts += counts

    async def close(self) -> None:
        """Wait for the plans in flight, then let the writer end."""
        self._is_closing = True
        if in_flight := [waiting_plan.outcome for waiting_plan in self._waiting.values()]:
            await asyncio.wait(in_flight, timeout=PLAN_TIMEOUT_SECONDS)
        self._send()
        self._timeout_check.cancel()
        if self._transport is not None:
            self._transport.close()

    def pause_writing(self) -> None:
        """Called when more than `OUTSTANDING_BYTES_MAX` bytes wait to be sent to the writer. New plans are refused
        until it has read enough."""
        self._is_backpressured = True

    def resume_writing(self) -> None:
        self._is_backpressured = False

    def data_received(self, data: bytes) -> None:
        # The writer's first report means that it is ready.
        self.is_ready = True
        for message in self._unframer.messages(data):
            report = decode_report(message)
            if report.failure:
                self._failed_commits.value += 1
                error_type = DatabaseUnreachable if report.is_unreachable else AdmissionFault
                self._report_failure("admission", error_type(report.failure))
            elif report.results:
                self._commit_seconds.observe(report.seconds)
                self._commit_deliveries.observe(len(report.results))
            if report.usage is not None:
                self.writer_usage = report.usage
            for result in report.results:
                waiting_plan = self._waiting.pop(result.number, None)
                if waiting_plan is not None:
                    self._settle(waiting_plan, result.outcome)

    def connection_lost(self, exc: Exception | None) -> None:
        """Answer waiting senders with a 503. The last batch may have been committed; then a retry is deduplicated."""
        self._transport = None
        self._is_backpressured = False
        self.is_ready = False
        self._unframer = Unframer()
        self._outgoing.clear()
        lost_plans, self._waiting = self._waiting, {}
        for waiting_plan in lost_plans.values():
            self._settle(waiting_plan, _UNAVAILABLE)
        self.writer_usage = None
        if not self._is_closing:
            self._writer_restarts.value += 1
            self._report_failure("writer", AdmissionFault("the writer process ended; starting another"))
            self._loop.call_later(RESTART_SECONDS, lambda: self._loop.create_task(self._reopen()))

    async def _reopen(self) -> None:
        if self._is_closing:
            return
        try:
            await self.open()
        except OSError as error:
            self._report_failure("writer", AdmissionFault(f"the writer process can't be started: {error}"))
            self._loop.call_later(RESTART_SECONDS, lambda: self._loop.create_task(self._reopen()))

    def _schedule_sending(self) -> None:
        """Schedule `_send`, so that all plans of one turn of the event loop are sent together.

        Call it *before* adding to the unsent plans or counts: if there are any, `_send` is already scheduled.
        """
        if not self._outgoing and not self._dropped_counts:
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        if self._transport is not None and (self._outgoing or self._dropped_counts):
            self._transport.write(frame(Work(self._outgoing, self._dropped_counts)))
        self._outgoing, self._dropped_counts = [], []

    def _settle(self, waiting_plan: _WaitingPlan, outcome: AdmissionOutcome) -> None:
        self._outstanding_bytes -= memory_bytes(waiting_plan.plan)
        if not waiting_plan.outcome.done():
            waiting_plan.outcome.set_result(outcome)

    def _time_out_plans(self) -> None:
        """Answer the senders of overdue plans. The writer can't do it while it waits for an unresponsive database."""
        oldest_allowed = time.monotonic() - PLAN_TIMEOUT_SECONDS
        overdue_numbers = deque[int]()
        for number, waiting_plan in self._waiting.items():
            if waiting_plan.since > oldest_allowed:
                break
            overdue_numbers.append(number)
        for number in overdue_numbers:
            self._settle(self._waiting.pop(number), _UNAVAILABLE)
        self._timeout_check = self._loop.call_later(TIMEOUT_CHECK_SECONDS, self._time_out_plans)
