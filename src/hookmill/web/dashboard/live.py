"""The live delivery log: one task polls the database for all watchers, and each watcher has an event stream.

A row's key contains the time at which its request began, so a slow request adds its row below newer rows. Each poll
therefore reads the last seconds again. A sweep, every `SWEEP_SECONDS`, reads as far back as the slowest body may reach.
"""

import asyncio
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Send

from hookmill.domain import ids
from hookmill.domain.delivery import Delivery, Label
from hookmill.domain.errors import HookmillError, StoreUnavailable
from hookmill.domain.ids import DeliveryKey, FactoryId, WebhookUid
from hookmill.domain.permission import MayView
from hookmill.management import Management
from hookmill.web.dashboard import pages
from hookmill.web.dashboard.page_context import PageContext

PAGE: Final = 50
"""Rows on a page of the log."""
STREAMS_MAX: Final = 200
STREAMS_PER_SESSION: Final = 4
"""A browser opens at most six connections to a host, and some must remain for requests."""
POLL_SECONDS: Final = 0.15
SWEEP_SECONDS: Final = 2.0
CHECK_SECONDS: Final = 2.0
"""How soon a stream ends after its session did, or after its member lost the role."""
HEARTBEAT_SECONDS: Final = 15.0
SEND_SECONDS: Final = 5.0
RECENT_US: Final = 3_000_000
LATE_US: Final = 45_000_000
"""How late a row can appear. A body may take 30 seconds, and a busy database adds to that."""
POLL_ROWS_MAX: Final = 500
QUEUED_EVENTS_MAX: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFilter:
    """The filters of a watcher."""

    webhook: WebhookUid | None = None
    label: Label | None = None
    since: int | None = None
    event: str | None = None
    identities: tuple[bytes, ...] | None = None

    def matches(self, delivery: Delivery) -> bool:
        return (
            self.webhook in (None, delivery.webhook_uid)
            and self.label in (None, delivery.label)
            and (self.since is None or delivery.received_at >= self.since)
            and self.event in (None, delivery.event)
            and (self.identities is None or delivery.identity_digest in self.identities)
        )


@dataclass(slots=True, kw_only=True, eq=False)
class Watcher:
    """One open page that watches a factory's log."""

    context: PageContext
    may: MayView
    log_filter: LogFilter
    filters: dict[str, Any]
    """The same as `log_filter`, as arguments of `management.log.newest`."""
    after: DeliveryKey | None
    """The newest row that the page has."""
    events: "asyncio.Queue[bytes | None]" = field(default_factory=lambda: asyncio.Queue(QUEUED_EVENTS_MAX))
    """Events to send. None ends the stream."""
    sent_from_backlog: set[DeliveryKey] = field(default_factory=set)

    def enqueue(self, event: bytes | None) -> None:
        while True:
            try:
                return self.events.put_nowait(event)
            except asyncio.QueueFull:
                # The client is too slow: drop its events and end the stream. It reconnects, and gets what it missed.
                while not self.events.empty():
                    self.events.get_nowait()
                event = None

    def end(self, reason: str) -> None:
        """End the stream with a reason, so that the browser does not reconnect."""
        self.enqueue(f"event: end\ndata: {reason}\n\n".encode())
        self.enqueue(None)


@dataclass(slots=True)
class _FactoryLog:
    """The keys of a watched factory's rows that were already sent."""

    seen: set[DeliveryKey] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(slots=True)
class _PollResult:
    """New rows by factory, and the watchers that lost access."""

    rows: dict[FactoryId, list[tuple[Delivery, bytes]]] = field(default_factory=dict)
    denied: list[Watcher] = field(default_factory=list)


