"""/mcp: MCP over Streamable HTTP. Each request is separate: there are no sessions and no streams of events."""

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import anyio
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings

from hookmill.domain.alarm_destination import parsed_url
from hookmill.domain.client import FORWARDED_FOR
from hookmill.domain.errors import ReportFailure
from hookmill.domain.permission import Channel
from hookmill.domain.secret import SecretValue
from hookmill.web import errors
from hookmill.web.asgi import CHANNEL, Message, Receive, Scope, Send, send_error
from hookmill.web.body import BodyCutShort, BodyReader, BodyTooLarge, BodyTooSlow
from hookmill.web.delivery_body import BODY_SECONDS
from hookmill.web.mcp.server import RESPONSE_BYTES_MAX, ApiTools
from hookmill.web.mcp.tools import API_PREFIX, ApiRequest
from hookmill.web.routes import Application

BYTES_MAX: Final = 1_048_576
"""The maximum size of a request."""
BODIES_AT_A_TIME: Final = 32
"""The maximum of request bodies that one process reads concurrently."""
_LOOPBACK_HOSTS: Final = dict.fromkeys(("localhost", "127.0.0.1", "[::1]"), "http")
_FORWARDED_HEADERS: Final = frozenset({b"authorization", FORWARDED_FOR})
"""The headers of a request that its requests to the API have, too."""
_BODY_ERRORS: Final[Mapping[type, errors.ErrorResponse]] = {
    BodyTooLarge: errors.error_response(
        413, "body_too_large", f"A request has at most {BYTES_MAX:,} bytes.", closes_connection=True
    ),
    BodyTooSlow: errors.BODY_TOO_SLOW,
    BodyCutShort: errors.BODY_CUT_SHORT,
}
_METHOD_NOT_ALLOWED: Final = errors.error_response(
    405, "method_not_allowed", "MCP requests are sent with POST.", (b"allow", b"POST")
)


class McpEndpoint:
    """The ASGI application at /mcp. `api` is the API in the same process."""

    def __init__(self, api: Application, *, public_url: str, report_failure: ReportFailure) -> None:
        self._api = api
        self._server = ApiTools(lambda context: partial(self._call_api, context.request.scope)).server()
        self._body_reader = BodyReader(BODIES_AT_A_TIME)
        public = parsed_url(SecretValue(public_url))
        # A page at the public URL, or of a program on this host, may send requests, from any port.
        names = {f"[{public.host}]" if ":" in public.host else public.host: public.scheme, **_LOOPBACK_HOSTS}
        hosts = {f"{name}{port}": scheme for name, scheme in names.items() for port in ("", ":*")}
        self._security = TransportSecuritySettings(
            allowed_hosts=list(hosts), allowed_origins=[f"{scheme}://{host}" for host, scheme in hosts.items()]
        )
        logger = logging.getLogger("mcp")
        # The library's messages may quote headers and arguments.
        logger.propagate = False
        logger.handlers = [_FailureHandler(report_failure)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The API refuses an invalid key, and counts it.
        key_check = await self._exchange(scope, ApiRequest("GET", f"{API_PREFIX}me"))
        if key_check[0]["status"] != 200:
            for message in key_check:
                await send(message)
        elif scope["method"] != "POST":
            await send_error(send, _METHOD_NOT_ALLOWED)
        else:
            try:
                body = await self._body_reader.read(scope, receive, bytes_max=BYTES_MAX, seconds=BODY_SECONDS)
            except (BodyTooLarge, BodyTooSlow, BodyCutShort) as error:
                await send_error(send, _BODY_ERRORS[type(error)])
                return
            # The library's manager is meant for a whole application. One for each request leaves no task behind.
            manager = StreamableHTTPSessionManager(
                self._server,
                json_response=True,
                stateless=True,
                security_settings=self._security,
                max_request_body_size=BYTES_MAX,
            )
            async with manager.run():
                await manager.handle_request(scope, _receive_once(body), send)

    async def _call_api(self, scope: Scope, request: ApiRequest) -> tuple[int, bytes]:
        start, *parts = await self._exchange(scope, request)
        return start["status"], b"".join(part.get("body", b"") for part in parts)[:RESPONSE_BYTES_MAX]

    async def _exchange(self, scope: Scope, request: ApiRequest) -> list[Message]:
        """The API's response to a request of the caller of `scope`. It ends early after `RESPONSE_BYTES_MAX`."""
        path, _, query = request.target.partition("?")
        body = request.body or b""
        headers = {**request.headers, "Content-Length": str(len(body))}
        api_scope = {
            **scope,
            "method": request.method,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [header for header in scope["headers"] if header[0] in _FORWARDED_HEADERS]
            + [(name.lower().encode(), value.encode("utf-8", "replace")) for name, value in headers.items()],
            CHANNEL: Channel.MCP,
        }
        messages: list[Message] = []

        async def record(message: Message) -> None:
            messages.append(message)
            if sum(len(part.get("body", b"")) for part in messages) >= RESPONSE_BYTES_MAX:
                response.cancel()

        with anyio.CancelScope() as response:
            await self._api(api_scope, _receive_once(body), record)
        return messages


class _FailureHandler(logging.Handler):
    """Reports the library's errors, without their texts."""

    def __init__(self, report_failure: ReportFailure) -> None:
        super().__init__(logging.ERROR)
        self._report_failure = report_failure

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info is not None else None
        self._report_failure("mcp", error or RuntimeError("the library mcp logged an error"))


def _receive_once(body: bytes) -> Receive:
    """Receives a complete body, and afterwards nothing."""
    bodies: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if not bodies:
            await anyio.sleep_forever()
        message: Message = bodies.pop()
        return message

    return receive
