"""Types and helpers for raw ASGI."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final

from hookmill.web.errors import ErrorResponse

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
CHANNEL: Final = "hookmill.channel"
"""The key of a scope with the `Channel` of a request from another part of this process. Other requests have none."""


async def send_error(send: Send, error_response: ErrorResponse) -> None:
    await send(
        {"type": "http.response.start", "status": error_response.status, "headers": list(error_response.headers)}
    )
    await send({"type": "http.response.body", "body": error_response.body})


def http_scope(method: str, target: str, headers: Iterable[tuple[bytes, bytes]]) -> Scope:
    """The scope of a request that did not come through the HTTP server."""
    path, _, query = target.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode("latin-1"),
        "query_string": query.encode("latin-1"),
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in headers],
        "client": None,
        "server": None,
    }


def body_receiver(body: bytes) -> Receive:
    """Receives one complete body. The client then never disconnects."""
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Message:
        for message in messages:
            return message
        await asyncio.Event().wait()
        raise AssertionError("nothing sets the event")

    return receive
