"""A request's body: JSON, said to be JSON, whole, and no larger than anything that is asked for here."""

import json
import re
from collections.abc import Iterable, Iterator
from email.message import Message
from itertools import islice
from typing import Any, Final

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from hookmill.domain import payload
from hookmill.web.api.problems import ERRORS_MAX, ErrorAnswer, Refusal, pointer
from hookmill.web.body import BodyCutShort, BodyReader, BodyTooLarge, BodyTooSlow
from hookmill.web.delivery_body import BODY_SECONDS

BYTES_MAX: Final = 65_536
LARGE_BYTES_MAX: Final = 1_048_576
"""Where a prompt, triggers or a filter are taken."""
_LARGE_FIELDS: Final = {"prompt", "triggers", "filter"}
FIELDS_MAX: Final = 64
"""No operation has half as many. Each one that is unknown would be an error of its own."""
_CLOSES: Final = {"Connection": "close"}


class ReadRequest(Request):
    """A request whose body has been read and judged."""

    def __init__(self, request: Request, body: bytes, value: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._body = body
        self._json = value


def bytes_max(fields: Iterable[str]) -> int:
    """How large a body with these fields may be."""
    return BYTES_MAX if _LARGE_FIELDS.isdisjoint(fields) else LARGE_BYTES_MAX


async def read(request: Request, *, required: bool, bytes_max: int) -> ReadRequest:
    """Raises `Refusal` for what is no JSON. A body that need not be there may be missing."""
    body = await _bytes_of(request, bytes_max)
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
        value = json.loads(body, object_pairs_hook=_once_each)
    except _Twice:
        raise Refusal("malformed_json", "The body can't be read: an object in it names a key twice.") from None
    except (RecursionError, ValueError):
        told = "The body can't be read: it is nested too deep, or holds a number of too many digits."
        raise Refusal("malformed_json", told) from None
    if isinstance(value, dict) and len(value) > FIELDS_MAX:
        told = f"The body has {len(value):,} fields. No operation takes more than {FIELDS_MAX}."
        raise Refusal("invalid", told, errors=[ErrorAnswer(pointer="", detail=told)])
    if _SUSPECT.search(body) is not None:
        _refuse_what_no_text_holds(value)
    return value


# Only an escape can bring either into a string.
_SUSPECT: Final = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
_NO_TEXT: Final = re.compile("[\x00\ud800-\udfff]")


def _refuse_what_no_text_holds(value: Any) -> None:
    """Neither store keeps a NUL in text, and half of a surrogate pair can't be written in UTF-8."""
    told = "The text holds a NUL, or half of a surrogate pair. Leave that out."
    errors = [ErrorAnswer(pointer=pointer(place), detail=told) for place in islice(_no_text(value), ERRORS_MAX)]
    if errors:
        raise Refusal("invalid", f"A text in the body can't be kept. {told}", errors=errors)


def _no_text(value: Any) -> Iterator[list[str | int]]:
    """The places of strings, names of fields too, that are no text. It may be called with half a million values."""
    place: list[str | int] = []
    within: list[Iterator[tuple[str | int, Any]]] = [iter([("", value)])]
    while within:
        for step, each in within[-1]:
            if isinstance(step, str) and _NO_TEXT.search(step) is not None:
                yield [*place, step][1:]
            if isinstance(each, str):
                if _NO_TEXT.search(each) is not None:
                    yield [*place, step][1:]
            elif isinstance(each, dict | list):
                place.append(step)
                within.append(iter(each.items()) if isinstance(each, dict) else enumerate(each))
                break
        else:
            within.pop()
            del place[-1:]


async def _bytes_of(request: Request, bytes_max: int) -> bytes:
    reader: BodyReader = request.state.bodies
    try:
        return await reader.read(request.scope, request.receive, bytes_max=bytes_max, seconds=BODY_SECONDS)
    except BodyTooLarge:
        raise _too_large(bytes_max) from None
    except BodyTooSlow:
        raise Refusal("body_too_slow", f"Send it within {BODY_SECONDS:.0f} seconds.", headers=_CLOSES) from None
    except BodyCutShort:
        raise Refusal("malformed_json", "The body did not arrive whole.", headers=_CLOSES) from None


def _too_large(bytes_max: int) -> Refusal:
    return Refusal("body_too_large", f"A body has at most {bytes_max:,} bytes here.", headers=_CLOSES)


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
