"""The log as it grows: one look at the database for everybody who watches, and a stream to each of them.

Rows are found by their keys, and a key is as old as its request: a body that took its time comes in below newer rows.
So each look goes back a little, and every other second one goes back as far as a body may take.
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
"""A browser opens six connections to one host: a seventh tab with a stream of its own would shut itself out."""
LOOK_SECONDS: Final = 0.15
SWEEP_SECONDS: Final = 2.0
CHECK_SECONDS: Final = 2.0
"""How soon a stream ends after its session did, or after its member lost the role."""
HEARTBEAT_SECONDS: Final = 15.0
SEND_SECONDS: Final = 5.0
LATELY_US: Final = 3_000_000
LATE_US: Final = 45_000_000
"""How late a row may come: a body may take 30 seconds, and a full database takes its time too."""
LOOK_MAX: Final = 500
WAITING_MAX: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which rows somebody watches for."""

    webhook: WebhookUid | None = None
    label: Label | None = None
    since: int | None = None
    event: str | None = None
    identities: tuple[bytes, ...] | None = None

    def holds(self, delivery: Delivery) -> bool:
        return (
            self.webhook in (None, delivery.webhook_uid)
            and self.label in (None, delivery.label)
            and (self.since is None or delivery.received_at >= self.since)
            and self.event in (None, delivery.event)
            and (self.identities is None or delivery.identity_digest in self.identities)
        )


@dataclass(slots=True, kw_only=True, eq=False)
class Watcher:
    """Somebody who watches a factory's log from one page."""

    context: PageContext
    may: MayView
    wanted: Wanted
    filters: dict[str, Any]
    """The same as `wanted`, as the log's operation takes it."""
    after: DeliveryKey | None
    """The newest row that the page has."""
    events: "asyncio.Queue[bytes | None]" = field(default_factory=lambda: asyncio.Queue(WAITING_MAX))
    """What is to be sent. None: the stream is over."""
    sent: set[DeliveryKey] = field(default_factory=set)

    def tell(self, event: bytes | None) -> None:
        while True:
            try:
                return self.events.put_nowait(event)
            except asyncio.QueueFull:
                # Who can't keep up comes again, and says what they have seen.
                while not self.events.empty():
                    self.events.get_nowait()
                event = None

    def end(self, why: str) -> None:
        """End the stream, and say why: then the browser doesn't come again."""
        self.tell(f"event: end\ndata: {why}\n\n".encode())
        self.tell(None)


@dataclass(slots=True)
class _Room:
    """One factory's log, while somebody watches it."""

    seen: set[DeliveryKey] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(slots=True)
class _Found:
    """What one look found: rows by factory, and who may watch no longer."""

    rows: dict[FactoryId, list[tuple[Delivery, bytes]]] = field(default_factory=dict)
    shut_out: list[Watcher] = field(default_factory=list)


class Hub:
    """Everybody who watches in this process, and the one task that looks for them."""

    def __init__(self) -> None:
        self._watchers: list[Watcher] = []
        self._rooms: defaultdict[FactoryId, _Room] = defaultdict(_Room)
        self._looking: asyncio.Task[None] | None = None
        self._newest: DeliveryKey | None = None
        self._lively_until = self._next_sweep = self._next_check = 0.0
        self._hears_signals = False
        self._is_over = False

    @property
    def is_full(self) -> bool:
        return len(self._watchers) >= STREAMS_MAX

    def join(self, watcher: Watcher) -> None:
        own = [other for other in self._watchers if other.context.session == watcher.context.session]
        for oldest in own[: max(0, len(own) - STREAMS_PER_SESSION + 1)]:
            oldest.end("elsewhere")
            self._watchers.remove(oldest)
        self._watchers.append(watcher)
        self._hear_signals()
        if self._is_over:
            watcher.tell(None)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_while_somebody_watches())

    def leave(self, watcher: Watcher) -> None:
        with suppress(ValueError):
            self._watchers.remove(watcher)

    def end_all(self) -> None:
        """The server waits for every answer before it ends, and these would never be over."""
        self._is_over = True
        for watcher in self._watchers:
            watcher.tell(None)

    def missed(self, watcher: Watcher) -> list[tuple[Delivery, bytes]]:
        """What came since the page was made, or since the stream broke. Takes a thread's time."""
        management = watcher.context.management
        room = self._rooms[watcher.may.factory.id]
        with room.lock:
            if room.seen is None:
                recent = management.log.newest(watcher.may, since=_now(watcher) - LATE_US, limit=LOOK_MAX)
                room.seen = {row.key for row in recent}
        if watcher.after is None:
            return []
        rows = management.log.newest(
            watcher.may,
            **watcher.filters | {"since": max(watcher.wanted.since or 0, ids.time_of(watcher.after) - LATE_US)},
            limit=PAGE,
        )
        return _events(watcher, list(reversed(rows)))

    async def _look_while_somebody_watches(self) -> None:
        while self._watchers:
            watchers = tuple(self._watchers)
            try:
                found = await asyncio.to_thread(self._look, watchers)
            except StoreUnavailable:
                # The next look finds what this one could not.
                found = _Found()
            except Exception as error:
                watchers[0].context.service.failed("live log", error)
                found = _Found()
            for watcher in found.shut_out:
                watcher.end("signed-out")
                self.leave(watcher)
            for watcher in self._watchers:
                for delivery, event in found.rows.get(watcher.may.factory.id, ()):
                    if watcher.wanted.holds(delivery) and delivery.key not in watcher.sent:
                        watcher.tell(event)
            await asyncio.sleep(LOOK_SECONDS)
        self._rooms.clear()

    def _look(self, watchers: Sequence[Watcher]) -> _Found:
        found = _Found()
        now = time.monotonic()
        if now >= self._next_check:
            self._next_check = now + CHECK_SECONDS
            found.shut_out = [watcher for watcher in watchers if not _may_still_watch(watcher)]
        allowed = [watcher for watcher in watchers if watcher not in found.shut_out]
        if not allowed:
            return found
        newest = allowed[0].context.management.log.newest_key(allowed[0].may)
        if newest != self._newest:
            self._newest = newest
            # Whatever was written at the same time may have an older key, and be visible a moment later.
            self._lively_until = now + 1.0
        is_sweep = now >= self._next_sweep
        if is_sweep:
            self._next_sweep = now + SWEEP_SECONDS
        elif now > self._lively_until:
            return found
        for watcher in {watcher.may.factory.id: watcher for watcher in allowed}.values():
            found.rows[watcher.may.factory.id] = self._fresh(watcher, LATE_US if is_sweep else LATELY_US)
        return found

    def _fresh(self, watcher: Watcher, back_us: int) -> list[tuple[Delivery, bytes]]:
        room = self._rooms[watcher.may.factory.id]
        if room.seen is None:
            return []
        since = _now(watcher) - back_us
        rows = watcher.context.management.log.newest(watcher.may, since=since, limit=LOOK_MAX)
        fresh = [row for row in reversed(rows) if row.key not in room.seen]
        room.seen.update(row.key for row in fresh)
        if back_us == LATE_US:
            room.seen = {key for key in room.seen if ids.time_of(key) >= since - LATE_US}
        # Rendered once, for everybody.
        return _events(watcher, fresh)

    def _hear_signals(self) -> None:
        """Have the streams end when the process is told to. The loop's own handlers are left as they are: a loop
        hears of signals by another way than the interpreter does."""
        if self._hears_signals or threading.current_thread() is not threading.main_thread():
            return
        self._hears_signals = True
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            before = signal.getsignal(number)

            def heard(signum: int, frame: Any, before: Any = before) -> None:
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(self.end_all)
                if callable(before):
                    before(signum, frame)

            signal.signal(number, heard)
            signal.siginterrupt(number, False)


