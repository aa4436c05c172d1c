"""The live delivery log: one task reads the new rows for all watchers, and each watcher has an event stream.

A row's key contains the time at which its request began, so a slow request adds its row below newer rows. So the task
reads the last seconds again, and now and then as far back as the slowest request may have begun. It remembers which
rows it has sent.
"""

import asyncio
import signal
import threading
import time
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
from hookmill.web.dashboard.page_context import PageContext

PAGE_SIZE: Final = 50
"""Rows on a page of the log."""
STREAMS_MAX: Final = 200
STREAMS_PER_SESSION: Final = 4
"""A browser opens at most six connections to a host, and some must remain for requests."""
POLL_SECONDS: Final = 0.15
READ_SECONDS: Final = 2.0
"""How often rows are read although the newest key is the same, and how soon a stream ends after its session has ended,
or after its member has lost the role."""
HEARTBEAT_SECONDS: Final = 15.0
SEND_SECONDS: Final = 5.0
"""How long sending may block before the stream ends."""
NEW_RANGE_US: Final = 3_000_000
"""How far back rows are read if the newest key has changed."""
RANGE_US: Final = 45_000_000
"""How far back they are read every `READ_SECONDS`: a body may take 30 seconds, and a busy database adds to that."""
ROWS_MAX: Final = 500
QUEUED_EVENTS_MAX: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFilter:
    """Which deliveries a watcher sees."""

    webhook: WebhookUid | None = None
    label: Label | None = None
    since: int | None = None
    """In µs since 1970."""
    event: str | None = None
    identity_digests: tuple[bytes, ...] | None = None
    """The digests that the identity searched for may have."""

    def matches(self, delivery: Delivery) -> bool:
        return (
            self.webhook in (None, delivery.webhook_uid)
            and self.label in (None, delivery.label)
            and (self.since is None or delivery.received_at >= self.since)
            and self.event in (None, delivery.event)
            and (self.identity_digests is None or delivery.identity_digest in self.identity_digests)
        )


@dataclass(slots=True, kw_only=True, eq=False)
class Watcher:
    """One open page that watches a factory's log."""

    context: PageContext
    may: MayView
    log_filter: LogFilter
    filters: dict[str, Any]
    """The same conditions as in `log_filter`, as arguments of `management.log.newest`."""
    newest_key: DeliveryKey | None
    """Where the backlog begins: the key of the page's newest row; of an empty page, a key made from the time of the
    page; after a reconnect, the key of the last received row. None if the request names none: there is no backlog."""
    events: "asyncio.Queue[bytes | None]" = field(default_factory=lambda: asyncio.Queue(QUEUED_EVENTS_MAX))
    """Events to send, each as the bytes of the stream. None ends the stream."""

    def enqueue(self, event: bytes | None) -> None:
        while True:
            try:
                return self.events.put_nowait(event)
            except asyncio.QueueFull:
                # The client is too slow: drop its events and end the stream. The client reconnects, and then gets the
                # dropped rows from the backlog.
                while not self.events.empty():
                    self.events.get_nowait()
                event = None

    def end(self, reason: str) -> None:
        """End the stream with a reason, so that the browser does not reconnect."""
        self.enqueue(f"event: end\ndata: {reason}\n\n".encode())
        self.enqueue(None)


_Rows = list[tuple[Delivery, bytes]]
"""Rows with their events, oldest first."""


