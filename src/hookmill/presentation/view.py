"""Views: the JSON fields of a resource, with the descriptions for the OpenAPI document."""

from decimal import Decimal
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from hookmill.domain.filters import exact_json
from hookmill.domain.spec import source_of

V = TypeVar("V", bound="View")

TIMESTAMP_SCHEMA: Final = {"format": "date-time", "examples": ["2026-11-21T09:12:36Z"]}

Timestamp = Annotated[str, Meta(extra_json_schema=TIMESTAMP_SCHEMA)]
"""A moment as `domain/moment.py` writes it: RFC 3339, UTC."""

GeneratedSecret = Annotated[
    str | None, Meta(description="Shown only once. Null unless the service has just generated it.")
]
"""A secret that the service has just generated; None otherwise."""


class View(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A JSON object. The order of its fields is fixed, so that equal objects have equal bytes."""

    def __repr__(self) -> str:
        # Some views contain a secret.
        return f"<{type(self).__name__}>"

    def encoded(self) -> bytes:
        return msgspec.json.encode(self)

    def extended(self, view_class: type[V], **additional_fields: Any) -> V:
        """An instance of `view_class` with the fields of this view and the additional fields."""
        return view_class(**msgspec.structs.asdict(self), **additional_fields)


class ExactNumbersView(View, frozen=True):
    """A view that contains a payload filter. The filter's numbers are written without rounding."""

    def encoded(self) -> bytes:
        return exact_json(plain(self)).encode()


def plain(value: Any) -> Any:
    """A view, or a value that contains views, as dicts, lists and scalars."""
    return msgspec.to_builtins(value, builtin_types=(Decimal,), enc_hook=source_of)
