"""Requests to the API: paths, JSON, pages, retries and errors."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPException, HTTPResponse
from typing import Any, BinaryIO, Final, NamedTuple, Protocol, TypeVar
from urllib.parse import quote, urlencode

from hookmill import __version__
from hookmill.domain.errors import HookmillError

PREFIX: Final = "/api/v1/"
PAGE_SIZE: Final = 200
RETRY_SECONDS: Final = (0.2, 1.0)
"""The pauses before retries."""
RETRY_AFTER_SECONDS_MAX: Final = 60
"""The rate limit of a key resets within a minute."""
_STATUSES_TO_RETRY: Final = frozenset({429, 502, 503, 504})
T = TypeVar("T")


class ServiceAnswer(NamedTuple):
    """The answer to a request. `headers` are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: BinaryIO | HTTPResponse


class Transport(Protocol):
    """Sends requests to one service."""

    service: str
    """The service, for error texts. It contains no credential."""

    def send(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> ServiceAnswer:
        """Raises `Unreachable`."""

    def close(self) -> None: ...


class Unreachable(HookmillError):
    """The service did not answer. `may_be_done`: whether it may have received the request."""

    def __init__(self, text: str, *, is_temporary: bool = False, may_be_done: bool = False) -> None:
        super().__init__(text)
        self.is_temporary = is_temporary
        self.may_be_done = may_be_done


class ApiProblem(HookmillError):
    """The API refused the request. `code` is the stable code of the error, and `errors` are the invalid values."""

    def __init__(self, text: str, *, status: int, code: str, errors: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(text)
        self.status = status
        self.code = code
        self.errors = errors


class Requests:
    """The methods that the operations use."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @property
    def service(self) -> str:
        """The service, for texts."""
        return self._transport.service

    def close(self) -> None:
        self._transport.close()

    def _call(
        self,
        method: str,
        path: str,
        *segments: str,
        body: Mapping[str, Any] | None = None,
        is_idempotent: bool = False,
    ) -> T:  # type: ignore[type-var]  # the operation says which type the JSON has
        """The JSON of the answer; None if it is empty. `is_idempotent`: the operation accepts an `Idempotency-Key`."""
        headers = {"Idempotency-Key": os.urandom(16).hex()} if is_idempotent else {}
        answer = self._send(method, _target(path, segments), headers, body)
        result: Any = self._json(answer) if answer.status != 204 else None
        return result  # type: ignore[no-any-return]

    def _pages(
        self,
        path: str,
        *segments: str,
        limit: int | None,
        cursor: str | None,
        query: Mapping[str, Any] | None = None,
    ) -> Iterator[Any]:
        """The items of all pages of a list, but at most `limit`. Each page is read when its first item is used."""
        while limit is None or limit > 0:
            page_size = PAGE_SIZE if limit is None else min(limit, PAGE_SIZE)
            parameters = {**(query or {}), "limit": page_size, "cursor": cursor}
            values = {
                name: str(value).lower() if isinstance(value, bool) else value
                for name, value in parameters.items()
                if value is not None
            }
            target = f"{_target(path, segments)}?{urlencode(values)}"
            page = self._json(self._send("GET", target, {}, None))
            yield from page["items"]
            limit = limit - page_size if limit is not None else None
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def _download(self, path: str, *segments: str) -> BinaryIO | HTTPResponse:
        return self._send("GET", _target(path, segments), {}, None).body

    def _json(self, answer: ServiceAnswer) -> Any:
        if _media_type(answer) != "application/json":
            raise _problem(answer, self.service)
        try:
            return json.loads(_read(answer))
        except ValueError:
            raise _not_hookmill(answer, self.service, "broken JSON") from None

    def _send(
        self, method: str, target: str, headers: Mapping[str, str], body: Mapping[str, Any] | None
    ) -> ServiceAnswer:
        """The answer of a successful request. Raises `ApiProblem` and `Unreachable`.

        Requests that the service performs only once, however often they arrive, are sent again.
        """
        content = json.dumps(body).encode() if body is not None else None
        all_headers = {"Accept": "application/json", "User-Agent": f"hookmill/{__version__}", **headers}
        if content is not None:
            all_headers["Content-Type"] = "application/json"
        is_repeatable = method in ("GET", "PUT") or "Idempotency-Key" in headers
        for pause in (*RETRY_SECONDS, None):
            try:
                answer = self._transport.send(method, target, all_headers, content)
            except Unreachable as error:
                if pause is not None and error.is_temporary and (is_repeatable or not error.may_be_done):
                    time.sleep(pause)
                    continue
                if error.may_be_done and method != "GET":
                    raise Unreachable(f"{error} The change may or may not be done: check before you retry.") from None
                raise
            if answer.status < 300:
                return answer
            retry_after = answer.headers.get("retry-after", "")
            wanted_pause = int(retry_after) if retry_after.isdigit() else pause
            problem = _problem(answer, self.service)
            # A request over a rate limit was not performed.
            may_repeat = is_repeatable or answer.status == 429
            if pause is None or answer.status not in _STATUSES_TO_RETRY or not may_repeat:
                raise problem
            assert wanted_pause is not None
            if wanted_pause > RETRY_AFTER_SECONDS_MAX:
                raise problem
            time.sleep(wanted_pause)
        raise AssertionError("the last attempt returns or raises")


def _target(path: str, segments: tuple[str, ...]) -> str:
    return PREFIX + path.format(*(quote(segment, safe="") for segment in segments))


def _read(answer: ServiceAnswer) -> bytes:
    try:
        return answer.body.read()
    except (OSError, HTTPException):
        raise Unreachable("The service's answer broke off. Check the network, and retry.", may_be_done=True) from None


def _media_type(answer: ServiceAnswer) -> str:
    return answer.headers.get("content-type", "").partition(";")[0]


def _problem(answer: ServiceAnswer, service: str) -> HookmillError:
    """The error for an answer other than success."""
    content = _read(answer)
    media_type = _media_type(answer)
    if media_type != "application/problem+json":
        return _not_hookmill(answer, service, media_type or "no content")
    try:
        problem = json.loads(content)
        code, detail, errors = problem["code"], problem["detail"], problem["errors"]
        # Most texts already contain the problem of each field.
        lines = [
            f"  {error.get('pointer', error.get('parameter'))}: {error['detail']}"
            for error in errors
            if error["detail"] not in detail
        ]
    except (ValueError, TypeError, KeyError, AttributeError):
        return _not_hookmill(answer, service, "another kind of error")
    if code == "authentication_failed":
        detail = f"{service} refused the API key: it is unknown, revoked or expired. Use `hookmill login` with another."
    return ApiProblem("\n".join([detail, *lines]), status=answer.status, code=code, errors=errors)


def _not_hookmill(answer: ServiceAnswer, service: str, content: str) -> Unreachable:
    redirection = f" It redirects to {answer.headers['location']}." if "location" in answer.headers else ""
    return Unreachable(
        f"{service} did not answer like Hookmill, but with status {answer.status} and {content}.{redirection} Check "
        "the URL, and the proxy in front of the service."
    )
