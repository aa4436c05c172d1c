"""Every URL of the service, on one page."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from hookmill.web import errors
from hookmill.web.ingress import PREFIX, IngressDoor, Receive, Scope, Send, is_ambiguous, send_problem

_OK: Final = b"ok\n"


class Routes:
    """The service as one ASGI application.

    /webhooks/w/…   deliveries
    /healthz        the process answers
    /readyz         the process answers, its database does, and its writer is there
    """

    def __init__(self, ingress: IngressDoor, is_ready: Callable[[], bool]) -> None:
        self._ingress = ingress
        self._is_ready = is_ready

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["raw_path"].startswith(PREFIX):
            return self._ingress(scope, receive, send)
        return self._elsewhere(scope, send)

    async def _elsewhere(self, scope: Scope, send: Send) -> None:
        raw_path: bytes = scope["raw_path"]
        if is_ambiguous(scope):
            await send_problem(send, errors.MALFORMED_REQUEST)
        elif raw_path == b"/healthz":
            await _plain(send, 200, _OK)
        elif raw_path == b"/readyz":
            # A database that hangs must not hold the deliveries' loop.
            ready = await asyncio.to_thread(self._is_ready)
            await _plain(send, 200 if ready else 503, _OK if ready else b"not ready\n")
        else:
            await send_problem(send, errors.NOT_FOUND)


async def _plain(send: Send, status: int, body: bytes) -> None:
    length = str(len(body)).encode()
    headers = [(b"content-type", b"text/plain"), (b"content-length", length), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
