"""`hookmill mcp`: an MCP server on standard input and output, for coding agents on this host."""

from __future__ import annotations

import os
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from hookmill.cli import options
from hookmill.domain.alarm_destination import parsed_url
from hookmill.domain.errors import Invalid
from hookmill.domain.networks import is_loopback
from hookmill.domain.secret import SecretValue
from hookmill.domain.text import shown

if TYPE_CHECKING:
    from hookmill.web.mcp.tools import ApiRequest

ANSWER_SECONDS: Final = 60


def mcp(
    server: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The service. Default: HOOKMILL_SERVER, then http://127.0.0.1:8420."),
    ] = None,
    ca_file: options.CaFile = None,
) -> None:
    """Serve MCP on standard input and output. Set HOOKMILL_API_KEY to an API key of the service."""
    if find_spec("mcp") is None:
        raise Invalid("This needs the library mcp; install hookmill with the extra mcp: hookmill[mcp]")
    key = os.environ.get("HOOKMILL_API_KEY", "").strip()
    if not key:
        raise Invalid("Set HOOKMILL_API_KEY to an API key of the service, such as hmk_….")
    base = server or os.environ.get("HOOKMILL_SERVER", "").strip() or "http://127.0.0.1:8420"
    api = RemoteApi(base, key, Path(ca_file) if ca_file is not None else None)

    import anyio

    from hookmill.web.mcp.server import serve_stdio

    anyio.run(serve_stdio, api)


class RemoteApi:
    """Calls the API of a service over HTTP. It is a `CallApi`."""

    def __init__(self, base: str, key: str, ca_file: Path | None) -> None:
        """Raises `Invalid` if `base` is no URL of a service."""
        from hookmill.app.tls import client_context

        self._base = base.rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}", "User-Agent": "hookmill-mcp"}
        self._tls = cache(partial(client_context, ca_file, "--ca-file"))
        try:
            self._is_on_this_host = is_loopback(parsed_url(SecretValue(self._base)).host)
        except ValueError:
            raise Invalid(
                f"{shown(base[:200])} is not the URL of a service. Use one such as http://127.0.0.1:8420."
            ) from None

    async def __call__(self, request: ApiRequest) -> tuple[int, bytes]:
        import anyio.to_thread

        from hookmill.outbound import http
        from hookmill.outbound.connection import MessageDeadline
        from hookmill.web.mcp.server import RESPONSE_BYTES_MAX

        send = partial(
            http.request,
            request.method,
            parsed_url(SecretValue(self._base + request.target)),
            request.body,
            self._headers | request.headers,
            MessageDeadline(ANSWER_SECONDS),
            tls=self._tls,
            response_bytes_max=RESPONSE_BYTES_MAX,
            # A proxy can't reach a service on this host.
            uses_proxy=not self._is_on_this_host,
        )
        response = await anyio.to_thread.run_sync(send)
        return response.status, response.body
