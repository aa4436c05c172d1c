"""Requests to the provider: with a deadline, without redirects, and with responses of limited size."""

import asyncio
import json
import ssl
import threading
import weakref
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import httpx2

from hookmill.domain.errors import ProviderUnavailable

REQUEST_SECONDS: Final = 5.0
"""The time limit for one request, from the look-up of the host's name to the last byte of the response."""
RESPONSE_BYTES_MAX: Final = 262_144
RESOLVER_THREADS: Final = 4
"""How many hosts' names are looked up at the same time. A look-up can't be cancelled, so it may outlive its request."""
_REASON_CHARACTERS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class JsonResponse:
    status: int
    content: Mapping[str, Any]


class HttpClient:
    """Sends requests to the provider. Each request has a connection of its own, because sign-ins are rare.

    Requests run on an event loop of their own, in a thread that the first one starts and that ends with the client.
    Look-ups of names that hang occupy the threads of this loop, and not those of the caller's loop, on which the rest
    of the service depends.
    """

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._tls = tls
        self._loop: asyncio.AbstractEventLoop | None = None

    async def get(self, url: str, *, headers: Mapping[str, str] | None = None) -> JsonResponse:
        return await self._send("GET", url, headers=headers or {})

    async def post(self, url: str, form: Mapping[str, str], *, headers: Mapping[str, str]) -> JsonResponse:
        return await self._send("POST", url, headers=headers, form=form)

    async def _send(
        self, method: str, url: str, *, headers: Mapping[str, str], form: Mapping[str, str] | None = None
    ) -> JsonResponse:
        if self._loop is None:
            self._loop = _start_loop()
            weakref.finalize(self, self._loop.call_soon_threadsafe, self._loop.stop)
        request = self._send_here(method, url, headers=headers, form=form)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(request, self._loop))

    async def _send_here(
        self, method: str, url: str, *, headers: Mapping[str, str], form: Mapping[str, str] | None
    ) -> JsonResponse:
        """The response, whatever its status. Raises `ProviderUnavailable`.

        Errors have the URL without its query, and never a header or a body.
        """
        where = url.partition("?")[0]
        # Without an encoding, a small response can't become a large one.
        all_headers = {"Accept": "application/json", "Accept-Encoding": "identity", **headers}
        try:
            async with (
                asyncio.timeout(REQUEST_SECONDS),
                httpx2.AsyncClient(verify=self._tls, timeout=REQUEST_SECONDS, follow_redirects=False) as client,
                client.stream(method, url, headers=all_headers, data=form) as response,
            ):
                body = await _read(response, where)
        except (TimeoutError, httpx2.TimeoutException):
            raise ProviderUnavailable(f"{where} did not answer within {REQUEST_SECONDS:g} seconds.") from None
        except httpx2.ConnectError as error:
            reason = str(error)[:_REASON_CHARACTERS_MAX]
            raise ProviderUnavailable(f"Could not connect to {where}: {reason}.") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise ProviderUnavailable(f"The request to {where} failed: {type(error).__name__}.") from None
        if response.is_redirect:
            raise ProviderUnavailable(f"{where} answered with a redirect ({response.status_code}).")
        if response.status_code >= 500:
            raise ProviderUnavailable(f"{where} answered with the status {response.status_code}.")
        try:
            content = json.loads(body)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise ProviderUnavailable(
                f"{where} answered with the status {response.status_code}, and with no JSON object."
            )
        return JsonResponse(response.status_code, content)


def _start_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_default_executor(ThreadPoolExecutor(RESOLVER_THREADS))

    def run() -> None:
        try:
            loop.run_forever()
        finally:
            loop.close()

    threading.Thread(target=run, name="provider", daemon=True).start()
    return loop


async def _read(response: httpx2.Response, where: str) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > RESPONSE_BYTES_MAX:
            raise ProviderUnavailable(f"{where} answered with more than {RESPONSE_BYTES_MAX:,} bytes.")
    return bytes(body)
