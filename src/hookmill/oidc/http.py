"""Requests to the provider, whose responses are JSON objects."""

import asyncio
import json
import ssl
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from hookmill.domain.alarm_destination import UrlParts, parsed_url
from hookmill.domain.errors import DestinationUnavailable, ProviderUnavailable
from hookmill.domain.secret import SecretValue
from hookmill.outbound import http
from hookmill.outbound.answer_text import quoted_answer
from hookmill.outbound.connection import MessageDeadline, in_thread

REQUEST_SECONDS: Final = 5.0
"""The time limit for one request, from the look-up of the host's name to the last byte of the response."""
RESPONSE_BYTES_MAX: Final = 262_144


@dataclass(frozen=True, slots=True)
class JsonResponse:
    status: int
    content: Mapping[str, Any]
    words: str
    """What an error says, after a colon; empty if it says nothing."""


class HttpClient:
    """Sends requests to the provider, each in a thread of its own, because sign-ins are rare."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._tls = tls

    async def get(
        self, url: str, *, headers: Mapping[str, str] | None = None, secrets: Collection[str] = (), advice: str = ""
    ) -> Mapping[str, Any]:
        """The content of a response with the status 200. Raises `ProviderUnavailable` for others, with the advice."""
        response = await self._send("GET", url, None, headers or {}, secrets)
        if response.status != 200:
            raise ProviderUnavailable(
                f"{url} answered with the status {response.status}{response.words}. {advice}".rstrip()
            )
        return response.content

    async def post(
        self, url: str, form: Mapping[str, str], *, headers: Mapping[str, str], secrets: Collection[str]
    ) -> JsonResponse:
        form_headers = {"Content-Type": "application/x-www-form-urlencoded", **headers}
        return await self._send("POST", url, urlencode(form).encode(), form_headers, secrets)

    async def _send(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str], secrets: Collection[str]
    ) -> JsonResponse:
        """The response. Raises `ProviderUnavailable`, also for a redirect and a status from 500 on.

        Errors have the URL without its query, and what the response says without the secrets of the request.
        """
        where = url.partition("?")[0]
        try:
            parts = parsed_url(SecretValue(url))
        except ValueError:
            raise ProviderUnavailable(f"{where} is not a usable URL.") from None
        try:
            request = in_thread(lambda: self._request(method, parts, body, headers, where))
            response = await asyncio.wrap_future(request)
        except DestinationUnavailable as error:
            raise ProviderUnavailable(str(error)) from None
        except RuntimeError as error:
            # The system has no thread left.
            raise ProviderUnavailable(f"The request to {where} failed: {error}.") from None
        if 300 <= response.status < 400:
            raise ProviderUnavailable(f"{where} answered with a redirect ({response.status}).")
        is_ok = 200 <= response.status < 300
        words = quoted_answer(response.body, secrets) if not is_ok else None
        said = f": {words}" if words else ""
        if response.status >= 500:
            raise ProviderUnavailable(f"{where} answered with the status {response.status}{said}.")
        if len(response.body) > RESPONSE_BYTES_MAX:
            raise ProviderUnavailable(f"{where} answered with more than {RESPONSE_BYTES_MAX:,} bytes.")
        try:
            content = json.loads(response.body)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise ProviderUnavailable(
                f"{where} answered with the status {response.status}, and with no JSON object{said}."
            )
        return JsonResponse(response.status, content, said)

    def _request(
        self, method: str, url: UrlParts, body: bytes | None, headers: Mapping[str, str], where: str
    ) -> http.DestinationResponse:
        # Without an encoding, a small response can't become a large one.
        all_headers = {"Accept": "application/json", "Accept-Encoding": "identity", **headers}
        return http.request(
            method,
            url,
            body,
            all_headers,
            MessageDeadline(REQUEST_SECONDS),
            tls=lambda: self._tls,
            response_bytes_max=RESPONSE_BYTES_MAX + 1,
            where=where,
        )
