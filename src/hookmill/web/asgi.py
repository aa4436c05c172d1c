"""Types and helpers for raw ASGI."""

from collections.abc import Awaitable, Callable, MutableMapping
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
