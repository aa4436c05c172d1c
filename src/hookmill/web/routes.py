"""The router: every URL of the service."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from hookmill.domain.errors import ReportFailure
from hookmill.web import errors
from hookmill.web.asgi import Receive, Scope, Send, send_error
from hookmill.web.framing import is_ambiguous
from hookmill.web.hosts import OwnHosts
from hookmill.web.ingress import PREFIX, IngressEndpoint

API_PREFIX: Final = b"/api/"
MCP_PATH: Final = b"/mcp"
DASHBOARD_SEGMENTS: Final = frozenset(
    {b"f", b"team", b"account", b"settings", b"sign-in", b"sign-out", b"welcome", b"static"}
)
"""The first path segments of the dashboard's pages. Unknown paths get 404 without loading the dashboard."""
MANAGEMENT_REQUESTS_MAX: Final = 1_024
"""The maximum of requests in progress to the API and the dashboard together: half of them for requests with a
credential header."""
SLOT_SECONDS: Final = 0.5
"""How long a request to the API or the dashboard waits for a slot, if none is free."""
_CREDENTIAL_HEADERS: Final = frozenset({b"cookie", b"authorization"})
_OK: Final = b"ok\n"
_WORKER_NOTE: Final = b": the worker can't start, so runs wait"

Application = Callable[[Scope, Receive, Send], Awaitable[None]]

REPORT_SECONDS: Final = 10.0
"""The minimum time between two log entries about an application whose build fails."""


