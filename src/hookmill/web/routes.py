"""Every URL of the service, on one page."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Final

from hookmill.web import errors
from hookmill.web.asgi import Receive, Scope, Send, send_problem
from hookmill.web.framing import is_ambiguous
from hookmill.web.hosts import OwnHosts
from hookmill.web.ingress import PREFIX, IngressEndpoint

API_PREFIX: Final = b"/api/"
DASHBOARD: Final = frozenset({b"f", b"team", b"account", b"settings", b"sign-in", b"sign-out", b"welcome", b"static"})
"""What the dashboard's addresses begin with. All others are nobody's, and load nothing."""
MANAGEMENT_REQUESTS_MAX: Final = 1_024
PLACE_SECONDS: Final = 0.5
"""How long a request waits for others to end when so many are under way."""
_IDENTIFYING_HEADERS: Final = frozenset({b"cookie", b"authorization"})
_OK: Final = b"ok\n"

Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Failed = Callable[[str, BaseException], None]

REPORT_SECONDS: Final = 10.0
"""How often the log says that an application can't be made."""


class Routes:
    """The service as one ASGI application.

    /webhooks/w/…   deliveries
    /api/…          management for programs
    /, /f/…, …      management for people
    /healthz        the process answers
    /readyz         the process answers, its database takes writes, and its writer is there
    """

    def __init__(
        self,
        ingress: IngressEndpoint,
        is_ready: Callable[[], bool],
        api: Callable[[], Application] | None = None,
        dashboard: Callable[[], Application] | None = None,
        *,
        public_url: str,
        management_requests_max: int = MANAGEMENT_REQUESTS_MAX,
        failed: Failed = lambda _where, _error: None,
    ) -> None:
        """`api` and `dashboard` make those applications, each in a thread when the first request for it comes. `failed`
        hears why one could not be made. They answer under the host of `public_url`; see `hosts`.

        So many requests for them, live pages too, are under way at a time; the rest of the connections is kept for
        deliveries.
        """
        self._ingress = ingress
        self._is_ready = is_ready
        self._own_hosts = OwnHosts(public_url)
        self._looking: asyncio.Future[bool] | None = None
        self._places = {bears: _Places(management_requests_max // 2) for bears in (True, False)}
        self._api = _MadeWhenAskedFor("api", api, failed) if api is not None else None
        self._dashboard = _MadeWhenAskedFor("dashboard", dashboard, failed) if dashboard is not None else None

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["raw_path"].startswith(PREFIX):
            return self._ingress(scope, receive, send)
        return self._elsewhere(scope, receive, send)

    async def _elsewhere(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw_path: bytes = scope["raw_path"]
        if is_ambiguous(scope):
            await send_problem(send, errors.MALFORMED_REQUEST)
        elif raw_path == b"/healthz":
            await _plain(send, 200, _OK)
        elif raw_path == b"/readyz":
            ready = await self._look_once()
            await _plain(send, 200 if ready else 503, _OK if ready else b"not ready\n")
        elif (application := self._application_at(raw_path)) is None:
            await send_problem(send, errors.NOT_FOUND)
        elif not self._own_hosts.includes(scope["headers"]):
            await send_problem(send, errors.MISDIRECTED)
        else:
            await self._within_bound(application, scope, receive, send)

    def _application_at(self, raw_path: bytes) -> Application | None:
        if raw_path.startswith(API_PREFIX):
            return self._api
        return self._dashboard if _is_of_dashboard(raw_path.partition(b"?")[0]) else None

    async def _look_once(self) -> bool:
        """Whoever asks while somebody looks already gets the same answer: a database that hangs holds one thread."""
        if self._looking is None:
            self._looking = asyncio.ensure_future(asyncio.to_thread(self._is_ready))
            self._looking.add_done_callback(lambda _: setattr(self, "_looking", None))
        return await asyncio.shield(self._looking)

    async def _within_bound(self, application: Application, scope: Scope, receive: Receive, send: Send) -> None:
        # Anybody can bear something, but must: what asks without it keeps nobody out who has a session or a key.
        places = self._places[any(name in _IDENTIFYING_HEADERS for name, _ in scope["headers"])]
        if not await places.take():
            await send_problem(send, errors.BUSY)
            return
        try:
            await application(scope, receive, send)
        finally:
            places.give_back()


class _Places:
    """So many requests at a time. A quarter as many more wait a moment: they hold connections."""

    def __init__(self, places: int) -> None:
        self._free = asyncio.Semaphore(places)
        self._waiting = 0
        self._waiting_max = places // 4

    async def take(self) -> bool:
        """False where too many requests are under way, and stay so."""
        if self._free.locked() and self._waiting >= self._waiting_max:
            return False
        self._waiting += 1
        try:
            async with asyncio.timeout(PLACE_SECONDS):
                return await self._free.acquire()
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1

    def give_back(self) -> None:
        self._free.release()


def _is_of_dashboard(path: bytes) -> bool:
    return path == b"/" or path[1:].partition(b"/")[0] in DASHBOARD


class _MadeWhenAskedFor:
    """An application that takes long to make, and that many a service never needs.

    While it can't be made, each request is answered 503, and the next one tries again.
    """

    def __init__(self, name: str, make: Callable[[], Application], failed: Failed) -> None:
        self._name = name
        self._make = make
        self._failed = failed
        self._reported_at = -math.inf
        self._made: Application | None = None
        self._making: asyncio.Task[Application] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._made is None:
            # Requests that come meanwhile wait for the same attempt, and fail with it.
            making = self._making = self._making or asyncio.create_task(asyncio.to_thread(self._make))
            try:
                self._made = await asyncio.shield(making)
            except Exception as error:
                if self._making is making:
                    self._making = None
                    self._report(error)
                await send_problem(send, errors.NOT_AVAILABLE)
                return
        await self._made(scope, receive, send)

    def _report(self, error: Exception) -> None:
        """Anyone can send requests that fail, so not each of them is a line of the log."""
        now = time.monotonic()
        if now - self._reported_at >= REPORT_SECONDS:
            self._reported_at = now
            self._failed(self._name, error)


async def _plain(send: Send, status: int, body: bytes) -> None:
    length = str(len(body)).encode()
    headers = [(b"content-type", b"text/plain"), (b"content-length", length), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
