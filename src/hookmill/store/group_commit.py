"""Group commit, seen from the event loop: plans go to the writing process, and what became of them comes back.

The writer is a process of its own. In a thread it would hold the interpreter at every step of every statement, and
the server's own threads, which need it for each request, would queue behind it: measured, that halved what a process
can take.
"""

import asyncio
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, assert_never

import msgspec

from hookmill.domain.delivery import Accepted, Duplicate, RateLimited, Rejected, Unavailable, rate_limited
from hookmill.domain.ids import DeliveryKey
from hookmill.store.admission import Admission, Plan, Stale

OUTSTANDING_BYTES_MAX: Final = 64 * 1024 * 1024
"""What may wait for the writer, bodies included. Beyond it the answer is 503: a queue that can't drain helps nobody."""
PLAN_OVERHEAD_BYTES: Final = 2_000
PATIENCE_SECONDS: Final = 5.0
"""How long a sender waits for the store before the answer is 503, and how old a plan may be when it is begun."""
RESTART_SECONDS: Final = 0.5
LENGTH_BYTES: Final = 4

RefusalCount = tuple[int, int, str, int]
"""Webhook, start of the minute in µs, kind, how many."""


class Numbered(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A plan on its way to the writer. `begin_by` is on the machine's monotonic clock, in seconds."""

    number: int
    begin_by: float
    plan: Plan


class Work(msgspec.Struct, frozen=True, array_like=True):
    """What the event loop sends: plans to admit, and counters to add up."""

    plans: list[Numbered]
    refusals: list[RefusalCount]


class Became(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What became of a plan: `kind` is one of the letters below."""

    number: int
    kind: str
    original: bytes = b""
    opens_at: int = 0


class Report(msgspec.Struct, frozen=True, array_like=True):
    """What the writer sends back; an empty one is its greeting. `failure` is why a batch was not kept, for the log."""

    became: list[Became]
    failure: str = ""


ACCEPTED: Final = "a"
DUPLICATE: Final = "d"
REJECTED: Final = "r"
RATE_LIMITED: Final = "l"
UNAVAILABLE: Final = "u"
STALE: Final = "s"

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Report).decode
_UNAVAILABLE: Final = Unavailable()
_STALE: Final = Stale()


def frame(content: Work | Report) -> bytes:
    """The content behind its own length, as it travels."""
    encoded = _encode(content)
    return len(encoded).to_bytes(LENGTH_BYTES, "big") + encoded


class Unframer:
    """Cuts what arrives back into frames."""

    def __init__(self) -> None:
        self._arrived = bytearray()

    def frames(self, piece: bytes) -> list[bytes]:
        """The frames that are whole now that `piece` has arrived."""
        self._arrived += piece
        whole, start = [], 0
        while len(self._arrived) - start >= LENGTH_BYTES:
            end = start + LENGTH_BYTES + int.from_bytes(self._arrived[start : start + LENGTH_BYTES], "big")
            if len(self._arrived) < end:
                break
            whole.append(bytes(self._arrived[start + LENGTH_BYTES : end]))
            start = end
        del self._arrived[:start]
        return whole


def held_bytes(plan: Plan) -> int:
    """What the plan takes up while it waits. Its `size` may be a stranger's mere claim."""
    return PLAN_OVERHEAD_BYTES + (len(plan.body) if plan.body is not None else 0)


@dataclass(slots=True)
class _Waiting:
    plan: Plan
    answer: "asyncio.Future[Admission]"
    since: float


StartWriter = Callable[[socket.socket], None]
"""Gives the other end of the line to a writer, which ends when this end is closed. Raises `OSError`."""


class GroupCommit(asyncio.Protocol):
    """Admissions for one event loop. Everything here may be called only there."""

    def __init__(
        self,
        start_writer: StartWriter,
        *,
        failed: Callable[[str, str], None] = lambda _where, _why: None,
    ) -> None:
        """`failed` hears of every batch that was not kept, and of a writer that was lost."""
        self._start_writer = start_writer
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self.is_ready = False
        """Whether the writer is there. A delivery that comes before waits for it, but not for long."""
        self._unframer = Unframer()
        self._number = 0
        self._outgoing: list[Numbered] = []
        self._refusals: list[RefusalCount] = []
        self._waiting: dict[int, _Waiting] = {}
        self._outstanding_bytes = 0
        self._clogged = False
        self._closing = False
        self._watch = self._loop.call_later(RESTART_SECONDS, self._answer_the_overdue)

    async def open(self) -> None:
        """Start the writer. Plans that come before it is ready wait for it."""
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
        """What became of the plan, once that is durable; `Unavailable` when it can't be known in time."""
        answer: asyncio.Future[Admission] = self._loop.create_future()
        if self._transport is None or self._clogged or self._outstanding_bytes > OUTSTANDING_BYTES_MAX:
            answer.set_result(_UNAVAILABLE)
            return answer
        now = time.monotonic()
        self._number += 1
        self._waiting[self._number] = _Waiting(plan, answer, now)
        self._outstanding_bytes += held_bytes(plan)
        self._send_soon()
        self._outgoing.append(Numbered(self._number, now + PATIENCE_SECONDS, plan))
        return answer

    def count_refusals(self, counts: list[RefusalCount]) -> None:
        """Have counters written down. Lost with the writer: they are nobody's promise."""
        if self._transport is not None:
            self._send_soon()
            self._refusals += counts

    async def close(self) -> None:
        """Wait for what is under way, then let the writer go."""
        self._closing = True
        if under_way := [waiting.answer for waiting in self._waiting.values()]:
            await asyncio.wait(under_way, timeout=PATIENCE_SECONDS)
        self._send()
        self._watch.cancel()
        if self._transport is not None:
            self._transport.close()

    def pause_writing(self) -> None:
        """The writer has long stopped reading. What lies in the line stays there, though its senders were answered."""
        self._clogged = True

    def resume_writing(self) -> None:
        self._clogged = False

    def data_received(self, data: bytes) -> None:
        self.is_ready = True
        for content in self._unframer.frames(data):
            report = _decode(content)
            if report.failure:
                self._failed("admission", report.failure)
            for became in report.became:
                waiting = self._waiting.pop(became.number, None)
                if waiting is not None:
                    self._settle(waiting, _outcome(became, waiting.plan))

    def connection_lost(self, exc: Exception | None) -> None:
        """Whether the writer's last batch was kept can't be known: 503, and a repeat is absorbed."""
        self._transport = None
        self._clogged = False
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
        """Once per turn of the loop: whoever is ready in the same turn travels together."""
        if not self._outgoing and not self._refusals:
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        if self._transport is not None and (self._outgoing or self._refusals):
            self._transport.write(frame(Work(self._outgoing, self._refusals)))
        self._outgoing, self._refusals = [], []

    def _settle(self, waiting: _Waiting, outcome: Admission) -> None:
        self._outstanding_bytes -= held_bytes(waiting.plan)
        if not waiting.answer.done():
            waiting.answer.set_result(outcome)

    def _answer_the_overdue(self) -> None:
        """A database that hangs holds the writer; its senders are answered from here."""
        oldest_allowed = time.monotonic() - PATIENCE_SECONDS
        overdue = deque[int]()
        for number, waiting in self._waiting.items():
            if waiting.since > oldest_allowed:
                break
            overdue.append(number)
        for number in overdue:
            self._settle(self._waiting.pop(number), _UNAVAILABLE)
        self._watch = self._loop.call_later(RESTART_SECONDS, self._answer_the_overdue)


def became(number: int, outcome: Admission) -> Became:
    """The outcome as it travels."""
    match outcome:
        case Accepted():
            return Became(number, ACCEPTED)
        case Duplicate(_, original):
            return Became(number, DUPLICATE, original=original)
        case Rejected():
            return Became(number, REJECTED)
        case RateLimited(_, opens_at):
            return Became(number, RATE_LIMITED, opens_at=opens_at)
        case Unavailable():
            return Became(number, UNAVAILABLE)
        case Stale():
            return Became(number, STALE)
        case _:
            assert_never(outcome)


def _outcome(became: Became, plan: Plan) -> Admission:
    match became.kind:
        case "a":
            return Accepted(plan.delivery)
        case "d":
            return Duplicate(plan.delivery, DeliveryKey(became.original))
        case "r":
            return Rejected(plan.label)
        case "l":
            return rate_limited(plan.received_at, became.opens_at)
        case "s":
            return _STALE
        case _:
            return _UNAVAILABLE
