"""Sends one request to a destination. Evaluates the status of the response, and reads the JSON value in its body."""

import json
import re
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final

from hookmill.domain.alarm_destination import UrlParts
from hookmill.domain.errors import DestinationUnavailable
from hookmill.outbound import http
from hookmill.outbound.answer_text import quoted_answer, secret_parts
from hookmill.outbound.connection import MessageDeadline
from hookmill.store.results import NotSent, Sent

RESPONSE_BYTES_MAX: Final = 1_048_576
"""The longest comment or check run is smaller. A JSON value of this size can take 50 times as much memory."""
RETRY_AFTER_SECONDS_MAX: Final = 3_600
PAGE_CHARACTERS_MAX: Final = 500
_OK: Final = range(200, 300)
_REDIRECTS: Final = range(300, 400)
_TEMPORARY: Final = frozenset({401, 403, 408, 409, 423, 425, 429})
"""Statuses from 400 to 499 after which another attempt may succeed. After 401 and 403, the operator may correct the
token; the others say that the problem may end by itself."""
_HEALS: Final = re.compile(
    r"no commit found|(commit|object|reference|sha) does not exist|submitted too quickly|try again", re.IGNORECASE
)
"""What GitHub and Gitea say with another status if the problem may end by itself. For some seconds after a push, parts
of GitHub don't know the commit."""
_LIMITED: Final = re.compile("rate limit|abuse", re.IGNORECASE)
LIMITED_SECONDS: Final = 60
"""How long GitHub wants to be left alone after it has refused too many requests, unless it names another time."""

Reply = tuple[Sent | NotSent, Any]
"""The outcome of a request, and the JSON value of the response's body if there is one."""


class DestinationApi:
    """Sends requests. The operator has chosen their hosts, which may have any address. Threads may share it."""

    def __init__(self, *, tls: Callable[[], ssl.SSLContext], now_us: Callable[[], int]) -> None:
        """`now_us`: the time in µs since 1970."""
        self._tls = tls
        self._now_us = now_us

    def request(
        self,
        method: str,
        url: UrlParts,
        body: bytes | None,
        headers: Mapping[str, str],
        deadline: MessageDeadline,
        *,
        as_text: bool = False,
    ) -> Reply:
        """Send the request. Raises `DestinationUnavailable` if there is no response.

        `as_text`: the answer is the text of the response, up to `RESPONSE_BYTES_MAX`, and no JSON value. The exception
        is a `NoDestinationResponse` if the request may have changed something.
        """
        try:
            response = http.request(
                method,
                url,
                body,
                {"Content-Type": "application/json", **headers} if body is not None else headers,
                deadline,
                tls=self._tls,
                response_bytes_max=RESPONSE_BYTES_MAX,
            )
        except http.NoDestinationResponse as error:
            if method == "GET":
                raise DestinationUnavailable(str(error)) from None
            raise
        if response.status in _OK:
            answer = response.body.decode("utf-8", "replace") if as_text else _json(response.body)
            return Sent(status=response.status), answer
        note = ", which is a redirect and is not followed" if response.status in _REDIRECTS else ""
        words = quoted_answer(response.body, secret_parts(url, headers)) or ""
        is_final = 300 <= response.status < 500 and response.status not in _TEMPORARY and not _HEALS.search(words)
        failure = NotSent(
            problem=f"{url.origin} answered with the status {response.status}{note}{words and f': {words}'}.",
            status=response.status,
            is_final=is_final,
            # A gateway may give up a request that the destination performs nevertheless.
            may_have_arrived=method != "GET" and (response.status >= 500 or response.status == 408),
            retry_after_seconds=_retry_after(response.headers, self._now_us() // 1_000_000)
            or (LIMITED_SECONDS if _LIMITED.search(words) else 0),
        )
        return failure, None

    def connect(self, url: UrlParts, deadline: MessageDeadline) -> None:
        """Connect, and send no request. Raises `DestinationUnavailable`."""
        http.check(url, deadline, tls=self._tls)


def page_of(answer: Any) -> str | None:
    """The page of what a request has created, if the response names one."""
    url = answer.get("html_url") if isinstance(answer, dict) else None
    if not isinstance(url, str) or not url.startswith(("https://", "http://")) or len(url) > PAGE_CHARACTERS_MAX:
        return None
    return url if url.isascii() and url.isprintable() else None


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _retry_after(headers: Mapping[str, str], now_seconds: int) -> int:
    if (seconds := _number(headers.get("retry-after", ""))) is not None:
        return min(seconds, RETRY_AFTER_SECONDS_MAX)
    # GitHub names the time at which its hourly limit ends instead.
    reset = _number(headers.get("x-ratelimit-reset", "")) if headers.get("x-ratelimit-remaining") == "0" else None
    return min(max(reset - now_seconds, 0), RETRY_AFTER_SECONDS_MAX) if reset is not None else 0


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None
