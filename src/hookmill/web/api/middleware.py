"""The middleware around the API: the context of each request, and the headers of each response."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import anyio.to_thread

from hookmill.domain.errors import ReportFailure
from hookmill.domain.networks import Network
from hookmill.web.api import access, problems
from hookmill.web.asgi import Message, Receive, Scope, Send
from hookmill.web.routes import Application

THREADS: Final = 8
"""The maximum of concurrent operations that are not expensive. More threads would only wait for the database."""
_CLOSE_HEADERS: Final = ((b"connection", b"close"),)
"""For responses to requests that were not authenticated, including those to public documents: a client without a key
must not be able to occupy a connection for long."""
_COMMON_HEADERS: Final = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


class ApiMiddleware:
    """Wraps the API's application: adds the request's state and context, and the common headers of responses."""

    def __init__(
        self,
        inner: Application,
        *,
        state: Mapping[str, Any],
        trusted_proxies: Sequence[Network],
        report_failure: ReportFailure,
    ) -> None:
        """`state`: the attributes of `request.state` in every request."""
        self._inner = inner
        self._state = state
        self._trusted_proxies = trusted_proxies
        self._report_failure = report_failure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        inner_scope = {**scope, "state": dict(self._state)}
        # The path stays percent-encoded; the route decodes each segment separately.
        inner_scope["path"] = scope["raw_path"].partition(b"?")[0].decode("latin-1")
        inner_scope["root_path"] = ""
        is_head = scope["method"] == "HEAD"
        if is_head:
            inner_scope["method"] = "GET"
        context = access.add_context(inner_scope, self._trusted_proxies)
        response_has_started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal response_has_started
            if message["type"] == "http.response.start":
                response_has_started = True
                rate_limit_headers = context.rate_limit.headers() if context.rate_limit is not None else {}
                close_headers = _CLOSE_HEADERS if context.caller is None else ()
                headers = [
                    *message.get("headers", ()),
                    *_COMMON_HEADERS,
                    *close_headers,
                    *((name.lower().encode(), value.encode()) for name, value in rate_limit_headers.items()),
                ]
                message = {**message, "headers": headers}
            elif is_head:
                message = {**message, "body": b""}
            await send(message)

        try:
            await self._inner(inner_scope, receive, send_with_headers)
        except Exception as error:
            self._report_failure("api", error)
            if not response_has_started:
                await problems.error_response(problems.api_error_for(error))(inner_scope, receive, send_with_headers)