class Hub:
    """All watchers of this process, and the task that polls for them."""

    def __init__(self) -> None:
        self._watchers: list[Watcher] = []
        self._sent_keys: dict[FactoryId, set[DeliveryKey]] = {}
        self._poll_task: asyncio.Task[None] | None = None
        self._newest_key: DeliveryKey | None = None
        """The newest key of all factories, at the last poll."""
        self._next_read = 0.0
        """By `time.monotonic()`."""
        self._handles_signals = False
        self._has_ended = False

    @property
    def is_full(self) -> bool:
        return len(self._watchers) >= STREAMS_MAX

    def join(self, watcher: Watcher) -> None:
        """Add a watcher. If its session has too many streams, end the oldest of them."""
        session_watchers = [
            other for other in self._watchers if other.context.session_token == watcher.context.session_token
        ]
        for oldest in session_watchers[: max(0, len(session_watchers) - STREAMS_PER_SESSION + 1)]:
            oldest.end("too-many-streams")
            self._watchers.remove(oldest)
        self._watchers.append(watcher)
        self._install_signal_handlers()
        if self._has_ended:
            watcher.enqueue(None)
        if self._poll_task is None or self._poll_task.done():
            self._poll_task = asyncio.create_task(self._poll_while_watched())

    def leave(self, watcher: Watcher) -> None:
        with suppress(ValueError):
            self._watchers.remove(watcher)

    def end_all(self) -> None:
        """End all streams, because the server waits for every response before it stops."""
        self._has_ended = True
        for watcher in self._watchers:
            watcher.enqueue(None)

    async def _poll_while_watched(self) -> None:
        while self._watchers:
            watchers = tuple(self._watchers)
            rows: dict[FactoryId, _Rows] = {}
            denied: Sequence[Watcher] = ()
            try:
                rows, denied = await asyncio.to_thread(self._poll, watchers)
            except StoreUnavailable:
                # No row is lost: the next poll reads the same rows.
                pass
            except Exception as error:
                watchers[0].context.service.report_failure("live log", error)
            for watcher in denied:
                watcher.end("signed-out")
                self.leave(watcher)
            for watcher in self._watchers:
                for delivery, event in rows.get(watcher.may.factory.id, ()):
                    if watcher.log_filter.matches(delivery):
                        watcher.enqueue(event)
            await asyncio.sleep(POLL_SECONDS)
        self._sent_keys.clear()

    def _poll(self, watchers: Sequence[Watcher]) -> tuple[dict[FactoryId, _Rows], Sequence[Watcher]]:
        """The new rows by factory, and the watchers that lost access. Blocks: call it in a thread."""
        denied: Sequence[Watcher] = ()
        now = time.monotonic()
        if is_due := now >= self._next_read:
            self._next_read = now + READ_SECONDS
            denied = [watcher for watcher in watchers if not _may_still_watch(watcher)]
        allowed = [watcher for watcher in watchers if watcher not in denied]
        if not allowed:
            return {}, denied
        # Of all factories, whichever watcher's permission is used.
        newest_key = allowed[0].context.management.log.newest_key(allowed[0].may)
        if newest_key == self._newest_key and not is_due:
            return {}, denied
        self._newest_key = newest_key
        by_factory = {watcher.may.factory.id: watcher for watcher in allowed}
        return {factory: self._new_rows(watcher, is_due) for factory, watcher in by_factory.items()}, denied

    def _new_rows(self, watcher: Watcher, is_due: bool) -> _Rows:
        """The rows of the factory that were not sent before. The script of a page skips those that the page has."""
        now = watcher.context.service.now_us()
        sent_keys = self._sent_keys.get(watcher.may.factory.id)
        range_us = RANGE_US if is_due or sent_keys is None else NEW_RANGE_US
        rows = watcher.context.management.log.newest(watcher.may, since=now - range_us, limit=ROWS_MAX)
        if sent_keys is None:
            # The page, or the backlog of a watcher, has the rows before these.
            sent_keys = {row.key for row in rows[PAGE_SIZE:]}
        new_rows = [row for row in reversed(rows) if row.key not in sent_keys]
        # Twice the range, so that no key is dropped while its row can still be read.
        kept_keys = {key for key in sent_keys if ids.time_of(key) >= now - 2 * RANGE_US}
        self._sent_keys[watcher.may.factory.id] = kept_keys | {row.key for row in new_rows}
        # The rows are rendered once for all watchers of the factory, with the context of one of them.
        return _events(watcher, new_rows)

    def _install_signal_handlers(self) -> None:
        """End the streams when the process receives SIGINT or SIGTERM.

        `signal.signal` replaces only the interpreter's handlers. The event loop gets signals by a file descriptor
        (`signal.set_wakeup_fd`), so its own handlers still run.
        """
        if self._handles_signals or threading.current_thread() is not threading.main_thread():
            return
        self._handles_signals = True
        loop = asyncio.get_running_loop()
        for signal_number in (signal.SIGINT, signal.SIGTERM):
            previous_handler = signal.getsignal(signal_number)

            def handle(signum: int, frame: Any, previous_handler: Any = previous_handler) -> None:
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(self.end_all)
                if callable(previous_handler):
                    previous_handler(signum, frame)

            signal.signal(signal_number, handle)
            signal.siginterrupt(signal_number, False)


