"""The types of names, ids and times in paths, query parameters, bodies and responses."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import Path, Query
from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema

from hookmill.domain import moment
from hookmill.presentation.view import TIMESTAMP_SCHEMA

_MOMENT_PATTERN: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)\Z", re.ASCII)
_RANDOM_PART_PATTERN: Final = "[0-9a-z]{1,64}"
REF_TEMPLATE: Final = "#/components/schemas/{name}"
"""Where the OpenAPI document has its schemas."""
# PostgreSQL can't store a NUL in text.
NO_NUL: Final = r"^[^\x00]*$"
_SECRET_NAME_PATTERN: Final = r"^[A-Za-z][A-Za-z0-9_]{0,63}$"
_UID_PATTERN: Final = r"^wh_[0-9A-Za-z_-]{1,64}$"
_DELIVERY_ID_PATTERN: Final = r"^dlv_[0-9a-f]{32}$"
_CURSOR_PATTERN: Final = "^[A-Za-z0-9_-]{1,1000}$"
DIGEST_PATTERN: Final = "^[0-9a-f]{64}$"
IDEMPOTENCY_KEY_PATTERN: Final = r"^[\x21-\x7e]([\x20-\x7e]{0,253}[\x21-\x7e])?$"
ETAG_LIST_PATTERN: Final = r"^(\*|(W/)?\"[\x21\x23-\x7e]{0,200}\"( *, *(W/)?\"[\x21\x23-\x7e]{0,200}\"){0,20})$"

PATTERN_HINTS: Final[Mapping[str, str]] = {
    NO_NUL: "The text contains a NUL character. Remove it.",
    _SECRET_NAME_PATTERN: (
        "Use a letter, then at most 63 letters, digits and underscores, such as WEBHOOK_GITHUB_SECRET."
    ),
    _UID_PATTERN: "Use a webhook's uid, not its name, such as wh_0123456789abcdefghjkmnpqrst.",
    _DELIVERY_ID_PATTERN: (
        "Use a delivery's id: dlv_ and 32 hexadecimal digits, as in dlv_0192f0c1aabbccddeeff001122334455."
    ),
    _CURSOR_PATTERN: "Use the next_cursor of a page of this list.",
    DIGEST_PATTERN: "Use the digest of a plan: 64 hexadecimal digits.",
    IDEMPOTENCY_KEY_PATTERN: "Use 1 to 255 printable ASCII characters, without a space at either end.",
    ETAG_LIST_PATTERN: 'Use an ETag with its quotes, such as "0f3a…", or *.',
}
"""The error text for a value that does not match a pattern."""


def _parse_moment(value: Any) -> int:
    format_error_text = "a time looks like 2026-11-21T09:12:36Z"
    if not isinstance(value, str) or not _MOMENT_PATTERN.match(value):
        raise ValueError(format_error_text)
    try:
        return moment.parse_iso(value.upper())
    except moment.OutOfRange:
        raise ValueError("a time must be in the years 1 to 9999 of UTC") from None
    except ValueError:
        raise ValueError(format_error_text) from None


Moment = Annotated[int, BeforeValidator(_parse_moment), WithJsonSchema({"type": "string", **TIMESTAMP_SCHEMA})]
"""Microseconds since 1970, from an RFC 3339 timestamp."""

Text = Annotated[str, StringConstraints(pattern=NO_NUL, max_length=1_000)]
Name = Annotated[str, StringConstraints(pattern=NO_NUL, min_length=1, max_length=100)]
SecretText = Annotated[
    str,
    StringConstraints(pattern=NO_NUL, min_length=1, max_length=4_200),
    Field(json_schema_extra={"writeOnly": True}),
]
SecretName = Annotated[str, StringConstraints(pattern=_SECRET_NAME_PATTERN), Field(examples=["WEBHOOK_GITHUB_SECRET"])]
Uid = Annotated[str, StringConstraints(pattern=_UID_PATTERN), Field(examples=["wh_0123456789abcdefghjkmnpqrst"])]
DeliveryId = Annotated[
    str, StringConstraints(pattern=_DELIVERY_ID_PATTERN), Field(examples=["dlv_0192f0c1aabbccddeeff001122334455"])
]

PAGE_SIZE: Final = 50
PAGE_SIZE_MAX: Final = 200
Limit = Annotated[int, Query(ge=1, le=PAGE_SIZE_MAX, description="The maximum number of items on the page.")]
Cursor = Annotated[
    str | None,
    Query(pattern=_CURSOR_PATTERN, description="The `next_cursor` of the previous page."),
]

# Path parameters. If a value does not match its pattern, the response is 404.

FactoryInPath = Annotated[
    str,
    Path(pattern=r"^[^\x00-\x1f\x7f]{1,100}$", description="The factory's name.", examples=["default"]),
]
AttemptInPath = Annotated[
    str,
    Path(
        pattern=r"^run_[0-9a-f]{32}-[1-9][0-9]{0,8}$",
        description="The run's id, and the number of the attempt.",
        examples=["run_0192f0c1aabbccddeeff001122334455-1"],
    ),
]
UidInPath = Annotated[
    str,
    Path(
        pattern=f"^wh_{_RANDOM_PART_PATTERN}$",
        description="The webhook's uid.",
        examples=["wh_0123456789abcdefghjkmnpqrst"],
    ),
]
AutomationInPath = Annotated[
    str,
    Path(
        pattern=f"^aut_{_RANDOM_PART_PATTERN}$",
        description="The automation's id.",
        examples=["aut_0123456789abcdefghjkmnpqrst"],
    ),
]
DeliveryInPath = Annotated[
    str,
    Path(
        pattern=_DELIVERY_ID_PATTERN,
        description="The delivery's id.",
        examples=["dlv_0192f0c1aabbccddeeff001122334455"],
    ),
]
RunInPath = Annotated[
    str,
    Path(pattern=r"^run_[0-9a-f]{32}$", description="The run's id.", examples=["run_0192f0c1aabbccddeeff001122334455"]),
]
DESTINATION_ID_PATTERN: Final = f"^ald_{_RANDOM_PART_PATTERN}$"
FileInPath = Annotated[
    str,
    Path(pattern=r"^[^/\x00]{1,255}$", description="The file's name.", examples=["output.log"]),
]
SecretInPath = Annotated[
    str,
    Path(pattern=_SECRET_NAME_PATTERN, description="The team secret's name.", examples=["STRIPE_LIVE"]),
]
MemberInPath = Annotated[
    str,
    Path(
        pattern=f"^mbr_{_RANDOM_PART_PATTERN}$",
        description="The member's id.",
        examples=["mbr_0123456789abcdefghjkmnpqrst"],
    ),
]
KeyInPath = Annotated[
    str,
    Path(
        pattern=f"^key_{_RANDOM_PART_PATTERN}$",
        description="The key's id.",
        examples=["key_0123456789abcdefghjkmnpqrst"],
    ),
]