class Hub:
    """All watchers of this process, and the task that polls for them."""

    def __init__(self) -> None:
        self._watchers: list[Watcher] = []
        self._logs: defaultdict[FactoryId, _FactoryLog] = defaultdict(_FactoryLog)
        self._polling: asyncio.Task[None] | None = None
        self._newest: DeliveryKey | None = None
        self._active_until = self._next_sweep = self._next_check = 0.0
        self._handles_signals = False
        self._is_over = False

    @property
    def is_full(self) -> bool:
        return len(self._watchers) >= STREAMS_MAX

    def join(self, watcher: Watcher) -> None:
        own = [other for other in self._watchers if other.context.session == watcher.context.session]
        for oldest in own[: max(0, len(own) - STREAMS_PER_SESSION + 1)]:
            oldest.end("too-many-streams")
            self._watchers.remove(oldest)
        self._watchers.append(watcher)
        self._install_signal_handlers()
        if self._is_over:
            watcher.enqueue(None)
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll_while_watched())

    def leave(self, watcher: Watcher) -> None:
        with suppress(ValueError):
            self._watchers.remove(watcher)

    def end_all(self) -> None:
        """End all streams: the server waits for every response before it stops."""
        self._is_over = True
        for watcher in self._watchers:
            watcher.enqueue(None)

    def backlog(self, watcher: Watcher) -> list[tuple[Delivery, bytes]]:
        """Rows since the page was rendered, or since the stream broke. Blocks: call it in a thread."""
        management = watcher.context.management
        log = self._logs[watcher.may.factory.id]
        with log.lock:
            if log.seen is None:
                recent = management.log.newest(watcher.may, since=_now(watcher) - LATE_US, limit=POLL_ROWS_MAX)
                log.seen = {row.key for row in recent}
        if watcher.after is None:
            return []
        rows = management.log.newest(
            watcher.may,
            **watcher.filters | {"since": max(watcher.log_filter.since or 0, ids.time_of(watcher.after) - LATE_US)},
            limit=PAGE,
        )
        return _events(watcher, list(reversed(rows)))

    async def _poll_while_watched(self) -> None:
        while self._watchers:
            watchers = tuple(self._watchers)
            try:
                result = await asyncio.to_thread(self._poll, watchers)
            except StoreUnavailable:
                # The next poll reads the same rows.
                result = _PollResult()
            except Exception as error:
                watchers[0].context.service.report_failure("live log", error)
                result = _PollResult()
            for watcher in result.denied:
                watcher.end("signed-out")
                self.leave(watcher)
            for watcher in self._watchers:
                for delivery, event in result.rows.get(watcher.may.factory.id, ()):
                    if watcher.log_filter.matches(delivery) and delivery.key not in watcher.sent_from_backlog:
                        watcher.enqueue(event)
            await asyncio.sleep(POLL_SECONDS)
        self._logs.clear()

    def _poll(self, watchers: Sequence[Watcher]) -> _PollResult:
        result = _PollResult()
        now = time.monotonic()
        if now >= self._next_check:
            self._next_check = now + CHECK_SECONDS
            result.denied = [watcher for watcher in watchers if not _may_still_watch(watcher)]
        allowed = [watcher for watcher in watchers if watcher not in result.denied]
        if not allowed:
            return result
        newest = allowed[0].context.management.log.newest_key(allowed[0].may)
        if newest != self._newest:
            self._newest = newest
            # A concurrent transaction may commit a row with an older key a moment later.
            self._active_until = now + 1.0
        is_sweep = now >= self._next_sweep
        if is_sweep:
            self._next_sweep = now + SWEEP_SECONDS
        elif now > self._active_until:
            return result
        for watcher in {watcher.may.factory.id: watcher for watcher in allowed}.values():
            result.rows[watcher.may.factory.id] = self._fresh(watcher, LATE_US if is_sweep else RECENT_US)
        return result

    def _fresh(self, watcher: Watcher, back_us: int) -> list[tuple[Delivery, bytes]]:
        log = self._logs[watcher.may.factory.id]
        if log.seen is None:
            return []
        since = _now(watcher) - back_us
        rows = watcher.context.management.log.newest(watcher.may, since=since, limit=POLL_ROWS_MAX)
        fresh = [row for row in reversed(rows) if row.key not in log.seen]
        log.seen.update(row.key for row in fresh)
        if back_us == LATE_US:
            log.seen = {key for key in log.seen if ids.time_of(key) >= since - LATE_US}
        # Rendered once for all watchers.
        return _events(watcher, fresh)

    def _install_signal_handlers(self) -> None:
        """End the streams when the process receives SIGINT or SIGTERM.

        This replaces the interpreter's handlers only. The event loop learns of signals by its wakeup descriptor, so it
        still gets them.
        """
        if self._handles_signals or threading.current_thread() is not threading.main_thread():
            return
        self._handles_signals = True
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            previous = signal.getsignal(number)

            def handle(signum: int, frame: Any, previous: Any = previous) -> None:
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(self.end_all)
                if callable(previous):
                    previous(signum, frame)

            signal.signal(number, handle)
            signal.siginterrupt(number, False)


