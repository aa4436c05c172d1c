"""Reads and validates a request's body: complete, within the size limit, declared as JSON, and valid JSON."""

import json
import re
from collections.abc import Collection, Iterator
from email.message import Message
from itertools import islice
from typing import Any, Final

import msgspec
from fastapi import Request
from starlette.concurrency import run_in_threadpool

from hookmill.domain import payload
from hookmill.web.api.problems import ERRORS_MAX, ApiError, ErrorDetail, body_pointer
from hookmill.web.body import BodyCutShort, BodyReader, BodyTooLarge, BodyTooSlow
from hookmill.web.delivery_body import BODY_SECONDS

BYTES_MAX: Final = 65_536
"""The limit for bodies without a field of `_LARGE_FIELDS`."""
LARGE_BYTES_MAX: Final = 1_048_576
"""The limit for bodies with a prompt, triggers, a filter or a payload."""
TREE_BYTES_MAX: Final = 8_388_608
"""The limit for bodies with definition files."""
_LARGE_FIELDS: Final = {"prompt", "triggers", "filter", "payload"}
FIELDS_MAX: Final = 64
"""The maximum number of fields in a body. No operation has as many, and each unknown field is a separate error."""
_CLOSE_HEADERS: Final = {"Connection": "close"}


class ParsedRequest(Request):
    """A request whose body has been read and parsed."""

    def __init__(self, request: Request, body: bytes, value: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._body = body
        self._json = value


def size_limit(fields: Collection[str]) -> int:
    """The size limit of a body with these fields, in bytes."""
    if "files" in fields:
        return TREE_BYTES_MAX
    return BYTES_MAX if _LARGE_FIELDS.isdisjoint(fields) else LARGE_BYTES_MAX


async def read(request: Request, *, required: bool, bytes_max: int) -> ParsedRequest:
    """Read and parse the body. Raises `ApiError` if it is not valid JSON, or if it is missing but `required`."""
    body = await _read_bytes(request, bytes_max)
    if not body and not required:
        return ParsedRequest(request, b"", None)
    _require_json_content_type(request)
    # In a thread, because parsing a large body takes milliseconds. The event loop handles deliveries meanwhile.
    return ParsedRequest(request, body, await run_in_threadpool(parse_json, body))


def parse_json(body: bytes) -> Any:
    """The body's value. Raises `ApiError` if it is not JSON, has a key twice or too many fields, or can't be stored."""
    # A field may contain a payload that is nested as deep as a delivery.
    parsed = payload.parse(body, nesting_max=payload.MAX_NESTING + 1)
    if isinstance(parsed, payload.NotJson):
        raise ApiError("malformed_json", f"The body can't be read: {parsed.reason}.")
    try:
        value = json.loads(
            body,
            object_pairs_hook=_object_without_duplicates,
            parse_int=payload.exact_integer,
            parse_float=payload.number_without_loss,
        )
    except _DuplicateKey:
        raise ApiError("malformed_json", "The body can't be read: an object contains a key twice.") from None
    except (RecursionError, ValueError):
        detail = "The body can't be read: it is nested too deep."
        raise ApiError("malformed_json", detail) from None
    if isinstance(value, dict) and len(value) > FIELDS_MAX:
        detail = f"The body has {len(value):,} fields. No operation accepts more than {FIELDS_MAX}."
        raise ApiError("invalid", detail, errors=[ErrorDetail(pointer="", detail=detail)])
    if _POSSIBLY_UNSTORABLE_ESCAPE.search(body) is not None:
        _reject_unstorable_text(value)
    return value


def field_bytes(body: bytes, name: str) -> bytes | None:
    """The bytes of one field's value, as the client sent them. None if the field is missing or null.

    `body`: a JSON object, or empty.
    """
    value = msgspec.json.decode(body, type=dict[str, msgspec.Raw]).get(name) if body else None
    return bytes(value) if value is not None and bytes(value) != b"null" else None


# JSON in UTF-8 can contain a NUL, and half of a surrogate pair, only as an escape. So most bodies need no search in
# their values. Complete surrogate pairs match too, and are storable.
_POSSIBLY_UNSTORABLE_ESCAPE: Final = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
_UNSTORABLE_CHARACTER: Final = re.compile("[\x00\ud800-\udfff]")
"""PostgreSQL can't store a NUL in text, and UTF-8 can't encode half of a surrogate pair."""


def _reject_unstorable_text(value: Any) -> None:
    """Raise `ApiError` if a string or a field name in the value can't be stored."""
    detail = "The text contains a NUL, or half of a surrogate pair. Remove that character."
    paths = islice(_unstorable_paths(value), ERRORS_MAX)
    errors = [ErrorDetail(pointer=body_pointer(path), detail=detail) for path in paths]
    if errors:
        raise ApiError("invalid", f"The body contains text that can't be stored. {detail}", errors=errors)


def _unstorable_paths(value: Any) -> Iterator[list[str | int]]:
    """The paths of strings and field names that can't be stored.

    A loop instead of recursion, because the value may have half a million nodes.
    """
    # The first step is a placeholder for the whole body.
    path: list[str | int] = []
    levels: list[Iterator[tuple[str | int, Any]]] = [iter([("", value)])]
    while levels:
        for step, node in levels[-1]:
            if isinstance(step, str) and _UNSTORABLE_CHARACTER.search(step) is not None:
                yield [*path, step][1:]
            if isinstance(node, str):
                if _UNSTORABLE_CHARACTER.search(node) is not None:
                    yield [*path, step][1:]
            elif isinstance(node, dict | list):
                path.append(step)
                levels.append(iter(node.items()) if isinstance(node, dict) else enumerate(node))
                break
        else:
            levels.pop()
            del path[-1:]


async def _read_bytes(request: Request, bytes_max: int) -> bytes:
    reader: BodyReader = request.state.body_reader
    try:
        return await reader.read(request.scope, request.receive, bytes_max=bytes_max, seconds=BODY_SECONDS)
    except BodyTooLarge:
        raise _too_large_error(bytes_max) from None
    except BodyTooSlow:
        detail = f"Send the body within {BODY_SECONDS:.0f} seconds."
        raise ApiError("body_too_slow", detail, headers=_CLOSE_HEADERS) from None
    except BodyCutShort:
        raise ApiError("malformed_json", "The body is incomplete.", headers=_CLOSE_HEADERS) from None


def _too_large_error(bytes_max: int) -> ApiError:
    detail = f"A body for this operation has at most {bytes_max:,} bytes."
    return ApiError("body_too_large", detail, headers=_CLOSE_HEADERS)


def _require_json_content_type(request: Request) -> None:
    # Another site's page can make a browser send forms and plain text here, but not application/json.
    content_types = request.headers.getlist("content-type")
    message = Message()
    message["content-type"] = content_types[0] if len(content_types) == 1 else ""
    charset = str(message.get_param("charset", "utf-8")).lower()
    if message.get_content_type() != "application/json" or charset != "utf-8":
        raise ApiError("unsupported_media_type", "Send the body as JSON, with Content-Type: application/json.")


class _DuplicateKey(Exception):
    """An object contains a key twice. JSON parsers disagree on which value is valid."""


def _object_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _DuplicateKey
    return value