class Routes:
    """The service as one ASGI application.

    /webhooks/w/…   deliveries
    /api/…          management for programs
    /mcp            management for coding agents
    /, /f/…, …      management for people
    /healthz        the process answers
    /readyz         the process answers, the database accepts writes, the writer process has started, and the worker
                    has not failed to start for the first time; on PostgreSQL, the disk also has room for deliveries
    """

    def __init__(
        self,
        ingress: IngressEndpoint,
        is_ready: Callable[[], bool],
        build_api: Callable[[], Application] | None = None,
        build_dashboard: Callable[[], Application] | None = None,
        build_mcp: Callable[[Application], Application] | None = None,
        *,
        public_url: str,
        management_requests_max: int = MANAGEMENT_REQUESTS_MAX,
        report_failure: ReportFailure = lambda _where, _error: None,
        worker_starts: Callable[[], bool] = lambda: True,
    ) -> None:
        """`build_api` and the others are called in a thread, at the first request to the application.

        The argument of `build_mcp` is the API.

        `report_failure` is called if building an application fails. The API and the dashboard accept the host of
        `public_url` (the setting `base_url` or its default), IP addresses, and names without a dot; see `hosts`.
        `management_requests_max` limits the requests in progress to both together, including live pages. The other
        connections remain free for deliveries. `/readyz` says so if `worker_starts` returns False.
        """
        self._ingress = ingress
        self._worker_starts = worker_starts
        self._is_ready = is_ready
        self._own_hosts = OwnHosts(public_url)
        self._readiness_check: asyncio.Future[bool] | None = None
        # Requests without a credential header have slots of their own, so they can't take the slots of members and API
        # keys. Requests with forged credentials still can, until the application refuses them.
        self._limiter_with_credentials = _RequestLimiter(management_requests_max // 2)
        self._limiter_without_credentials = _RequestLimiter(management_requests_max // 2)
        self._api = _LazyApplication("api", build_api, report_failure) if build_api is not None else None
        self._dashboard = (
            _LazyApplication("dashboard", build_dashboard, report_failure) if build_dashboard is not None else None
        )
        self._mcp = (
            _LazyApplication("mcp", partial(build_mcp, self._api), report_failure)
            if build_mcp is not None and self._api is not None
            else None
        )

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["raw_path"].startswith(PREFIX):
            return self._ingress(scope, receive, send)
        return self._serve_non_delivery(scope, receive, send)

    async def _serve_non_delivery(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw_path: bytes = scope["raw_path"]
        if is_ambiguous(scope):
            await send_error(send, errors.MALFORMED_REQUEST)
        elif raw_path == b"/healthz":
            await _send_text(send, 200, _OK)
        elif raw_path == b"/readyz":
            is_ready = await self._check_readiness()
            note = b"" if self._worker_starts() else _WORKER_NOTE
            await _send_text(send, 200 if is_ready else 503, (b"ok" if is_ready else b"not ready") + note + b"\n")
        elif (application := self._application_at(raw_path)) is None:
            await send_error(send, errors.NOT_FOUND)
        elif not self._own_hosts.includes(scope["headers"]):
            await send_error(send, errors.MISDIRECTED)
        else:
            await self._run_with_limit(application, scope, receive, send)

    def _application_at(self, raw_path: bytes) -> Application | None:
        """The API, the dashboard or MCP; None if the path belongs to none, or if the process does not serve it."""
        if raw_path.startswith(API_PREFIX):
            return self._api
        path = raw_path.partition(b"?")[0]
        if path == MCP_PATH:
            return self._mcp
        return self._dashboard if _is_dashboard_path(path) else None

    async def _check_readiness(self) -> bool:
        """Whether the service is ready.

        Requests that arrive during a check share its result, so a database that hangs blocks only one thread.
        """
        if self._readiness_check is None:
            self._readiness_check = asyncio.ensure_future(asyncio.to_thread(self._is_ready))
            self._readiness_check.add_done_callback(self._forget_readiness_check)
        return await asyncio.shield(self._readiness_check)

    def _forget_readiness_check(self, _: asyncio.Future[bool]) -> None:
        self._readiness_check = None

    async def _run_with_limit(self, application: Application, scope: Scope, receive: Receive, send: Send) -> None:
        # The credentials are verified later, by the application.
        has_credentials = any(name in _CREDENTIAL_HEADERS for name, _ in scope["headers"])
        limiter = self._limiter_with_credentials if has_credentials else self._limiter_without_credentials
        if not await limiter.acquire():
            await send_error(send, errors.BUSY)
            return
        try:
            await application(scope, receive, send)
        finally:
            limiter.release()


class _RequestLimiter:
    """Limits the requests in progress.

    While `requests_max` are in progress, a quarter of that number may wait for a slot. Their number is limited, because
    waiting requests hold connections.
    """

    def __init__(self, requests_max: int) -> None:
        self._slots = asyncio.Semaphore(requests_max)
        self._waiting_count = 0
        self._waiting_max = requests_max // 4

    async def acquire(self) -> bool:
        """Get a slot. False if no slot becomes free within `SLOT_SECONDS`, or if too many requests wait already."""
        if self._slots.locked() and self._waiting_count >= self._waiting_max:
            return False
        self._waiting_count += 1
        try:
            async with asyncio.timeout(SLOT_SECONDS):
                return await self._slots.acquire()
        except TimeoutError:
            return False
        finally:
            self._waiting_count -= 1

    def release(self) -> None:
        self._slots.release()


def _is_dashboard_path(path: bytes) -> bool:
    return path == b"/" or path[1:].partition(b"/")[0] in DASHBOARD_SEGMENTS


class _LazyApplication:
    """An application that is built at its first request: a build takes long, and many services never need it.

    If the build fails, the request gets 503, and the next request starts another build.
    """

    def __init__(self, name: str, build: Callable[[], Application], report_failure: ReportFailure) -> None:
        self._name = name
        self._build = build
        self._report_failure = report_failure
        self._reported_at = -math.inf
        self._application: Application | None = None
        self._build_task: asyncio.Task[Application] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._application is None:
            # Requests that arrive during the build wait for the same task. If it fails, all of them get 503.
            build_task = self._build_task = self._build_task or asyncio.create_task(asyncio.to_thread(self._build))
            try:
                self._application = await asyncio.shield(build_task)
            except Exception as error:
                # Of the requests that waited, only the first one resets the task and reports the error.
                if self._build_task is build_task:
                    self._build_task = None
                    self._report(error)
                await send_error(send, errors.APPLICATION_UNAVAILABLE)
                return
        await self._application(scope, receive, send)

    def _report(self, error: Exception) -> None:
        """Log an error, but not for each request: anyone can send requests that fail."""
        now = time.monotonic()
        if now - self._reported_at >= REPORT_SECONDS:
            self._reported_at = now
            self._report_failure(self._name, error)


async def _send_text(send: Send, status: int, body: bytes) -> None:
    length = str(len(body)).encode()
    headers = [(b"content-type", b"text/plain"), (b"content-length", length), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
