"""Every URL of the service, on one page."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from hookmill.web import errors
from hookmill.web.ingress import PREFIX, IngressDoor, Receive, Scope, Send, is_ambiguous, send_problem

API_PREFIX: Final = b"/api/"
DASHBOARD: Final = frozenset({b"f", b"team", b"account", b"settings", b"sign-in", b"sign-out", b"welcome", b"static"})
"""What the dashboard's addresses begin with. All others are nobody's, and load nothing."""
MANAGEMENT_REQUESTS_MAX: Final = 1_024
PLACE_SECONDS: Final = 0.5
"""How long a request waits for others to end when so many are under way."""
_OK: Final = b"ok\n"

Application = Callable[[Scope, Receive, Send], Awaitable[None]]


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
        ingress: IngressDoor,
        is_ready: Callable[[], bool],
        api: Callable[[], Application] | None = None,
        dashboard: Callable[[], Application] | None = None,
        *,
        management_requests_max: int = MANAGEMENT_REQUESTS_MAX,
    ) -> None:
        """`api` and `dashboard` make those applications, each in a thread when the first request for it comes.

        So many requests for them, live pages too, are under way at a time; the rest of the connections is kept for
        deliveries.
        """
        self._ingress = ingress
        self._is_ready = is_ready
        self._looking: asyncio.Future[bool] | None = None
        self._places = asyncio.Semaphore(management_requests_max)
        self._api = _MadeWhenAskedFor(api) if api is not None else None
        self._dashboard = _MadeWhenAskedFor(dashboard) if dashboard is not None else None

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
        elif raw_path.startswith(API_PREFIX) and self._api is not None:
            await self._within_bound(self._api, scope, receive, send)
        elif self._dashboard is not None and _is_of_dashboard(raw_path.partition(b"?")[0]):
            await self._within_bound(self._dashboard, scope, receive, send)
        else:
            await send_problem(send, errors.NOT_FOUND)

    async def _look_once(self) -> bool:
        """Whoever asks while somebody looks already gets the same answer: a database that hangs holds one thread."""
        if self._looking is None:
            self._looking = asyncio.ensure_future(asyncio.to_thread(self._is_ready))
            self._looking.add_done_callback(lambda _: setattr(self, "_looking", None))
        return await asyncio.shield(self._looking)

    async def _within_bound(self, application: Application, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout(PLACE_SECONDS):
                await self._places.acquire()
        except TimeoutError:
            await send_problem(send, errors.BUSY)
            return
        try:
            await application(scope, receive, send)
        finally:
            self._places.release()


def _is_of_dashboard(path: bytes) -> bool:
    return path == b"/" or path[1:].partition(b"/")[0] in DASHBOARD


class _MadeWhenAskedFor:
    """An application that takes long to make, and that many a service never needs."""

    def __init__(self, make: Callable[[], Application]) -> None:
        self._make = make
        self._made: Application | None = None
        self._making = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._made is None:
            async with self._making:
                if self._made is None:
                    self._made = await asyncio.to_thread(self._make)
        await self._made(scope, receive, send)


async def _plain(send: Send, status: int, body: bytes) -> None:
    length = str(len(body)).encode()
    headers = [(b"content-type", b"text/plain"), (b"content-length", length), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
