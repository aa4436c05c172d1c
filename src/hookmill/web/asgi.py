"""ASGI as this service uses it, without a framework."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from hookmill.web.errors import Problem

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


async def send_problem(send: Send, problem: Problem) -> None:
    await send({"type": "http.response.start", "status": problem.status, "headers": list(problem.headers)})
    await send({"type": "http.response.body", "body": problem.body})
