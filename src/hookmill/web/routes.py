"""Every URL of the service, on one page."""

from collections.abc import Callable
from typing import Final

from hookmill.web import errors
from hookmill.web.ingress import PREFIX, IngressDoor, Receive, Scope, Send

_OK: Final = b"ok\n"


class Routes:
    """The service as one ASGI application.

    /webhooks/w/…   deliveries
    /healthz        the process answers
    /readyz         the process answers and its database does
    """

    def __init__(self, ingress: IngressDoor, is_ready: Callable[[], bool]) -> None:
        self._ingress = ingress
        self._is_ready = is_ready

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw_path: bytes = scope["raw_path"]
        if raw_path.startswith(PREFIX):
            await self._ingress(scope, receive, send)
        elif raw_path == b"/healthz":
            await _plain(send, 200, _OK)
        elif raw_path == b"/readyz":
            ready = self._is_ready()
            await _plain(send, 200 if ready else 503, _OK if ready else b"not ready\n")
        else:
            await send({"type": "http.response.start", "status": 404, "headers": list(errors.NOT_FOUND.headers)})
            await send({"type": "http.response.body", "body": errors.NOT_FOUND.body})


async def _plain(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