_hubs: Final[dict[int, Hub]] = {}


def hub_of(management: Management) -> Hub:
    return _hubs.setdefault(id(management), Hub())


def _now(watcher: Watcher) -> int:
    return watcher.context.service.now_us()


def _may_still_watch(watcher: Watcher) -> bool:
    context = watcher.context
    try:
        signed_in = context.management.sessions.by_session_token(
            context.session or "", client=context.client, is_visit=False
        )
        if signed_in is None:
            return False
        context.management.access.permission_to_view(signed_in.caller, watcher.may.factory.name)
    except StoreUnavailable:
        return True
    except HookmillError:
        return False
    return True


def _events(watcher: Watcher, rows: Sequence[Delivery]) -> list[tuple[Delivery, bytes]]:
    accepted = [row.key for row in rows if row.label is Label.ACCEPTED]
    # Runs are committed together with their delivery, so the counts are complete.
    started = watcher.context.management.runs.counts_by_delivery(watcher.may, accepted) if accepted else {}
    return [(row, _event(watcher.context, row, started.get(row.key, 0))) for row in rows]


def _event(context: PageContext, delivery: Delivery, runs: int) -> bytes:
    row = pages.render("parts/delivery-row.html", context, {"delivery": delivery, "runs": runs, "is_new": True})
    lines = "".join(f"data: {line}\n" for line in row.replace("\r", "").split("\n") if line.strip())
    return f"id: {ids.delivery_id(delivery.key)}\nevent: delivery\n{lines}\n".encode()


class Stream(StreamingResponse):
    """New rows, until the client disconnects, loses access, or the service stops."""

    def __init__(self, hub: Hub, watcher: Watcher) -> None:
        super().__init__((), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        self._hub = hub
        self._watcher = watcher

    async def stream_response(self, send: Send) -> None:
        watcher = self._watcher
        self._hub.join(watcher)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._send(send, b"retry: 1000\n\n")
            for row, event in await asyncio.to_thread(self._hub.backlog, watcher):
                watcher.sent_from_backlog.add(row.key)
                await self._send(send, event)
            while True:
                try:
                    async with asyncio.timeout(HEARTBEAT_SECONDS):
                        chunk = await watcher.events.get()
                except TimeoutError:
                    chunk = b": still here\n\n"
                if chunk is None:
                    break
                await self._send(send, chunk)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except (TimeoutError, StoreUnavailable):
            return
        finally:
            self._hub.leave(watcher)

    async def _send(self, send: Send, chunk: bytes) -> None:
        async with asyncio.timeout(SEND_SECONDS):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})


def stream(
    context: PageContext, may: MayView, log_filter: LogFilter, filters: dict[str, Any], after: DeliveryKey | None
) -> Response:
    hub = hub_of(context.management)
    if hub.is_full:
        return PlainTextResponse(
            "Too many live pages are open. Reload this page to see new deliveries.\n", 503, {"Retry-After": "30"}
        )
    return Stream(hub, Watcher(context=context, may=may, log_filter=log_filter, filters=filters, after=after))
