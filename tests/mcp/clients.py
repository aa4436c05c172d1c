"""The SDK's own client, over both transports."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from hookmill.web.mcp.untrusted import wrapped
from tests.support.service import Service

T = TypeVar("T")
TRANSPORTS: Final = ("http", "stdio")
MODES: Final = ("auto", "legacy")
"""The protocol of 2026 if the server offers it, and the one before it, with a handshake."""
NOTICE: Final = wrapped(b"", 0, "").partition("\n")[0]
_WRAPPED: Final = re.compile(
    re.escape(NOTICE) + r"\n<(untrusted-[0-9a-f]{32})>\n(?P<data>.*)\n</\1>(?P<cut>\n[^\n]+)?", re.DOTALL
)


@asynccontextmanager
async def connected(service: Service, key: str, transport: str = "http", mode: str = "auto") -> AsyncIterator[Client]:
    """A client of the service with this API key."""
    url = f"http://127.0.0.1:{service.port}"
    if transport == "stdio":
        environment = {"HOOKMILL_API_KEY": key, "HOOKMILL_SERVER": url}
        parameters = StdioServerParameters(command=sys.executable, args=["-m", "hookmill", "mcp"], env=environment)
        async with Client(parameters, mode=mode) as client:
            yield client
    else:
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=30) as http_client,
            Client(streamable_http_client(f"{url}/mcp", http_client=http_client), mode=mode) as client,
        ):
            yield client


def with_client(
    service: Service, key: str, act: Callable[[Client], Awaitable[T]], transport: str = "http", mode: str = "auto"
) -> T:
    """The result of `act` with a client."""

    async def run() -> T:
        async with connected(service, key, transport, mode) as client:
            return await act(client)

    return asyncio.run(run())


def text_of(result: Any) -> str:
    """The text of a tool's result."""
    (content,) = result.content
    return str(content.text)


def data_of(text: str) -> tuple[str, str]:
    """The data between the boundary lines, and the text after them. Fails if there is other text."""
    match = _WRAPPED.fullmatch(text)
    assert match is not None, text[:2000]
    assert match[1] not in match["data"]
    return match["data"], match["cut"] or ""