_hubs_by_management_id: Final[dict[int, Hub]] = {}


def hub_of(management: Management) -> Hub:
    return _hubs_by_management_id.setdefault(id(management), Hub())


def _may_still_watch(watcher: Watcher) -> bool:
    context = watcher.context
    try:
        signed_in = context.management.sessions.by_session_token(
            context.session_token or "", client=context.client, is_visit=False
        )
        if signed_in is None:
            return False
        context.management.access.permission_to_view(signed_in.caller, watcher.may.factory.name)
    except StoreUnavailable:
        return True
    except HookmillError:
        return False
    return True


def _backlog(watcher: Watcher) -> _Rows:
    """The newest rows that the page may lack when its stream begins. Blocks: call it in a thread.

    They begin `RANGE_US` before the page's newest row, because a slow request adds its row late.
    """
    if watcher.newest_key is None:
        return []
    since = max(watcher.log_filter.since or 0, ids.time_of(watcher.newest_key) - RANGE_US)
    rows = watcher.context.management.log.newest(watcher.may, **watcher.filters | {"since": since}, limit=PAGE_SIZE)
    return _events(watcher, list(reversed(rows)))


def _events(watcher: Watcher, rows: Sequence[Delivery]) -> _Rows:
    """The rows, each with its server-sent event."""
    accepted_keys = [row.key for row in rows if row.label is Label.ACCEPTED]
    # Runs are committed together with their delivery, so the counts are complete.
    run_counts = watcher.context.management.runs.counts_by_delivery(watcher.may, accepted_keys) if accepted_keys else {}
    return [(row, _event(watcher.context, row, run_counts.get(row.key, 0))) for row in rows]


def _event(context: PageContext, delivery: Delivery, run_count: int) -> bytes:
    row = context.render("parts/delivery-row.html", delivery=delivery, run_count=run_count, is_new=True)
    lines = "".join(f"data: {line}\n" for line in row.replace("\r", "").split("\n") if line.strip())
    return f"id: {ids.delivery_id(delivery.key)}\nevent: delivery\n{lines}\n".encode()


class Stream(StreamingResponse):
    """A response with new rows. It ends if the client disconnects, is too slow, loses access or opens too many streams,
    or if the service stops.
    """

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
            for _, row_event in await asyncio.to_thread(_backlog, watcher):
                await self._send(send, row_event)
            while True:
                event: bytes | None
                try:
                    async with asyncio.timeout(HEARTBEAT_SECONDS):
                        event = await watcher.events.get()
                except TimeoutError:
                    event = b": still here\n\n"
                if event is None:
                    break
                await self._send(send, event)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except (TimeoutError, StoreUnavailable):
            return
        finally:
            self._hub.leave(watcher)

    async def _send(self, send: Send, chunk: bytes) -> None:
        async with asyncio.timeout(SEND_SECONDS):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})


def stream(
    context: PageContext, may: MayView, log_filter: LogFilter, filters: dict[str, Any], newest_key: DeliveryKey | None
) -> Response:
    """The stream of an open page, or 503 if too many pages are open. `newest_key`: see `Watcher`."""
    hub = hub_of(context.management)
    if hub.is_full:
        return PlainTextResponse(
            "Too many live pages are open. Reload this page to see new deliveries.\n", 503, {"Retry-After": "30"}
        )
    return Stream(hub, Watcher(context=context, may=may, log_filter=log_filter, filters=filters, newest_key=newest_key))