_hubs: Final[dict[int, Hub]] = {}


def hub_of(management: Management) -> Hub:
    return _hubs.setdefault(id(management), Hub())


def _now(watcher: Watcher) -> int:
    return watcher.context.service.now_us()


def _may_still_watch(watcher: Watcher) -> bool:
    context = watcher.context
    try:
        signed_in = context.management.sessions.by_token(context.session or "", client=context.client, is_visit=False)
        if signed_in is None:
            return False
        context.management.access.may_view(signed_in.caller, watcher.may.factory.name)
    except StoreUnavailable:
        return True
    except HookmillError:
        return False
    return True


def _events(watcher: Watcher, rows: Sequence[Delivery]) -> list[tuple[Delivery, bytes]]:
    accepted = [row.key for row in rows if row.label is Label.ACCEPTED]
    # Runs are written together with their delivery: whoever sees the row sees all that it started.
    started = watcher.context.management.runs.counts_by_delivery(watcher.may, accepted) if accepted else {}
    return [(row, _event(watcher.context, row, started.get(row.key, 0))) for row in rows]


def _event(context: PageContext, delivery: Delivery, runs: int) -> bytes:
    row = pages.render("parts/delivery-row.html", context, {"delivery": delivery, "runs": runs, "is_new": True})
    lines = "".join(f"data: {line}\n" for line in row.replace("\r", "").split("\n") if line.strip())
    return f"id: {ids.delivery_id(delivery.key)}\nevent: delivery\n{lines}\n".encode()


class Stream(StreamingResponse):
    """Rows as they come, until the reader goes, may not read on, or the service ends."""

    def __init__(self, hub: Hub, watcher: Watcher) -> None:
        super().__init__((), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        self._hub = hub
        self._watcher = watcher

    async def stream_response(self, send: Send) -> None:
        watcher = self._watcher
        self._hub.join(watcher)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._say(send, b"retry: 1000\n\n")
            for row, event in await asyncio.to_thread(self._hub.missed, watcher):
                watcher.sent.add(row.key)
                await self._say(send, event)
            while True:
                try:
                    async with asyncio.timeout(HEARTBEAT_SECONDS):
                        told = await watcher.events.get()
                except TimeoutError:
                    told = b": still here\n\n"
                if told is None:
                    break
                await self._say(send, told)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except (TimeoutError, StoreUnavailable):
            return
        finally:
            self._hub.leave(watcher)

    async def _say(self, send: Send, told: bytes) -> None:
        async with asyncio.timeout(SEND_SECONDS):
            await send({"type": "http.response.body", "body": told, "more_body": True})


def stream(
    context: PageContext, may: MayView, wanted: Wanted, filters: dict[str, Any], after: DeliveryKey | None
) -> Response:
    hub = hub_of(context.management)
    if hub.is_full:
        return PlainTextResponse(
            "Too many live pages are open. Reload this page to see new deliveries.\n", 503, {"Retry-After": "30"}
        )
    return Stream(hub, Watcher(context=context, may=may, wanted=wanted, filters=filters, after=after))
