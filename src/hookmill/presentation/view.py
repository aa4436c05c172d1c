"""A view: the fields of one thing as they are shown, with all that the API's description says of them."""

from decimal import Decimal
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from hookmill.domain.filters import filter_to_json

V = TypeVar("V", bound="View")

TIMESTAMP_SCHEMA: Final = {"format": "date-time", "examples": ["2026-11-21T09:12:36Z"]}

Timestamp = Annotated[str, Meta(extra_json_schema=TIMESTAMP_SCHEMA)]
"""A moment as `domain/moment.py` writes it: RFC 3339, UTC."""

Generated = Annotated[
    str | None, Meta(description="Shown now and never again. Null where you gave it, or where it existed before.")
]
"""A secret that was generated."""


class View(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A JSON object. Its fields always come in the same order, so that equal things have equal bytes."""

    def __repr__(self) -> str:
        # Some hold a secret at the one moment when it is shown.
        return f"<{type(self).__name__}>"

    def as_json(self) -> bytes:
        return msgspec.json.encode(self)

    def extended(self, view: type[V], **fields: Any) -> V:
        """The same as another view, which has these fields too."""
        return view(**msgspec.structs.asdict(self), **fields)


class ExactView(View, frozen=True):
    """A view with a payload filter in it, whose numbers are written without rounding."""

    def as_json(self) -> bytes:
        return filter_to_json(plain(self)).encode()


def plain(value: Any) -> Any:
    """A view, or what views stand in, as dicts, lists and scalars."""
    return msgspec.to_builtins(value, builtin_types=(Decimal,))
