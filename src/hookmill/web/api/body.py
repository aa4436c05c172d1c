"""A request's body: JSON, said to be JSON, whole, and no larger than anything that is asked for here."""

import asyncio
import json
from email.message import Message
from typing import Any, Final

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from hookmill.domain import payload
from hookmill.web.api.problems import Refusal
from hookmill.web.ingress import BODY_SECONDS

BYTES_MAX: Final = 1_048_576
_CLOSES: Final = {"Connection": "close"}


class ReadRequest(Request):
    """A request whose body has been read and judged."""

    def __init__(self, request: Request, body: bytes, value: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._body = body
        self._json = value


async def read(request: Request, *, required: bool) -> ReadRequest:
    """Raises `Refusal` for what is no JSON. A body that need not be there may be missing."""
    body = await _in_time(request)
    if not body and not required:
        return ReadRequest(request, b"", None)
    _refuse_other_types(request)
    # Reading a large body takes milliseconds, in which the loop would serve no delivery.
    return ReadRequest(request, body, await run_in_threadpool(json_value, body))


def json_value(body: bytes) -> Any:
    """What the body says. Raises `Refusal`."""
    judged = payload.parse(body)
    if isinstance(judged, payload.NotJson):
        raise Refusal("malformed_json", f"The body can't be read: {judged.reason}.")
    try:
        return json.loads(body, object_pairs_hook=_once_each)
    except _Twice:
        raise Refusal("malformed_json", "The body can't be read: an object in it names a key twice.") from None
    except (RecursionError, ValueError):
        told = "The body can't be read: it is nested too deep, or holds a number of too many digits."
        raise Refusal("malformed_json", told) from None


async def _in_time(request: Request) -> bytes:
    declared = request.headers.get("content-length", "0")
    # A length of many digits is too large without being read.
    if declared.isdigit() and (len(declared) > 9 or int(declared) > BYTES_MAX):
        raise _too_large()
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > BYTES_MAX:
                    raise _too_large()
                parts.append(part)
    except TimeoutError:
        raise Refusal("body_too_slow", f"Send it within {BODY_SECONDS:.0f} seconds.", headers=_CLOSES) from None
    except ClientDisconnect:
        raise Refusal("malformed_json", "The body did not arrive whole.", headers=_CLOSES) from None
    return b"".join(parts)


def _too_large() -> Refusal:
    return Refusal("body_too_large", f"A body has at most {BYTES_MAX:,} bytes.", headers=_CLOSES)


def _refuse_other_types(request: Request) -> None:
    # A page of another site can make a browser send forms and plain text, and nothing that says to be JSON.
    given = request.headers.getlist("content-type")
    told = Message()
    told["content-type"] = given[0] if len(given) == 1 else ""
    charset = str(told.get_param("charset", "utf-8")).lower()
    if told.get_content_type() != "application/json" or charset != "utf-8":
        raise Refusal("unsupported_media_type", "Send the body as JSON, with Content-Type: application/json.")


class _Twice(Exception):
    """An object names a key twice, and readers disagree on which one counts."""


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    named = dict(pairs)
    if len(named) != len(pairs):
        raise _Twice
    return named
