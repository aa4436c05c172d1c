"""The middleware around the API: what holds for every request and every answer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import anyio.to_thread

from hookmill.domain.client import Network
from hookmill.web.api import access, problems
from hookmill.web.asgi import Message, Receive, Scope, Send
from hookmill.web.routes import Application

THREADS: Final = 8
"""Operations at a time. More would wait for the database all the same, and keep its connections from deliveries."""
_CLOSES: Final = ((b"connection", b"close"),)
"""After an answer to an unauthenticated client, who could ask on and on without reading any."""
_ALWAYS: Final = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


class ApiMiddleware:
    def __init__(
        self,
        inner: Application,
        *,
        behind: Mapping[str, Any],
        trusted_proxies: Sequence[Network],
        failed: Callable[[str, BaseException], None],
    ) -> None:
        """What is `behind` is found in `request.state`."""
        self._inner = inner
        self._behind = behind
        self._trusted_proxies = trusted_proxies
        self._failed = failed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        asked = {**scope, "state": dict(self._behind)}
        # As it was sent: segments are decoded one by one, once it is known which they are.
        asked["path"] = scope["raw_path"].partition(b"?")[0].decode("latin-1")
        asked["root_path"] = ""
        is_head = scope["method"] == "HEAD"
        if is_head:
            asked["method"] = "GET"
        asking = access.begin(asked, self._trusted_proxies)
        has_started = False

        async def send_on(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                spent = asking.spent.headers() if asking.spent is not None else {}
                told = ((name.lower().encode(), value.encode()) for name, value in spent.items())
                closes = _CLOSES if asking.caller is None else ()
                message = {**message, "headers": [*message.get("headers", ()), *_ALWAYS, *closes, *told]}
            elif is_head:
                message = {**message, "body": b""}
            await send(message)

        try:
            await self._inner(asked, receive, send_on)
        except Exception as error:
            self._failed("api", error)
            if not has_started:
                await problems.answer(problems.refusal_for(error))(asked, receive, send_on)
